"""Whether holders' features differ by more than noise and chance explain, for then one distribution for all is wrong.

Entry (a, b) of S_j / n_j is the mean of x_a x_b over holder j's rows. If all holders drew their rows from one
distribution, these means scatter by noise and by sampling alone, and the sum of squares of their differences, each over
its variance, is chi-square with J - 1 degrees of freedom. The variance of x_a x_b is not known; it is at most
min(E x_a^2, E x_b^2) for columns within [-1, 1], and 3 E x_a^2 E x_b^2 for normal ones. The larger is taken, so that
nothing but a difference is found.
"""

import numpy as np
from scipy.stats import chi2

from noisewise.analyst.model import Problem

# False alarms in all entries together, were noise and means normal. Laplace noise has longer tails: where a normal sum
# has 1e-24, eleven standard deviations of one holder, an entry of it has 1e-6 at most.
RARE = {"gaussian": 1e-6, "laplace": 1e-24, "none": 1e-6}


def what_differs(problem: Problem) -> str | None:
    """The features that differ most between holders, or None where holders may all be alike."""
    if problem.J < 2:
        return None
    constant, p = int(problem.units.constant), problem.order
    n = np.maximum(problem.n, 1.0)
    values = problem.S / n[:, None, None]
    pooled = np.clip(np.diagonal(problem.S.sum(axis=0)) / n.sum(), 1e-6, None)
    product = np.maximum(np.minimum.outer(pooled, pooled), 3.0 * np.outer(pooled, pooled))
    if constant:
        product[0], product[:, 0] = pooled, pooled
    noise = (problem.sd_S / n[:, None, None]) ** 2 + (values * (problem.sd_n / n)[:, None, None]) ** 2
    weight = 1.0 / (noise + product / n[:, None, None])
    middle = (weight * values).sum(axis=0) / weight.sum(axis=0)
    squares = (weight * (values - middle) ** 2).sum(axis=0)
    rows, columns = np.tril_indices(p)
    free = ~((rows == 0) & (columns == 0)) if constant else np.ones(rows.size, dtype=bool)
    rows, columns = rows[free], columns[free]
    worst = int(np.argmax(squares[rows, columns]))
    a, b = rows[worst], columns[worst]
    if chi2.sf(squares[a, b], problem.J - 1) * rows.size > RARE[problem.law]:
        return None
    names = [problem.units.names[i - constant] for i in dict.fromkeys((b, a)) if i >= constant]
    return " and ".join(names)
