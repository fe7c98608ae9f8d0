"""Whether chains can be relied on: R-hat and effective draws by ArviZ, and what to do in words."""

import math
import warnings
from typing import Any

from noisewise.gram import Floats

GOOD_RHAT = 1.01
GOOD_EFFECTIVE = 400.0


def import_arviz() -> Any:
    """ArviZ, without its announcement of the next version at import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz


def rhat_and_ess(draws: Floats) -> tuple[float, float, float]:
    """The largest R-hat, the smallest bulk and the smallest tail effective sample of (chains, draws, quantities).

    A quantity that never moves has neither and is left out.
    """
    import xarray

    arviz = import_arviz()
    moving = draws[..., draws.std(axis=(0, 1)) > 0]
    data = xarray.Dataset({"draws": (("chain", "draw", "quantity"), moving)})
    bulk, tail = (float(arviz.ess(data, method=method)["draws"].min()) for method in ("bulk", "tail"))
    return float(arviz.rhat(data)["draws"].max()), bulk, tail


def convergence_notes(draws: Floats, *, to_settle: str, to_lengthen: str) -> tuple[str, ...]:
    """What a reader of (chains, draws, quantities) has to know of convergence; nothing where all is well."""
    if draws.shape[0] < 2 or draws.shape[1] < 4:
        return ("One chain, or almost no draws: nothing tells whether it converged. Use chains=4, draws=1000.",)
    rhat, bulk, tail = rhat_and_ess(draws)
    notes = []
    if not rhat < GOOD_RHAT:
        notes.append(
            f"The chains do not agree (R-hat {rhat:.3f}, wanted below {GOOD_RHAT}): don't rely on this posterior yet. "
            f"{to_settle}"
        )
    least = min(bulk, tail)
    if not least > GOOD_EFFECTIVE:
        notes.append(
            f"Effective draws: {bulk:,.0f} in the bulk, {tail:,.0f} in the tails (wanted above {GOOD_EFFECTIVE:.0f}). "
            f"Raise {to_lengthen} {math.ceil(GOOD_EFFECTIVE / max(least, 1.0))}-fold before you rely on interval ends."
        )
    return tuple(notes)
