"""How numbers are printed."""

import math

import pytest

from noisewise.cli.show import beside, budget, count, number, plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.000"),
        (-12.3456, "-12.35"),
        (123456.7, "123,457"),
        (0.000123456, "0.0001235"),
        (1.23e-9, "1.230e-09"),
        (4.5e12, "4.500e+12"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_numbers_have_the_decimals_of_their_uncertainty() -> None:
    assert beside(0.029, 0.48123, 0.029) == ["0.481", "0.029"]
    assert beside(4.2, 79.96, 4.2) == ["80.0", "4.2"]
    assert beside(123.0, 4567.8) == ["4,568"]
    assert beside(0.0, 1.5) == ["1.500"]


def test_small_words() -> None:
    assert plain(3.0) == "3"
    assert plain(0.94096, 3) == "0.941"
    assert budget(1.0, 1e-6) == "epsilon 1, delta 1e-06"
    assert budget(0.5, 0.0) == "epsilon 0.5 (pure)"
    assert count(1, "entry", "entries") == "1 entry"
    assert count(2000, "row") == "2,000 rows"
