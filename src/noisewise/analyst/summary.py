"""The table that an analyst reads: estimates, intervals, and what privacy cost each of them.

The split of a coefficient's posterior variance. Let (S, z) be the exact statistics behind the releases. By the law of
total variance, under the posterior,

    Var(theta) = E[ Var(theta | S, z, v) ]  +  Var( E[theta | S, z, v] ).

The first part is the *sampling* part: with the noise switched off, (S, z) would be known and Var(theta | S, z, v) =
(C^{-1} + sum_j S_j / v)^{-1} is what the same data would leave, averaged over what the posterior believes of S and v
(S is a point where a method plugs it in). The rest is the *privacy* part. Both are variances of the coefficient
in the user's units; the share is privacy / total.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from noisewise.analyst.posterior import Posterior


@dataclass(frozen=True)
class Row:
    """One quantity in the user's units; the split is None for sigma. A point estimate has NaN beside its mean."""

    name: str
    mean: float
    sd: float
    lower: float
    upper: float
    sampling_sd: float | None
    privacy_sd: float | None
    privacy_share: float | None


@dataclass(frozen=True)
class Summary:
    """Rows for the intercept, each coefficient and sigma; ``str()`` gives a plain table."""

    method: str
    interval: float
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    diagnostics: str
    point: bool = False

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "interval": self.interval,
            "rows": [vars(row) for row in self.rows],
            "notes": list(self.notes),
            "diagnostics": self.diagnostics,
            "point": self.point,
        }

    def header(self) -> tuple[str, ...]:
        share = f"{100 * self.interval:g}%"
        return ("", "mean", "sd", f"{share} from", "to", "sampling sd", "privacy sd", "privacy share")

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The table as texts, one tuple a row."""
        return tuple(
            (
                row.name,
                *("" if np.isnan(value) else f"{value:.4g}" for value in (row.mean, row.sd, row.lower, row.upper)),
                *("" if value is None else f"{value:.3g}" for value in (row.sampling_sd, row.privacy_sd)),
                "" if row.privacy_share is None else f"{100 * row.privacy_share:.0f}%",
            )
            for row in self.rows
        )

    def __str__(self) -> str:
        table = [self.header(), *self.cells()]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines = []
        for name, *numbers in table:
            right = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *right]).rstrip())
        title = f"{'Point estimate' if self.point else 'Posterior'} by {self.method}"
        return "\n".join([title, *lines, *self.notes, self.diagnostics])


def summarise(posterior: "Posterior", interval: float) -> Summary:
    flat = posterior.flat
    means, variances = flat.mean(axis=0), flat.var(axis=0)
    lower, upper = np.quantile(flat, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    if posterior.point:
        variances, lower, upper = np.full((3, means.size), np.nan)
    names = ("intercept", *posterior.names, "sigma")
    rows = []
    for i, name in enumerate(names):
        if i == 0 and posterior.study is None:
            continue  # statistics with no study have no intercept
        split: tuple[float | None, float | None, float | None] = (None, None, None)
        if i + 1 < len(names) and not posterior.point:
            total = float(variances[i])
            sampling = min(float(posterior.noise_free[i]), total) if posterior.counts_noise else total
            share = (total - sampling) / total if total > 0 else 0.0
            split = (float(np.sqrt(sampling)), float(np.sqrt(total - sampling)), share)
        rows.append(Row(name, float(means[i]), float(np.sqrt(variances[i])), float(lower[i]), float(upper[i]), *split))
    return Summary(posterior.method, interval, tuple(rows), posterior.notes, posterior.diagnostics, posterior.point)
