"""The model that all methods share (docs/maths.md, 3), and the releases as arrays.

    y | x ~ N(theta'x, v),  so for any covariates  z_j | S_j ~ N(S_j theta, v S_j)  and
    r_j = u_j - z_j'S_j^{-1}z_j ~ v chi^2_{n_j - p}, independent of z_j given S_j.
    Observed: S_j, z_j, u_j plus noise of known law. One theta and one v for all holders j.

Methods differ only in how they treat S_j. Where a study averages rows in groups of k, a row here is an average: n
counts averages, and v is a k-th of the rows' residual variance (``Units.average_rows`` takes priors and results there
and back).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from noisewise.analyst.units import Units
from noisewise.errors import FitError
from noisewise.gram import Floats
from noisewise.release import Law, Release, check_same_study
from noisewise.study import Study


class Moments(NamedTuple):
    """The block of third and fourth moments: entries as in ``Layout``, and (J, entries) sums over rows."""

    entries: tuple[tuple[int, ...], ...]
    values: Floats

    @classmethod
    def of(cls, releases: Sequence[Release]) -> "Moments | None":
        layout = releases[0].layout
        where = layout.where("fourth")
        if where is None:
            return None
        found = [release.block("fourth") for release in releases]
        return cls(layout.entries[where], np.stack([block[0] for block in found if block]))


@dataclass(frozen=True, eq=False)
class Problem:
    """J releases of one study, stacked; sd_* are the noise's standard deviations, 0 where an entry is exact.

    ``fourth`` and ``eigenvalue`` are None unless the study releases them.
    """

    units: Units
    study: Study | None
    holders: tuple[str, ...]
    law: Law
    n: Floats
    S: Floats
    z: Floats
    u: Floats | None
    sd_n: Floats
    sd_S: Floats
    sd_z: Floats
    sd_u: Floats
    fourth: Moments | None = None
    eigenvalue: Floats | None = None
    sd_eigenvalue: Floats | float = 0.0

    @classmethod
    def of(cls, releases: Sequence[Release]) -> Self:
        if not releases:
            raise FitError("No release was given; nw.fit takes one Release or a list of them.")
        check_same_study(releases)
        laws = {release.law for release in releases}
        if len(laws) > 1:
            raise FitError(f"Releases with different noise laws ({', '.join(sorted(laws))}) can't be fitted together.")
        study, layout = releases[0].study, releases[0].layout
        if layout.statistics != "gram":
            raise FitError(
                "These releases have sums and squares of each column alone, and no regression can be fitted to them. "
                "nw.Projection makes the study of a second release from them; nw.fit fits that one."
            )
        parts = [release.sufficient for release in releases]
        stack = {name: np.stack([getattr(part, name) for part in parts]) for name in ("S", "z", "sd_S", "sd_z")}
        scalars = {name: np.array([getattr(part, name) for part in parts]) for name in ("n", "sd_n", "sd_u")}
        noisy = any(scalars[name].any() for name in ("sd_n", "sd_u")) or stack["sd_S"].any() or stack["sd_z"].any()
        eigenvalues = [release.block("eigenvalue") for release in releases]
        us = [part.u for part in parts if part.u is not None]
        return cls(
            units=Units.of_study(study) if study else Units.scaled(layout.d),
            study=study,
            holders=tuple(release.holder for release in releases),
            law=laws.pop() if noisy else "none",
            u=np.array(us) if us else None,
            fourth=Moments.of(releases),
            eigenvalue=np.array([found[0][0] for found in eigenvalues if found]) if eigenvalues[0] else None,
            sd_eigenvalue=np.array([found[1][0] for found in eigenvalues if found]),
            **stack,
            **scalars,
        )

    @property
    def J(self) -> int:
        return len(self.holders)

    @property
    def order(self) -> int:
        """The length of theta, the constant counted."""
        return int(self.z.shape[1])

    @property
    def exact_n(self) -> bool:
        """Whether S[0, 0] = n is known exactly and must stay so."""
        return self.units.constant and not self.sd_n.any()

    @property
    def public_n(self) -> Floats:
        """The number of rows for degrees of freedom: as published, at least 1."""
        return np.maximum(np.rint(self.n), 1.0)


def nearest_psd(S: Floats, keep_first: bool) -> Floats:
    """The positive semi-definite matrix nearest to S in Frobenius norm; its first entry kept if it is exact.

    Without the constraint: cut the negative eigenvalues off (Higham 1988). With it, by duality: P(t), the projection of
    S + t e e' (e the first axis), is nearest among matrices with its own first entry, and that entry grows with t,
    so one scalar root gives the answer. At t = 0 cutting can only have raised the entry, so the root is at t <= 0.
    """
    if np.linalg.eigvalsh(S)[0] >= 0.0:
        return S
    if not keep_first:
        return _cut(S)
    from scipy.optimize import brentq

    def first_entry_excess(t: float) -> float:
        return float(_cut(_shifted(S, t))[0, 0] - S[0, 0])

    if first_entry_excess(0.0) <= 0.0:
        return _cut(S)
    low = -max(1.0, float(S[0, 0]))
    while first_entry_excess(low) > 0.0:
        low *= 2.0
    root = brentq(first_entry_excess, low, 0.0, xtol=1e-12 * (1 + abs(low)), rtol=1e-14)
    nearest = _cut(_shifted(S, float(root)))
    nearest[0, 0] = S[0, 0]
    return nearest


def _cut(S: Floats) -> Floats:
    values, vectors = np.linalg.eigh(S)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _shifted(S: Floats, t: float) -> Floats:
    out = S.copy()
    out[0, 0] += t
    return out
