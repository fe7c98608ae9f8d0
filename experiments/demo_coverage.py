"""How often the demo's intervals hold the truth: ``python -m experiments.demo_coverage [--runs 150]``.

Each run makes the three hospitals' tables anew and plays the demo's releases with simulated noise (fast, seedable),
then counts for every parameter whether the 90% interval holds its true value.
"""

import argparse
import warnings

import numpy as np

import noisewise as nw
from noisewise.evaluation.hospitals import HOSPITALS, TRUTH, draw_hospital, hypertension_study
from noisewise.privacy.noise import SimulatedNoise

METHODS = ("exact", "fixed-s", "naive")


def held_and_width(study: nw.Study, method: str, rng: np.random.Generator) -> tuple[list[bool], list[float]]:
    """For every parameter: whether its interval holds the truth, and how wide it is."""
    releases = [
        nw.Holder(study, ledger=None, name=hospital.name, noise=SimulatedNoise(rng)).release(
            draw_hospital(hospital, rng)
        )
        for hospital in HOSPITALS
    ]
    rows = nw.fit(releases, method=method, seed=0).summary(0.9).rows
    truths = (TRUTH.intercept, *TRUTH.coef, TRUTH.sigma)
    held = [row.lower <= truth <= row.upper for row, truth in zip(rows, truths, strict=True)]
    return held, [row.upper - row.lower for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.demo_coverage", description=__doc__)
    parser.add_argument("--runs", type=int, default=150)
    runs = parser.parse_args().runs
    warnings.simplefilter("ignore", nw.UnrecordedSpendWarning)
    study, stricter = hypertension_study(1.0), hypertension_study(0.1)
    names = ["intercept", *(feature.name for feature in study.encoded), "sigma"]
    for method in METHODS:
        held = np.array([held_and_width(study, method, np.random.default_rng([1, run]))[0] for run in range(runs)])
        shares = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, held.mean(axis=0), strict=True))
        print(f"{method}: 90% intervals hold the truth in {held.mean():.0%} of {runs} runs ({shares})")
    ratios = []
    for run in range(runs):
        loose = held_and_width(study, "fixed-s", np.random.default_rng([2, run]))[1]
        strict = held_and_width(stricter, "fixed-s", np.random.default_rng([3, run]))[1]
        ratios.append(np.log(np.array(strict[:-1]) / np.array(loose[:-1])))
    mean, sd = np.mean(ratios, axis=0), np.std(ratios, axis=0)
    print(f"log width at epsilon 0.1 over epsilon 1: least mean {mean.min():.2f}, largest sd {sd.max():.2f}")


if __name__ == "__main__":
    main()
