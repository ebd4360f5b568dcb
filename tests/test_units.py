"""Rows as the network sees them: merged, weighted, standardised."""

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.preprocessing import StandardScaler

from farrier.units import Moments, Sample, Standardiser, merge_rows, row_hashes

few_values = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e12])
tables = st.lists(
    st.tuples(few_values, few_values, st.sampled_from([0, 1, 2]), st.integers(0, 3)),
    min_size=1,
    max_size=12,
).filter(lambda rows: any(weight for *_, weight in rows))


def columns(rows):
    """Two inputs, a class and a whole weight for each row."""
    x = np.array([row[:2] for row in rows])
    return (
        x,
        np.array([row[2] for row in rows]),
        np.array([float(row[3]) for row in rows]),
    )


def weights_by_row(x, y, weight):
    """What merging must keep: how much weight each distinct row has."""
    total = {}
    for row, label, w in zip((x + 0.0).tolist(), y.tolist(), weight, strict=True):
        total[*row, label] = total.get((*row, label), 0) + w
    return {row: w for row, w in total.items() if w}


# --- merging ----------------------------------------------------------------------


@given(tables)
def test_merged_rows_are_distinct_and_keep_their_weights(rows):
    x, y, weight = columns(rows)
    merged = merge_rows(x, y, weight)
    expected = weights_by_row(x, y, weight)
    assert len(merged[0]) == len(merged[1]) == len(merged[2]) == len(expected)
    assert weights_by_row(*merged) == expected
    assert merged[1].dtype == y.dtype


@given(tables, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(rows, random):
    shuffled = random.sample(rows, len(rows))
    for ours, theirs in zip(
        merge_rows(*columns(rows)), merge_rows(*columns(shuffled)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@given(tables)
def test_a_weight_of_two_is_a_row_that_is_there_twice(rows):
    x, y, weight = columns(rows)
    repeats = weight.astype(int)
    twice = merge_rows(x.repeat(repeats, 0), y.repeat(repeats), np.ones(repeats.sum()))
    for ours, theirs in zip(merge_rows(x, y, weight), twice, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_rows_that_differ_in_a_target_stay_apart():
    x, y = np.ones((3, 1)), np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]])
    _, merged, weight = merge_rows(x, y, np.array([1.0, 1.0, 0.5]))
    assert dict(zip(merged[:, 1].tolist(), weight.tolist(), strict=True)) == {
        2: 1.5,
        3: 1,
    }


def test_rows_with_one_code_by_chance_are_left_as_they_are(monkeypatch):
    """A collision of hashes may not merge what differs."""
    monkeypatch.setattr("farrier.units._row_codes", lambda rows: np.zeros(len(rows)))
    x, y = np.arange(4.0)[:, None], np.arange(4)
    merged = merge_rows(x, y, np.array([1.0, 2.0, 0.0, 3.0]))
    np.testing.assert_array_equal(merged[0][:, 0], [0, 1, 3])
    np.testing.assert_array_equal(merged[2], [1, 2, 3])


# --- standardising ----------------------------------------------------------------


def test_weighted_mean_and_sd_are_those_of_repeated_rows():
    generator = np.random.default_rng(0)
    values = generator.lognormal(size=(30, 3)) * [1.0, 1e-6, 1e6]
    repeats = generator.integers(0, 4, 30)
    repeated = values.repeat(repeats, 0)
    standardiser = Standardiser.create(values, repeats.astype(float))
    np.testing.assert_allclose(standardiser.mean, repeated.mean(0), rtol=1e-12)
    np.testing.assert_allclose(standardiser.scale, repeated.std(0), rtol=1e-12)
    np.testing.assert_allclose(
        standardiser(repeated), StandardScaler().fit_transform(repeated), atol=1e-12
    )


@pytest.mark.parametrize("factor", [1e-300, 1e-12, 1.0, 1e12, 1e200, 1e300])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_units_do_not_matter(factor, shift):
    """Values of any size have the same standard units, and come back from them."""
    plain = np.random.default_rng(1).standard_normal((20, 2)) + shift
    weight = np.linspace(0.5, 1.5, 20)
    standardiser = Standardiser.create(factor * plain, weight)
    standard = standardiser(factor * plain)
    expected = Standardiser.create(plain, weight)(plain)
    np.testing.assert_allclose(standard, expected, rtol=1e-9)
    np.testing.assert_allclose(weight @ standard**2, weight.sum(), rtol=1e-12)
    np.testing.assert_allclose(standardiser.undo(standard), factor * plain, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e12, 1e20, -1e200, 1e300])
def test_a_constant_column_becomes_zero_and_comes_back(value):
    """Exactly, although the mean of seven equal numbers is not always that number."""
    values = np.column_stack([np.full(7, value), np.arange(7.0)])
    standardiser = Standardiser.create(values, np.array([1, 2, 1, 1, 0.3, 1, 0.7]))
    standard = standardiser(values)
    np.testing.assert_array_equal(standard[:, 0], 0)
    assert standard[:, 1].std() > 0.5
    np.testing.assert_array_equal(standardiser.undo(standard)[:, 0], value)
    assert standardiser.scale[0] == max(1, abs(value))


@pytest.mark.parametrize("value", [0.3, 1e12, 1e200])
def test_a_column_that_is_constant_up_to_rounding_is_constant(value):
    noise = 1 + 1e-16 * np.random.default_rng(2).integers(-3, 4, (50, 1))
    standardiser = Standardiser.create(value * noise, np.ones(50))
    assert np.abs(standardiser(value * noise)).max() < 1e-12


def test_a_small_signal_on_a_large_mean_is_kept():
    """1e-9 of the mean is far more than rounding."""
    values = 1e6 + 1e-3 * np.random.default_rng(3).standard_normal((50, 1))
    standard = Standardiser.create(values, np.ones(50))(values)
    np.testing.assert_allclose(standard.std(), 1, rtol=1e-9)


# --- piece by piece ---------------------------------------------------------------


def joined(x, weight, cuts):
    parts = [
        Moments.of(a, w)
        for a, w in zip(np.split(x, cuts), np.split(weight, cuts), strict=True)
    ]
    return reduce(Moments.joined, parts)


@pytest.mark.parametrize("centre", [0.0, 1e9, -1e15])
@pytest.mark.parametrize("cuts", [[], [1, 2, 3], [700], [0, 512, 999]])
def test_moments_of_pieces_are_those_of_all_rows(centre, cuts):
    """(D1) against exact sums of fractions, and against scikit-learn's own merging."""
    rng = np.random.default_rng(0)
    x = centre + rng.normal(size=(1_000, 2)) * [1, 40]
    weight = rng.integers(0, 3, 1_000).astype(float)
    found = joined(x, weight, cuts)
    rows = [[Fraction(v) for v in row] for row in x.tolist()]
    for column in range(2):
        total = sum(int(w) for w in weight)
        pairs = [(row[column], int(w)) for row, w in zip(rows, weight, strict=True)]
        mean = sum(v * w for v, w in pairs) / total
        square = sum((v - mean) ** 2 * w for v, w in pairs) / total
        assert found.mean[column] == pytest.approx(float(mean), rel=1e-15)
        assert found.sd[column] == pytest.approx(float(square) ** 0.5, rel=1e-10)
    theirs = StandardScaler()
    for part, w in zip(np.split(x, cuts), np.split(weight, cuts), strict=True):
        if w.any():
            theirs.partial_fit(part - centre, sample_weight=w)
    assert found.sd == pytest.approx(theirs.scale_, rel=1e-10)
    assert found.weight == weight.sum()


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e20, 1e200])
def test_units_of_pieces_are_those_of_all_rows(size):
    """Also of huge values, and of a column that is constant."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.normal(size=300), np.full(300, 0.1)]) * size
    weight = rng.uniform(size=300)
    ours = joined(x, weight, [10, 200]).standardiser()
    theirs = Standardiser.create(x, weight)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.scale, theirs.scale, rtol=1e-12)
    assert (ours(x)[:, 1] == 0).all()


def test_a_sample_does_not_depend_on_the_pieces():
    rows = np.arange(5_000)
    kept = []
    for cuts in ([], [1, 17, 3_000], range(100, 5_000, 100)):
        sample = Sample(200)
        for part in np.split(rows, cuts):
            sample.add(part, part[:, None])
        kept.append(np.concatenate(sample.parts)[:, 0])
    assert len(kept[0]) == 200
    np.testing.assert_array_equal(kept[0], kept[1])
    np.testing.assert_array_equal(kept[0], kept[2])
    assert stats.kstest(kept[0] / 5_000, "uniform").pvalue > 1e-3


def test_row_hashes_are_uniform_and_each_seed_has_its_own():
    rows = np.arange(20_000)
    assert stats.kstest(row_hashes(rows, 0), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(row_hashes(rows, 0), row_hashes(rows, 1))[0, 1]) < 0.03
    np.testing.assert_array_equal(
        row_hashes(rows[50:60], 3), row_hashes(rows, 3)[50:60]
    )
