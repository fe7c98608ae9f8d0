"""Privacy noise: the only module that draws it, from the operating system's randomness, never seeded.

OpenDP's samplers are exact (Canonne, Kamath & Steinke 2020) and work on integers, so no floating-point value of the
data or of the noise ever meets the other. ``T="i64"`` matters: OpenDP's plain ``int`` is 32 bits wide and saturates.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from noisewise.gram import Integers
from noisewise.study import Mechanism


class Noise(Protocol):
    """A source of integer noise; ``insecure`` is empty, or says why its releases protect nobody."""

    insecure: str

    def prepare(self) -> None:
        """Load what drawing needs, so that nothing is missing once the budget is spent."""
        ...

    def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
        """One independent draw per scale, 0 where the scale is 0."""
        ...


class SecureNoise:
    """Noise from the operating system's randomness, for real data."""

    insecure = ""

    def prepare(self) -> None:
        import opendp.prelude as dp

        dp.enable_features("contrib")

    def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
        import opendp.prelude as dp

        self.prepare()
        out = np.zeros(len(grid_scales), dtype=np.int64)
        for scale in sorted(set(grid_scales) - {0.0}):
            where = np.flatnonzero(np.asarray(grid_scales) == scale)
            domain = dp.vector_domain(dp.atom_domain(T="i64"))
            if law == "gaussian":
                mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)
            else:
                mechanism = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale)
            out[where] = mechanism([0] * len(where))
        return out


class SimulatedNoise:
    """Fast, seedable noise for simulations and tests. It marks every Release made with it, for ever."""

    insecure = "simulated noise: this release protects nobody"

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def prepare(self) -> None:
        pass

    def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
        scale = np.asarray(grid_scales, dtype=float)
        unit = self._rng.standard_normal(scale.size) if law == "gaussian" else self._rng.laplace(size=scale.size)
        return np.rint(scale * unit).astype(np.int64)


class NoNoise:
    """No noise at all: exact statistics, for simulations that need the non-private answer."""

    insecure = "exact statistics: this release protects nobody"

    def prepare(self) -> None:
        pass

    def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
        return np.zeros(len(grid_scales), dtype=np.int64)
