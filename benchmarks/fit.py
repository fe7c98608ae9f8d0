"""The instant answer: fixed-s with no chain, next to the paper's chain, and what the command line costs.

Targets: 10,000 draws at d = 14, J = 10 within 50 ms after import; ``import noisewise`` below 0.3 s; ``noisewise fit``
on ten such releases below 3 s from the shell. The peer of the quadrature is the same posterior by the paper's chain
(compiled), per effective draw; the peer of an import is a bare interpreter.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import noisewise as nw
from benchmarks import text_table
from noisewise.privacy.noise import SimulatedNoise

D, J, ROWS, DRAWS = 14, 10, 1000, 10_000


def releases() -> list[nw.Release]:
    """Ten holders' releases at epsilon 1, with simulated noise so that no ledger is needed."""
    rng = np.random.default_rng(1)
    columns = [nw.Column(f"x{i + 1}", -1, 1) for i in range(D)]
    study = nw.Study(columns, nw.Column("y", -4, 4), epsilon=1.0, delta=1e-6)
    theta = rng.normal(0, 0.3, D)
    out = []
    for j in range(J):
        X = rng.uniform(-1, 1, (ROWS, D))
        y = X @ theta + 0.5 * rng.standard_normal(ROWS)
        ledger = nw.Holder(study, ledger=None, name=f"holder {j + 1}", noise=SimulatedNoise(rng))
        out.append(ledger.release(np.column_stack([X, y])))
    return out


def run(quick: bool = False) -> str:
    import warnings

    warnings.simplefilter("ignore", nw.UnrecordedSpendWarning)
    made = releases()
    rounds = 3 if quick else 15
    direct = _least(lambda: nw.fit(made, method="fixed-s", draws=DRAWS, chains=1, seed=1), rounds)
    draws = 2_000 if quick else DRAWS

    def chain() -> nw.Posterior:
        return nw.fit(made, method="fixed-s", algorithm="mcmc", draws=draws // 2, chains=2, seed=1)

    chain()  # compiles once, or reads the cache
    by_chain = _least(chain, 2)
    from noisewise.analyst.diagnostics import rhat_and_ess

    effective = min(rhat_and_ess(chain().draws_)[1:])
    with tempfile.TemporaryDirectory(prefix="noisewise-bench-") as folder:
        paths = []
        for j, release in enumerate(made):
            paths.append(str(Path(folder) / f"{j}.json"))
            release.save(paths[-1])
        noisewise = str(Path(sys.executable).with_name("noisewise"))
        shell = _least(lambda: _call([noisewise, "fit", *paths, "--method", "fixed-s", "--seed", "1"]), rounds // 3)
        writes = _least(
            lambda: _call([noisewise, "fit", *paths, "--method", "fixed-s", "--output", f"{folder}/p.nc"]), rounds // 3
        )
    bare = _least(lambda: _call([sys.executable, "-c", "pass"]), rounds)
    imported = _least(lambda: _call([sys.executable, "-c", "import noisewise"]), rounds)
    return text_table(
        f"d = {D}, J = {J}, n_j = {ROWS}, epsilon 1; least of several rounds",
        ("", "ms", "target ms"),
        [
            (f"fixed-s, {DRAWS:,} independent draws", _ms(direct), "50"),
            (f"fixed-s by the paper's chain, {draws:,} draws ({effective:,.0f} effective)", _ms(by_chain), ""),
            ("noisewise fit, ten files, from the shell", _ms(shell), "3000"),
            ("the same, writing a netCDF file", _ms(writes), "3000"),
            ("a bare interpreter", _ms(bare), ""),
            ("import noisewise, interpreter taken off", _ms(imported - bare), "300"),
        ],
        (f"chain / quadrature, per effective draw: {(by_chain / effective) / (direct / DRAWS):.0f} times the time",),
    )


def _least(task: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(max(1, rounds)):
        start = time.perf_counter()
        task()
        times.append(time.perf_counter() - start)
    return min(times)


def _call(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f}"
