"""A seed gives the same draws in the process that compiles a method as in those that load it (docs/decisions/0005)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIT = """
import hashlib, sys
import numpy as np
import noisewise as nw
S, z = np.array([[80.0, 3.0, 5.0], [3.0, 75.0, -9.0], [5.0, -9.0, 60.0]]), np.array([31.0, -8.0, 4.0])
release = nw.Release.from_statistics(S, z, n=240, sd_S=4.0, sd_z=4.0, u=40.0, sd_u=4.0)
fitted = nw.fit(release, method=sys.argv[1], draws=100, chains=2, seed=1, warmup=200)
print(hashlib.sha256(fitted.coef.tobytes() + fitted.sigma.tobytes()).hexdigest())
"""


def digest_of_draws(method: str, cache: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", FIT, method], env=environment, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "gibbs-update"])  # both had it; the others are compiled likewise
def test_draws_do_not_depend_on_who_compiled(method: str, tmp_path: Path) -> None:
    compiled = digest_of_draws(method, tmp_path)
    assert list(tmp_path.rglob("*.nbi"))  # else the second process would compile as well
    assert digest_of_draws(method, tmp_path) == compiled
