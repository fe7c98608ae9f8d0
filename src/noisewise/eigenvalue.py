r"""The smallest eigenvalue of an integer Gram matrix, without floating-point error in what is released.

An eigensolver's last bits depend on every row, and no sensitivity bounds them. So the solver only guesses, and whole
numbers decide: the answer is the largest multiple t of 2^-q for which S - t I is positive definite (0 if there is
none), and that is tested by exact elimination. It is a function of the exact eigenvalue alone, the last grid point
below it: ceil(lambda / g) - 1 steps of g = 2^-q. It grows with lambda, and two eigenvalues that differ by D give
answers that differ by less than D + g.

Elimination without fractions (Bareiss 1968) turns M into the determinants of its leading minors, all of which are
positive if and only if M is positive definite (Sylvester).
"""

import numpy as np

from noisewise.layout import Integers


def smallest_eigenvalue(S: Integers, bits: int) -> int:
    """In units of 2^-2q, a multiple of 2^q, at least 0; S is in those units too."""
    exact = [[int(value) for value in row] for row in S]
    step = 1 << bits
    guess = int(np.linalg.eigvalsh(S.astype(np.float64))[0] // step)

    def below(t: int) -> bool:
        return _positive_definite([[x - t * step * (i == j) for j, x in enumerate(row)] for i, row in enumerate(exact)])

    low, high, reach = max(guess, 0), max(guess, 0) + 1, 1
    while low > 0 and not below(low):
        low, high, reach = max(low - reach, 0), low, 2 * reach
    reach = 1
    while below(high):
        low, high, reach = high, high + reach, 2 * reach
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low * step


def _positive_definite(M: list[list[int]]) -> bool:
    """By elimination without fractions in the upper triangle; M is spoilt."""
    previous = 1
    for k, pivot_row in enumerate(M):
        pivot = pivot_row[k]
        if pivot <= 0:
            return False
        for i in range(k + 1, len(M)):
            row, factor = M[i], pivot_row[i]
            for j in range(i, len(M)):
                row[j] = (row[j] * pivot - factor * pivot_row[j]) // previous
        previous = pivot
    return True
