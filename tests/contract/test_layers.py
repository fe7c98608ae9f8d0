"""Each role works with the packages of its own extra alone, and the package itself is light to import.

A subprocess hides every installed package that is neither a requirement of noisewise nor of the role's extras, so
that an import in the wrong place fails here and not on a holder's machine.
"""

import json
import re
import subprocess
import sys
import textwrap
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

STUDY = """
import noisewise as nw

study = nw.Study(
    features=(nw.Column("age", 18, 100), nw.Column("bmi", 12, 60)),
    target=nw.Column("pressure", 70, 220),
    epsilon=1.0,
    delta=1e-6,
)
"""

HOLDER = """
from pathlib import Path

Path("table.csv").write_text("age,bmi,pressure\\n" + "40,25,120\\n60,30,140\\n" * 50)
ledger = nw.Ledger.create("budget.ledger", dataset="clinic", epsilon=2.0, delta=1e-5)
nw.Holder(study, ledger=ledger, name="clinic").release("table.csv", "release.json")
assert nw.Release.load("release.json").n == 100

# taking part in a secure sum needs no server's packages: here it gets as far as the door
import noisewise.cli.join
from noisewise.holder.share import Participant
from noisewise.protocol.remote import Network

keys = [64 * digit for digit in "0123"]
trust = f'board = "http://127.0.0.1:9"\\ncoordinator = "{keys[0]}"\\n[nodes]\\na = "{keys[1]}"\\nb = "{keys[2]}"'
try:
    Participant.enrol(Path("secure"), trust=trust, name="clinic", token="t", network=Network(attempts=1))
except OSError as error:
    assert "the board at http://127.0.0.1:9 can't be reached" in str(error)
else:
    raise AssertionError("nobody listens there")
"""

# The analyst's numbers are made elsewhere: a holder's extra is not at hand here.
ANALYST = """
import numpy as np

release = nw.Release.from_statistics(S=100 * np.eye(2), z=[30.0, 10.0], n=300, sd_S=5.0, sd_z=5.0, u=40.0, sd_u=5.0)
release.save("release.json")
posterior = nw.fit([nw.Release.load("release.json")], seed=1)
str(posterior.summary())
posterior.predict(np.zeros((1, 2)))
posterior.save("posterior.nc")
nw.Posterior.load("posterior.nc").to_arviz()
posterior.plot_marginals()
"""

ESTIMATOR = """
import numpy as np

ledger = nw.Ledger.create("budget.ledger", dataset="clinic", epsilon=2.0, delta=1e-5)
rng = np.random.default_rng(1)
X = rng.uniform(-1, 1, (500, 2))
model = nw.PrivateBayesianRegression(bounds=(-1, 1), target_bounds=(-3, 3), ledger=ledger, random_state=1)
model.fit(X, X.sum(axis=1)).predict(X, return_std=True)
"""

NODE = """
import asyncio
from pathlib import Path

from noisewise.compute.folder import Folder
from noisewise.compute.node import Node
from noisewise.compute.node_http import application
from noisewise.compute.service import Listening

folder = Folder.create(Path("node"), name="a", url="https://a.example.org", coordinators=["0" * 64])


async def call():  # made inside a running loop, as a server does
    node = Node(folder, folder.store())
    assert application(node) and node.card()["signer"] == node.key
    node.store.close()


asyncio.run(call())
"""

COMMANDS = """
from typer.testing import CliRunner

from noisewise.cli import app

for command in ("study", "release", "ledger", "fit", "predict", "demo", "node"):
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[str]:
    """The distributions that installing ``name[extras]`` brings, itself included."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return set()
    out = {name}
    for requirement in map(Requirement, lines):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in (*extras, "")):
            out |= needed(normal(requirement.name), frozenset(requirement.extras), seen)
    return out


def hidden(extras: tuple[str, ...]) -> list[str]:
    """The top-level modules of packages that a user of these extras does not have."""
    there = needed("noisewise", frozenset(extras), set())
    by_module = packages_distributions()
    return sorted(module for module, names in by_module.items() if not there & {normal(name) for name in names})


def run(program: str, folder: Path, hide: list[str]) -> str:
    # Finders that find nothing, as if the packages were not there: others may ask for a module without importing it.
    guard = f"""
        import sys

        class Hiding:
            def __init__(self, finder):
                self.finder = finder

            def find_spec(self, name, path=None, target=None):
                return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

            def __getattr__(self, name):
                return getattr(self.finder, name)

        HIDDEN = set({json.dumps(hide)})
        sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(guard) + program], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("extras", "program"),
    [
        pytest.param((), STUDY + "study.save('study.toml'); nw.Study.load('study.toml')", id="study"),
        pytest.param((), COMMANDS, id="command line"),
        pytest.param(("holder",), STUDY + HOLDER, id="holder"),
        pytest.param(("analyst",), "import noisewise as nw" + ANALYST, id="analyst"),
        pytest.param(("node",), NODE, id="node"),
        pytest.param(("holder", "analyst", "sklearn"), "import noisewise as nw" + ESTIMATOR, id="estimator"),
    ],
)
def test_a_role_needs_its_own_extra_alone(extras: tuple[str, ...], program: str, tmp_path: Path) -> None:
    run(program, tmp_path, hidden(extras))


def test_what_is_hidden_is_hidden(tmp_path: Path) -> None:
    assert {"arviz", "sklearn", "pandas"} <= set(hidden(("holder",)))
    assert {"opendp", "sklearn"} <= set(hidden(("analyst",)))
    with pytest.raises(AssertionError, match="No module named 'pandas'"):
        run("import pandas", tmp_path, hidden(("holder",)))


def test_import_is_light(tmp_path: Path) -> None:
    program = "import json; import noisewise as nw; nw.Study, nw.Release, nw.Prior; print(json.dumps([*sys.modules]))"
    loaded = {name.partition(".")[0] for name in json.loads(run(program, tmp_path, []))}
    heavy = {
        "scipy",
        "pyarrow",
        "opendp",
        "dp_accounting",
        "arviz",
        "xarray",
        "matplotlib",
        "numba",
        "sklearn",
        "pandas",
    }
    assert not loaded & heavy
