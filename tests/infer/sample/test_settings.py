"""Settings of the MCMC refinement, and what is reported of it."""

import pytest

from farrier.infer.sample.moves import MclmcMoves, NutsMoves
from farrier.infer.sample.settings import REFINEMENTS, Mclmc, Nuts, Sampling


@pytest.mark.parametrize(
    "field", ["candidates", "chains", "warm_up", "draws", "effective", "kept", "depth"]
)
def test_impossible_counts_are_refused(field):
    with pytest.raises(ValueError, match=f"`{field}` must be .*, got 0"):
        Nuts(**{field: 0})


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_impossible_energies_are_refused(value):
    with pytest.raises(ValueError, match=f"`energy` must be .*, got {value!r}"):
        Mclmc(energy=value)
    with pytest.raises(ValueError, match="`steps` must be a whole number from 1"):
        Mclmc(steps=0)


def test_iterations_come_in_whole_chunks():
    """25 at a time; the warm-up and the draws are rounded up by themselves."""
    assert Nuts(warm_up=150, draws=30).iterations == 150 + 50
    assert Nuts(warm_up=151, draws=25).iterations == 175 + 25


def test_methods_have_their_names_and_moves():
    assert {name: type(method) for name, method in REFINEMENTS.items()} == {
        "nuts": Nuts,
        "mclmc": Mclmc,
    }
    assert Nuts(depth=5).moves == NutsMoves(5)
    assert Mclmc(steps=7, energy=0.01).moves == MclmcMoves(7, 0.01)


def test_sampling_is_whole_with_all_draws_or_enough_effective_ones():
    sampling = Sampling(
        chains=2,
        draws=100,
        r_hat=1.034,
        effective_draws=150.4,
        acceptance=0.8,
        divergences=3,
        gradients=5_000,
        seconds=12.3,
    )
    assert sampling.is_whole(Nuts(draws=100, effective=1_000))
    assert sampling.is_whole(Nuts(draws=400, effective=150))
    assert not sampling.is_whole(Nuts(draws=400, effective=151))
    assert str(sampling) == (
        "2 chains of 100 draws, R-hat 1.03, 150 effective draws of a prediction, "
        "3 divergences, 12 s"
    )
