r"""The sensitivities of what a study can release beyond the plain Gram matrix, each beside its proof.

Notation as in sensitivity.py: |x| <= R, each |x_i| <= rho = min(1, R), |y| <= 1, B^2 = max |b|^2 for b = (1, x) or x.
Two rows x, x' have m = x - x' and p = x + x'; for numbers in [-rho, rho], |m| + |p| <= 2 rho. "lit" counts the
coordinates that two rows can have different from 0: one for a number, two for a column of three or more levels.

**Spread** (per column the sum and the sum of squares; weights 1 and c).
  *L2, replace-one.* A number moves (x, c x^2) by m^2 (1 + c^2 p^2), squared. With |p| <= 2 - |m| this is at most 4
  for all m if c^2 <= (2 + m) / (m^2 (2 - m)) on (0, 2); the derivative of that vanishes where m^2 + 2m = 4, at m =
  sqrt 5 - 1, and the least value is phi^5 / 4 = 2.77, phi the golden ratio: that is c^2, and the squares cost
  nothing. With rho < 1 put x = rho t: rho^2 m^2 (1 + c^2 rho^2 p^2) <= 4 rho^2. An indicator of two levels lies in
  [0, rho]: there m^2 (1 + c^2 (2 rho - m)^2) grows with m up to m = rho (its derivative is 2m (1 + 2 c^2 (2 rho -
  m)(rho - m)) >= 0), which gives rho^2 + c^2 rho^4; two indicators of one column, each from 0, twice that. Columns
  add up. The ball has a second bound: |m|^2 <= 4 R^2, and the vectors of squares a, a' >= 0 have |a - a'|^2 <= |a|^2
  + |a'|^2 <= 2 rho^2 R^2. Without a radius all columns attain their bounds at once, so it is tight.
  *L2, add-remove.* x_i^2 + c^2 x_i^4 <= rho^2 + c^2 rho^4 a column (a row has one level), in the ball at most R^2 (1
  + c^2 rho^2) together; 1 + c^2 for y; 1 for n if that is released. Tight without a radius.
  *L1.* A number moves by m (1 + p) <= m (1 + 2 rho - m): (1/2 + rho)^2 if rho >= 1/2, else 2 rho; indicators rho +
  rho^2 each; in the ball at most 2 |x|_1 + 2 R^2. Add-remove: rho + rho^2 a column, in the ball |x|_1 + R^2.

**Fourth moments** (b tensor b tensor b tensor b without what the Gram matrix has; an entry's weight is the root of
how often it stands in the tensor, so that lengths are those of tensors).
  *L2.* With s = x.x' the tensors have <x^{(r)}, x'^{(r)}> = s^r, and degree 3 stands 4 times in b^{(4)}. Without an
  intercept a replacement moves |x|^8 + |x'|^8 - 2 s^4 <= 2 R^8, squared. With one, 4 (|x|^6 + |x'|^6 - 2 s^3) more:
  at most 8 R^6 + 2 R^8 - 8 s^3 - 2 s^4, whose derivative in s is -8 s^2 (3 + s), so s = -min(R^2, 3): 16 R^6, or 8
  R^6 + 2 R^8 + 54 where R^2 > 3. Adding a row: R^8, and 4 R^6 more with an intercept.
  *Truncation.* Products of two are cut to units of 2^-q (gram.py), so an entry is off by at most 2 2^-q, and all of
  them by at most 2 2^-q times the root of the tensor's size, which is at most (d + 1)^2 or d^2. A replacement counts
  that twice. Adding a row does not: truncation makes every entry smaller in size.
  *L1.* Interval arithmetic, entry by entry: even powers of a number lie in [0, rho^e], odd ones in [-rho^e, rho^e],
  and a product that holds two indicators of one column is 0. All intervals contain 0, so truncation does not leave
  them. In the ball a second bound. A row has at most one feature a column that is not 0; let w_e be how often a product
  e of degree r of those stands in the tensor. By Cauchy and Schwarz sum_e |x^e| <= (sum_e 1 / w_e)^(1/2) (sum_e w_e
  x^{2e})^(1/2), and the last root is |x|^r <= R^r. A replacement moves by at most twice that.

**Smallest eigenvalue** of S. A replacement changes S by bb' - b'b'', whose eigenvalues lie in [-B^2, B^2], being
between those of -b'b'' and of bb'; adding a row by bb'. By Weyl no eigenvalue of S moves by more. What is released is
the last point of a grid of 2^-q below it (eigenvalue.py), which moves by less than that and one step of the grid.

**Averaged rows** (the matrix of sums s of k rows, *not* divided by k^2). (000, B.1 says that averages have the
sensitivity of rows. They don't: with d = 1 and all other rows at 1, moving one from 1 to -1 changes s^2 / k by 4 -
4/k, a row's x^2 by at most 1.) A replacement changes s by m = b - b', and p = s + s' = 2 r + b + b' where r, the sum
of the other rows, is at most k - 1 times as long as a row can be. D = (pm' + mp') / 2, so |D|^2 = (|p|^2 |m|^2 +
(p.m)^2) / 2.
  *L2.* The constant is 2k in p and 0 in m; let U^2 = R^2 + 1 bound |(x, y)|^2. As |b + b'|^2 + |m|^2 <= 4 U^2 there
  is an angle a with |m| <= 2 U sin a and the rest of p at most 2 U (k - 1 + cos a). So |D|^2 <= 8 k^2 U^2 [with an
  intercept] + 16 U^4 f^2 with f the largest (k - 1 + cos a) sin a, where 2 cos^2 a + (k - 1) cos a = 1.
  *L1.* sum_ij |D_ij| <= |p|_1 |m|_1 with |m|_1 <= 2 N, N = max |(x, y)|_1, and |p|_1 <= 2k [intercept] + 2 (k - 1) N
  + 2 K - |m|_1 where K bounds the sum of max(|b_i|, |b'_i|) over x and y; the diagonal has |D_ii| <= 2k |m_i|. The
  unique entries move by half of both sums, a parabola in |m|_1.
"""

import math
from collections import Counter
from itertools import combinations_with_replacement

from noisewise.layout import SPREAD_WEIGHT_SQUARED, Layout, orders
from noisewise.study import Study


def lit(study: Study) -> int:
    """How many features two rows can have different from 0."""
    return sum(1 if column.kind != "categorical" else min(2, len(column.levels) - 1) for column in study.features)


def largest_l1(study: Study, radius: float) -> float:
    """The largest |x|_1."""
    columns = len(study.features)  # of each one feature at most is not 0
    return min(float(columns), radius * math.sqrt(columns))


def largest_of_two(study: Study, radius: float) -> float:
    """The largest sum over features of max(|x_i|, |x'_i|)."""
    return min(min(1.0, radius) * lit(study), math.sqrt(2.0 * lit(study)) * radius)


def spread_l2(study: Study, radius: float, public_n: bool) -> float:
    c2, rho = SPREAD_WEIGHT_SQUARED, min(1.0, radius)
    indicator = rho**2 + c2 * rho**4
    if study.adjacency == "add-remove":
        features = min(len(study.features) * indicator, radius**2 * (1 + c2 * rho**2))
        return math.sqrt(features + 1 + c2 + (0.0 if public_n else 1.0))
    numbers = sum(column.kind != "categorical" for column in study.features)
    box = 4 * rho**2 * numbers + (lit(study) - numbers) * indicator
    return math.sqrt(min(box, radius**2 * (4 + 2 * c2 * rho**2)) + 4)


def spread_l1(study: Study, radius: float, public_n: bool) -> float:
    rho, norm1 = min(1.0, radius), largest_l1(study, radius)
    if study.adjacency == "add-remove":
        features = min(len(study.features) * (rho + rho**2), norm1 + radius**2)
        return features + 2.0 + (0.0 if public_n else 1.0)
    numbers = sum(column.kind != "categorical" for column in study.features)
    number = (0.5 + rho) ** 2 if rho >= 0.5 else 2 * rho
    return min(numbers * number + (lit(study) - numbers) * (rho + rho**2), 2 * norm1 + 2 * radius**2) + 2.25


def fourth_l2(study: Study, radius: float) -> float:
    r6, r8 = radius**6, radius**8
    if study.adjacency == "add-remove":
        return math.sqrt(r8 + (4 * r6 if study.intercept else 0.0))
    truncation = math.ldexp(2.0 * (study.d + study.intercept) ** 2, -study.bits)
    if not study.intercept:
        return math.sqrt(2.0 * r8) + 2 * truncation
    return math.sqrt(16 * r6 if radius**2 <= 3.0 else 8 * r6 + 2 * r8 + 54.0) + 2 * truncation


def fourth_l1(study: Study, radius: float) -> float:
    replace = study.adjacency == "replace-one"
    boxes = {3: 0.0, 4: 0.0}
    for entry in Layout.of(study).blocks[1].entries:
        powers = Counter(i for i in entry if i)
        width = _width(study, powers, min(1.0, radius), replace)
        boxes[powers.total()] += width
    # at most one feature a column is not 0
    inverse = {r: sum(1 / orders(e) for e in combinations_with_replacement(study.features, r)) for r in boxes}
    return sum(min(box, (2 if replace else 1) * radius**r * math.sqrt(inverse[r])) for r, box in boxes.items())


def _width(study: Study, powers: Counter[int], rho: float, replace: bool) -> float:
    """What a product of powers of features can move by: its interval's length, or its largest size."""
    features = [study.encoded[i - 1] for i in powers]
    columns = [feature.column for feature in features]
    if len(set(columns)) < len(columns):
        return 0.0
    size = rho ** powers.total()
    signed = any(feature.lowest < 0 and power % 2 for feature, power in zip(features, powers.values(), strict=True))
    return 2 * size if replace and signed else size


def eigenvalue(study: Study, radius: float) -> float:
    return radius**2 + (1.0 if study.intercept else 0.0) + math.ldexp(1.0, -study.bits)


def averaged_l2(study: Study, radius: float) -> float:
    k, u2 = study.average_rows, radius**2 + 1.0
    cosine = (math.sqrt((k - 1) ** 2 + 8) - (k - 1)) / 4
    f = (k - 1 + cosine) * math.sqrt(1 - cosine**2)
    return math.sqrt((8 * k**2 * u2 if study.intercept else 0.0) + 16 * u2**2 * f**2)


def averaged_l1(study: Study, radius: float) -> float:
    k, constant = study.average_rows, 1.0 if study.intercept else 0.0
    norm1 = largest_l1(study, radius) + 1.0
    both = largest_of_two(study, radius) + 1.0
    total = 2 * k * constant + 2 * (k - 1) * norm1 + 2 * both + 2 * k
    m = min(2 * norm1, total / 2)
    return (total - m) * m / 2
