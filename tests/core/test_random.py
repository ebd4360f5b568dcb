"""Normal noise as a function of (key, row, column) (R1)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats

from farrier.core import random
from farrier.core.random import box_muller, fold_in, start_noise, threefry

ROWS, COLUMNS = 4_000, 50
noise = jax.jit(random.normals)


def normals(key, *, precision="float64"):
    """Both outputs for a block of rows and columns, as NumPy arrays."""
    with jax.enable_x64(precision == "float64"):
        pair = noise(jnp.arange(ROWS), jnp.arange(COLUMNS), key=key)
        assert {str(z.dtype) for z in pair} == {precision}
        return [np.asarray(z, np.float64) for z in pair]


def assert_uncorrelated(a, b):
    """The correlation of n independent pairs has standard deviation 1 / sqrt(n)."""
    for f in (np.asarray, np.abs):  # dependence may hide in the sizes
        correlation = np.corrcoef(f(a).ravel(), f(b).ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(a.size)


def test_threefry_with_20_rounds_is_that_of_jax(getkey):
    """Bit for bit the generator of `jax.random` (R1)."""
    key = jr.key_data(getkey())
    counters = jr.bits(getkey(), (2, 1000), jnp.uint32)
    ours = threefry(key[0], key[1], counters[0], counters[1], rounds=20)
    theirs = threefry_2x32(key, counters.ravel()).reshape(2, -1)
    assert jnp.array_equal(jnp.stack(ours), theirs)


# Lines `threefry2x32` of Random123's own tests/kat_vectors: counter, key, answer.
ZEROS, ONES = (0, 0), (0xFFFFFFFF, 0xFFFFFFFF)
PI, MORE_PI = (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344)
KNOWN_ANSWERS = [
    (13, ZEROS, ZEROS, (0x9D1C5EC6, 0x8BD50731)),
    (13, ONES, ONES, (0xFD36D048, 0x2D17272C)),
    (13, PI, MORE_PI, (0xBA3E4725, 0xF27D669E)),
    (20, PI, MORE_PI, (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("rounds", "counter", "key", "answer"), KNOWN_ANSWERS)
def test_threefry_gives_the_known_answers(rounds, counter, key, answer):
    """The words published with the generator (R1)."""
    words = (jnp.uint32(word) for word in (*key, *counter))
    assert tuple(map(int, threefry(*words, rounds=rounds))) == answer


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("output", [0, 1])
def test_normals_are_standard_normal(getkey, output, precision):
    """Moments to the fourth within five standard errors, and the whole law (R1)."""
    z = normals(getkey(), precision=precision)[output].ravel()
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs((z**power).mean() - moment) < 5 * np.sqrt(variance / z.size)
    assert stats.kstest(z, "norm").pvalue > 1e-6


def test_normals_are_independent_of_one_another(getkey):
    """Outputs, neighbouring rows, neighbouring columns, keys of two steps (R1)."""
    key = getkey()
    this_step, next_step = (normals(jr.fold_in(key, i)) for i in (7, 8))
    assert_uncorrelated(*this_step)
    for z, later in zip(this_step, next_step, strict=True):
        assert_uncorrelated(z[1:], z[:-1])
        assert_uncorrelated(z[:, 1:], z[:, :-1])
        assert_uncorrelated(z, later)


def test_a_sum_over_columns_and_one_over_rows_are_normal(getkey):
    """Dependence of many entries at once would change the variance of a sum (R1)."""
    for z in normals(getkey()):
        for axis in (0, 1):
            sums = z.sum(axis) / np.sqrt(z.shape[axis])
            assert stats.kstest(sums, "norm").pvalue > 1e-6


def test_noise_of_an_entry_depends_on_its_own_numbers_alone(getkey):
    """Equal bits whatever else is asked for with it, and other bits elsewhere (R1)."""
    key = getkey()
    whole = jnp.stack(noise(jnp.arange(40), jnp.arange(9), key=key))
    rows, columns = jnp.array([31, 2, 2, 17]), jnp.array([8, 0, 5])
    part = jnp.stack(noise(rows, columns, key=key))
    assert jnp.array_equal(part, whole[:, rows][:, :, columns])
    assert np.unique(whole).size == whole.size
    other_key = jnp.stack(noise(rows, columns, key=jr.fold_in(key, 0)))
    assert not (other_key == part).any()


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float64", 1e-7), ("float32", 5e-7)]
)
def test_polynomial_sine_and_cosine(precision, tolerance):
    """cos(pi v) and sin(pi v) over the whole of [-1, 1], ends included (R1)."""
    v = np.linspace(-1, 1, 20_001, dtype=precision)
    with jax.enable_x64(precision == "float64"):
        cosine, sine = random._cos_sin_pi(jnp.asarray(v))
    exact = np.pi * v.astype(np.float64)
    np.testing.assert_allclose(cosine, np.cos(exact), rtol=0, atol=tolerance)
    np.testing.assert_allclose(sine, np.sin(exact), rtol=0, atol=tolerance)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_box_muller_by_hand(precision):
    """r = sqrt(-2 ln u) at angle pi v, also at both ends of the 32-bit words (R1)."""
    bits0 = np.array([0, 1, 2**31, 2**32 - 1, 0xDEADBEEF, 12345], np.uint32)
    bits1 = np.array([0, 2**31, 2**31 - 1, 2**32 - 1, 0xC0FFEE00, 2**30], np.uint32)
    with jax.enable_x64(precision == "float64"):
        actual = box_muller(jnp.asarray(bits0), jnp.asarray(bits1))
    u = (np.floor(bits0 / 2) + 0.5) / 2**31
    v = np.where(bits1 < 2**31, bits1, bits1 - 2.0**32) / 2**31
    radius = np.sqrt(-2 * np.log(u))
    expected = radius * np.cos(np.pi * v), radius * np.sin(np.pi * v)
    # In float32 the largest u rounds to 1, whose radius is 0 and not 2e-5.
    tolerance = {"float64": 1e-6, "float32": 3e-5}[precision]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def test_fold_in_is_that_of_jax(getkey):
    """Bit for bit, also inside a compiled program."""
    key = getkey()
    for number in (0, 1, 7, 2**32 - 1):
        expected = jr.key_data(jr.fold_in(key, number))
        for fold in (fold_in, jax.jit(lambda key, n: fold_in(key, n))):
            np.testing.assert_array_equal(jr.key_data(fold(key, number)), expected)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (16, 9), (1_025,), (3, 700)])
def test_start_noise_has_the_bits_of_jax(shape, getkey):
    """Whether it is traced or not, and whatever the size that is compiled."""
    key = getkey()
    expected = np.asarray(jr.normal(key, shape))
    np.testing.assert_array_equal(start_noise(shape, key=key), expected)
    traced = jax.jit(lambda key: start_noise(shape, key=key))(key)
    np.testing.assert_array_equal(traced, expected)
