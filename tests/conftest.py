"""What all tests share: reproducible Hypothesis runs, and the folder of real data sets."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Plots are written to files or thrown away; no test may need a screen.
os.environ.setdefault("MPLBACKEND", "Agg")

# The same examples in every run, so that a failure can be had again; time is no criterion on a shared machine.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# New examples in every run, to search where "ci" never looks: HYPOTHESIS_PROFILE=explore make test
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets and their public bounds; none of them is part of the repository."""
    named = os.environ.get("NOISEWISE_DATA")
    if not named:
        pytest.skip("NOISEWISE_DATA is unset; it names the folder of real data sets")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"NOISEWISE_DATA names {named!r}, which is not a folder")
    return folder
