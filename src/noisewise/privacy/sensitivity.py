r"""How much one person can move the released statistics: every sensitivity, each beside its proof.

Setting. A row is w = (1, x, y) with |x| <= R and |y| <= Y (Y = 1 in scaled units); b is the part of w that S is made
of: (1, x) with an intercept, x without. B^2 = max |b|^2 = R^2 + 1 or R^2. A table is changed by one person:
*replace-one* swaps a row for another (n stays), *add-remove* adds or takes away one (n moves by 1). Encoded rows are
integers in units of 2^-q that were truncated towards zero, which never leaves the ball or the box, so all of this
holds for what is released, bit by bit.

L2, in the coordinates of ``Layout.weights`` (svec, so |svec(M)| = |M|_F):

**add-remove.** One row contributes f = (svec(bb'), z, u) and n. |svec(bb')|^2 = |b|^4.
  - with u, sqrt 2 on z:  |svec(vv')| = |v|^2 for v = (b, y), at most B^2 + Y^2.
  - without u, 1 on z:    sqrt(|b|^4 + y^2 |b|^2) <= sqrt(B^4 + B^2 Y^2).
  Without an intercept n is one more coordinate, worth 1; with one it is in bb' already, and if n is called public
  its 1 is taken off. All are attained by a row with |x| = R, |y| = Y, hence tight.

**replace-one.** Rows (b, y) and (b', y') and s = b.b'; n cancels.
  - with u: |vv' - v'v''|_F^2 = |v|^4 + |v'|^4 - 2 (v.v')^2 <= 2 (B^2 + Y^2)^2. Equality iff both norms are full and
    v.v' = 0.
  - without u: g = |b|^4 + |b'|^4 - 2 s^2 + y^2|b|^2 + y'^2|b'|^2 - 2 y y' s. For any s,
    -2 s^2 - 2 y y' s <= (y y')^2 / 2 (complete the square), so g <= 2 B^4 + 2 B^2 Y^2 + Y^4 / 2 = 2 (B^2 + Y^2/2)^2.
    Equality iff norms are full, |y| = |y'| = Y and s = -y y' / 2, which needs Y^2 / 2 <= B^2.
    If Y^2 > 2 B^2: g is convex in y and in y', so both are at +-Y, and as far as a bound goes y = -y' (else turn b'
    into -b'). With beta = |b|, beta' = |b'| and |s| <= beta beta' <= B^2, dg/ds = 2 Y^2 - 4 s >= 0: s = beta beta',
    and g <= p^2 (m^2 + Y^2) with p = beta + beta', m = beta - beta', p <= 2B - |m|. Its derivative in m on that
    edge has the sign of -2 m^2 + 2 B m - Y^2, whose discriminant 4 B^2 - 8 Y^2 is negative: m = 0, g <= 4 B^2 Y^2.
  Public n with an intercept: the change of n is 0 here, nothing to take off.

L1 (Laplace), the sum over released entries of what each can move by: for replace-one the width of the entry's
interval, for add-remove its largest size, by interval arithmetic over x_i in [lowest_i, min(1, R)], y in [-1, 1]; two
indicators of one column are never both 1, so their product is 0. Where the ball is small, a block has a second bound:
with l1 = max |x|_1 <= min(c, R sqrt c) for c columns (of each one feature at most is not 0),  sum_{i<=j} |x_i x_j| =
(|x|_1^2 + |x|_2^2) / 2 <= (l1^2 + R^2) / 2, sum_i |x_i| <= l1, sum_i |x_i y| <= l1; a replacement moves a block by at
most twice that. Each block takes the smaller.

A replacement has a third bound, for all entries at once, and mostly the least. With p = w + w' and m = w - w' the
change of A is D = (pm' + mp') / 2, so sum_ij |D_ij| <= |p|_1 |m|_1 <= K^2 where K bounds (|p|_1 + |m|_1) / 2, the sum
of max(|w_i|, |w'_i|): 1 for the constant and for y, at most min(1, R) for a number, twice that for a column of three
or more levels (two rows can light two indicators), and for all of x, with e features that two rows can light, at most
sqrt(2 e) R (Cauchy-Schwarz twice, with |p|^2 + |m|^2 = 2 |w|^2 + 2 |w'|^2). A unique entry off the diagonal is
counted twice in that sum, one on it once, so the released entries move by at most (K^2 + diagonal) / 2, where |D_ii|
<= max(w_i^2, w'_i^2) and D_00 = 0.

All of this is for the plain Gram matrix. ``blocks.py`` has what else a study can release, proofs and all.
"""

import math
from dataclasses import dataclass
from typing import Literal

from noisewise.layout import BlockName, Layout
from noisewise.privacy import blocks
from noisewise.study import Adjacency, Study


@dataclass(frozen=True)
class Sensitivity:
    """The most that one person can change the weighted statistics, and whether some pair of tables attains it."""

    value: float
    norm: Literal["L1", "L2"]
    tight: bool


def sensitivity(study: Study, block: BlockName | None = None) -> Sensitivity:
    """The sensitivity, in scaled units, that the study's mechanism needs for a block; by default for the first."""
    laplace = study.mechanism == "laplace"
    radius, public_n = _settled(study)
    if block == "eigenvalue":
        value, tight = blocks.eigenvalue(study, radius), False
    elif block == "fourth":
        value, tight = (blocks.fourth_l1 if laplace else blocks.fourth_l2)(study, radius), False
    elif study.statistics == "spread":
        value = (blocks.spread_l1 if laplace else blocks.spread_l2)(study, radius, public_n)
        tight = not laplace and not study.shrinks
    elif study.average_rows > 1:
        value, tight = (blocks.averaged_l1 if laplace else blocks.averaged_l2)(study, radius), False
    elif laplace:
        value, tight = l1(study), False
    else:
        value, tight = _gram_l2(study, radius, public_n), _l2_is_tight(study, radius)
    return Sensitivity(value, "L1" if laplace else "L2", tight)


def _gram_l2(study: Study, radius: float, public_n: bool) -> float:
    return l2(
        radius=radius,
        target=1.0,
        intercept=study.intercept,
        release_yy=study.release_yy,
        adjacency=study.adjacency,
        public_n=public_n,
    )


def l2(
    *,
    radius: float,
    target: float,
    intercept: bool,
    release_yy: bool,
    adjacency: Adjacency,
    public_n: bool = True,
) -> float:
    """The L2 sensitivity for |x| <= radius and |y| <= target; the proof is in the module's text."""
    b2 = radius**2 + (1.0 if intercept else 0.0)
    y2 = target**2
    if adjacency == "add-remove":
        square = (b2 + y2) ** 2 if release_yy else b2**2 + b2 * y2
        in_matrix, released = (1.0 if intercept else 0.0), (0.0 if public_n else 1.0)
        return math.sqrt(square - in_matrix + released)
    if release_yy:
        return math.sqrt(2.0) * (b2 + y2)
    if y2 <= 2.0 * b2:
        return math.sqrt(2.0) * (b2 + y2 / 2.0)
    return 2.0 * math.sqrt(b2 * y2)


def _l2_is_tight(study: Study, radius: float) -> bool:
    """Whether two rows of this study are known to attain the L2 bound (target bound 1)."""
    if study.adjacency == "add-remove":
        return True
    numeric = all(feature.level is None for feature in study.encoded)
    constant = 1.0 if study.intercept else 0.0
    # v.v' = 0 or s = -y y'/2 asks for x.x' = inner, either sign of y y' = 1
    inner = [-constant - sign for sign in (1, -1)] if study.release_yy else [-constant - sign / 2 for sign in (1, -1)]
    if study.d >= 2 and numeric and radius <= 1.0:  # the whole sphere lies in the box
        return any(abs(value) <= radius**2 for value in inner)
    if numeric and not study.shrinks:  # only corners have the full norm: x.x' is d - 2k
        return any(abs(value) <= study.d and (study.d - value) % 2 == 0 for value in inner)
    return False


def l1(study: Study) -> float:
    """The L1 sensitivity of the released entries; the proof is in the module's text."""
    radius, public_n = _settled(study)
    replace = study.adjacency == "replace-one"
    y = study.d + 1
    largest = min(1.0, radius)
    interval = [(1.0, 1.0), *((max(f.lowest, -largest), largest) for f in study.encoded), (-1.0, 1.0)]
    boxes = {"n": 0.0, "sum x": 0.0, "S": 0.0, "sum y": 0.0, "z": 0.0, "u": 0.0}
    for i, j in Layout.of(study).pairs:
        if i == j == 0:
            boxes["n"] += 0.0 if replace or public_n else 1.0
            continue
        low, high = _product(interval[i], interval[j], same=i == j)
        if 0 < i < j < y and study.encoded[i - 1].column == study.encoded[j - 1].column:
            low = high = 0.0
        block = "u" if i == y else ("sum y" if i == 0 else "z") if j == y else "sum x" if i == 0 else "S"
        boxes[block] += high - low if replace else max(abs(low), abs(high))
    times = 2.0 if replace else 1.0
    norm1 = blocks.largest_l1(study, radius)
    balls = {"sum x": times * norm1, "S": times * (norm1**2 + radius**2) / 2, "z": times * norm1}
    by_block = sum(min(value, balls.get(block, value)) for block, value in boxes.items())
    return min(by_block, _l1_of_a_replacement(study, radius)) if replace else by_block


def _l1_of_a_replacement(study: Study, radius: float) -> float:
    """The bound for all entries at once, by D = (pm' + mp') / 2."""
    largest = min(1.0, radius)
    k = (1.0 if study.intercept else 0.0) + blocks.largest_of_two(study, radius) + 1.0
    diagonal = min(blocks.lit(study) * largest**2, 2.0 * radius**2) + (1.0 if study.release_yy else 0.0)
    return (k**2 + diagonal) / 2.0


def _product(a: tuple[float, float], b: tuple[float, float], *, same: bool) -> tuple[float, float]:
    corners = [p * q for p in a for q in b] if not same else [p * p for p in a]
    low = 0.0 if same and a[0] <= 0.0 <= a[1] else min(corners)
    return low, max(corners)


def _settled(study: Study) -> tuple[float, bool]:
    if study.radius is None or study.public_n is None:
        raise AssertionError("a study settles its radius and public_n at birth")
    return study.radius, study.public_n
