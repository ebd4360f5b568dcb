"""A number beside a published one is better, level or worse."""

import math
from fractions import Fraction

import pytest

from experiments._cells import VERDICTS, Cell


def verdict(ours, theirs, errors=(math.nan, math.nan), **other):
    settings = {"more_is_better": True, "decimals": 2} | other
    return Cell("wine", ours, errors[0], theirs, errors[1], **settings).verdict


@pytest.mark.parametrize(
    ("errors", "difference", "expected"),
    [
        ((3.0, 4.0), 4.99, "level"),  # the errors combine to 5
        ((3.0, 4.0), 5.0, "level"),
        ((3.0, 4.0), 5.01, "better"),
        ((3.0, 4.0), -5.0, "level"),
        ((3.0, 4.0), -5.01, "worse"),
        ((3.0, math.nan), 3.0, "level"),
        ((3.0, math.nan), 3.01, "better"),
        ((math.nan, 4.0), -4.0, "level"),
        ((math.nan, 4.0), -4.01, "worse"),
        ((math.nan, math.nan), 0.01, "better"),
        ((0.0, 0.0), -0.01, "worse"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_level_is_within_one_combined_standard_error(
    errors, difference, expected, sign
):
    # `theirs` is 0, so that the difference is not rounded.
    for more_is_better in (True, False):
        wanted = expected
        if more_is_better != (sign == 1) and expected != "level":
            wanted = "worse" if expected == "better" else "better"
        found = verdict(sign * difference, 0.0, errors, more_is_better=more_is_better)
        assert found == wanted


def test_level_is_also_what_is_printed_alike():
    assert verdict(0.634, 0.63) == "level"
    assert verdict(0.6255, 0.63) == "level"
    assert verdict(0.636, 0.63) == "better"
    assert verdict(0.636, 0.63, more_is_better=False) == "worse"
    assert verdict(0.624, 0.63, more_is_better=False) == "better"
    assert verdict(0.6304, 0.63, decimals=3) == "level"
    assert verdict(0.634, 0.63, decimals=3) == "better"
    assert verdict(-0.001, 0.0) == "level"
    assert verdict(5.2, 5.0, decimals=0) == "level"


def test_the_rule_is_that_of_exact_arithmetic():
    """Against squares of fractions, which need no root and no rounding."""
    seen = set()
    for k in range(-20, 21):
        for a, b in ((1, 2), (5, 12), (6, 8)):
            ours, own, their = k / 2, a / 4, b / 4  # exact in binary
            difference = Fraction(k, 2)
            level = difference**2 <= Fraction(a, 4) ** 2 + Fraction(b, 4) ** 2
            expected = "level" if level else "better" if k > 0 else "worse"
            assert verdict(ours, 0.0, (own, their)) == expected
            seen.add(expected)
    assert seen == {*VERDICTS}


def test_what_is_not_a_number_is_worse():
    for ours in (math.nan, math.inf, -math.inf):
        for more_is_better in (True, False):
            assert verdict(ours, 1.0, (9.0, 9.0), more_is_better=more_is_better) == (
                "worse"
            )


def test_what_is_published_is_a_number():
    with pytest.raises(ValueError, match=r"wine: `theirs` must be .* got nan"):
        verdict(1.0, math.nan)
