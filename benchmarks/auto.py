"""What the default may cost: exact at the largest sizes for which ``method="auto"`` picks it, beside fixed-s.

As many holders of 1000 rows as the rule lets through for a number of coefficients; epsilon 1, intercept, weak
covariates as ``auto`` takes them, four chains of 1000 draws, all warm-up and repeated runs in the time.
"""

from benchmarks import text_table
from benchmarks.exact import ROWS, problem, timed
from noisewise.analyst.fitting import MODERATE_ORDER, MODERATE_VALUES
from noisewise.analyst.methods.exact import Exact
from noisewise.analyst.methods.fixed_s import FixedS


def run(quick: bool = False) -> str:
    import warnings

    import noisewise as nw

    warnings.simplefilter("ignore", nw.UnrecordedSpendWarning)
    timed(Exact(warmup=100), problem(1), 50)  # compile, or read what is on disk
    rows = []
    for order in (6, 15) if quick else (2, 3, 6, 11, 15, 21, MODERATE_ORDER):
        J = MODERATE_VALUES // (order * (order + 3) // 2)
        given = problem(order - 1, J=J, rows=ROWS)
        ours, instant = timed(Exact(covariates="weak"), given, 1000), timed(FixedS(), given, 1000)
        rows.append(
            (
                f"{order}",
                f"{J}",
                f"{ours.wall:.1f}",
                f"{ours.cpu:.1f}",
                f"{ours.ess:,.0f}",
                f"{ours.rhat:.3f}",
                f"{ours.result.statistics['divergences'].sum():.0f}",
                f"{ours.wall / instant.wall:,.0f}",
            )
        )
    return text_table(
        f"exact at the edge of auto's rule, n_j = {ROWS}, epsilon 1, 4 chains on all cores",
        ("coefficients", "holders", "wall s", "CPU s", "effective", "R-hat", "divergences", "times fixed-s"),
        rows,
    )
