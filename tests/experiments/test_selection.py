"""What an objective chooses, what that costs, and the bounds on the log evidence."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from experiments import _evidence, selection
from farrier import Gaussian, GaussianNoise
from farrier.core.scales import ExactHalfCauchy, HalfCauchy
from farrier.fitted import Sample
from farrier.infer.sample.target import Target, start_of
from farrier.model.network import Network

ROWS = 6


@pytest.fixture
def network(getkey):
    likelihood = GaussianNoise(shape=2.0, rate=1.0).build(1, rows=ROWS)
    return Network.create(1, (2,), likelihood, Gaussian(), key=getkey())


@pytest.fixture
def sample():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(ROWS, 1)), random.normal(size=(ROWS, 1))
    return Sample(x, y, np.ones(ROWS))


def target_of(network, sample):
    return Target(network, *map(jnp.asarray, (sample.x, sample.y, sample.weight)))


def test_the_density_of_rows_is_normalised(network, sample, getkey):
    """ln p(y | theta) against a quadrature over the noise precision (H2)."""
    target = target_of(network, sample)
    point = start_of(network, key=getkey())
    _, found = _evidence.log_parts(target, point)
    error = sample.y - np.asarray(target.sampled(point)(target.x))

    def density(gamma):
        rows = stats.norm.pdf(error, scale=gamma**-0.5).prod()
        return stats.gamma.pdf(gamma, 2.0, scale=1.0) * rows

    expected = math.log(integrate.quad(density, 0, 60, limit=400)[0])
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_log_q_is_that_of_scipy(network, getkey):
    point = start_of(network, key=getkey())
    expected = 0.0
    for layer, each in zip(network.named_layers().values(), point, strict=True):
        for q, v in (
            (layer.weights.kernel, each.kernel),
            (layer.weights.bias, each.bias),
            (layer.scales["kappa"].q, each.log_scales["kappa"]),
        ):
            expected += stats.norm.logpdf(v, q.loc, np.exp(q.log_scale)).sum()
    assert float(_evidence.log_q(network, point)) == pytest.approx(expected, rel=1e-9)


def test_one_draw_is_the_exact_elbo_but_for_the_noise(network, sample):
    """E ln p / q of draws is less the exact KL terms; ln w is over the ELBO."""
    exact = _evidence.under(network, ExactHalfCauchy)
    target = target_of(exact, sample)

    def log_ratio(key):
        point = start_of(exact, key=key)
        return _evidence.log_parts(target, point)[0] - _evidence.log_q(exact, point)

    ratios = np.asarray(jax.vmap(log_ratio)(jr.split(jr.key(1), 20_000)))
    kl = exact.kl(key=jr.key(0))
    noise = kl.pop("noise/gamma")
    error = ratios.std() / math.sqrt(len(ratios))
    assert abs(ratios.mean() + sum(kl.values())) < 5 * error

    terms, log_weights = map(
        np.asarray,
        _evidence.sampled_terms(exact, sample, 1_000, 1_000, key=jr.key(0)),
    )
    elbo = terms.mean() - sum(kl.values()) - noise
    error = math.hypot(terms.std(), log_weights.std()) / math.sqrt(1_000)
    assert log_weights.mean() > elbo - 5 * error


def test_bounds_rise_with_the_number_of_draws():
    log_weights = np.random.default_rng(0).normal(-3, 2, 10_000)
    bounds = [_evidence.importance_bound(log_weights, k)[0] for k in (1, 10, 10_000)]
    assert bounds[0] == pytest.approx(-3, abs=0.1)
    assert bounds == sorted(bounds)
    assert bounds[2] == pytest.approx(-3 + 2, abs=0.3)  # ln E w = mean + variance / 2
    assert _evidence.effective(np.zeros(7)) == pytest.approx(7)
    assert _evidence.effective(np.array([0.0, -800.0])) == pytest.approx(1)


def test_both_forms_differ_in_the_kl_of_scales_alone(network):
    kls = [
        _evidence.under(network, form).kl(key=jr.key(0))
        for form in (HalfCauchy, ExactHalfCauchy)
    ]
    for name, value in kls[0].items():
        assert (value > kls[1][name]) == name.endswith("kappa")


def test_annealed_chains_agree_with_draws_of_the_prior(network, sample):
    """ln E_prior p(y | theta), of few rows, by two ways."""
    target = target_of(network, sample)

    def log_likelihood(key):
        return _evidence.log_parts(target, _evidence.prior_draw(network, key=key))[1]

    plain = jax.lax.map(log_likelihood, jr.split(jr.key(1), 20_000), batch_size=1_000)
    sizes = _evidence.step_sizes(target, 100, 40, key=jr.key(2))
    weights = _evidence.annealed_weights(target, 100, sizes, key=jr.key(3))
    expected, found = _evidence.log_mean(plain), _evidence.log_mean(weights)
    share = np.exp(np.asarray(weights) - found)
    error = share.std() / math.sqrt(len(share))
    assert abs(found - expected) < 5 * error + 0.05
    assert error < 0.2


def fit(width, elbo, density, **more):
    row = {"data": "cubic", "replicate": 0, "prior": "horseshoe", "form": "exact"}
    row |= {"annealing": 0.2, "width": width, "log_density": density, "nodes_on": 2}
    row |= {"iwae_1": elbo, "elbo_error": 0.1, "weight_sd": 1.0, "effective": 3.0}
    return row | dict.fromkeys(selection.OBJECTIVES, elbo) | more


@pytest.fixture
def rows():
    """The ELBO prefers narrow networks and no annealing; tests the opposite."""
    return [
        fit(width, 10.0 - width - 15 * annealing, density - 3 * (not annealing))
        | {"replicate": seed, "annealing": annealing}
        for seed in range(3)
        for annealing in (0.2, 0.0)
        for width, density in ((2, -3.2 - 0.01 * seed), (10, -3.0))
    ]


def test_a_loss_is_that_of_the_choice_against_the_best():
    fits = [fit(2, 5.0, -3.5), fit(10, 4.0, -3.0), fit(50, 1.0, -4.0)]
    assert selection.loss(fits, "elbo_exact") == pytest.approx(0.5)
    assert selection.chance(fits) == pytest.approx(0.5)
    assert selection.rank_correlation(fits, "elbo_exact") == pytest.approx(0.5)


def test_fits_of_one_set_differ_in_what_is_chosen_alone(rows):
    sets = selection.candidates(rows, "elbo_exact", "widths")
    assert [[row["width"] for row in fits] for fits in sets] == [[2, 10]] * 3
    assert all(row["annealing"] for fits in sets for row in fits)
    pairs = selection.candidates(rows, "elbo_exact", "annealings")
    assert [{row["annealing"] for row in fits} for fits in pairs] == [{0.2, 0.0}] * 6
    assert not selection.candidates(rows, "elbo_collapsed", "widths")


def test_verdicts_follow_the_losses(rows):
    verdicts = {claim.text: claim for claim in selection.claims(rows)}
    widths = verdicts["Ours: the exact ELBO selects across widths, within a prior."]
    assert widths.verdict == "does not hold"
    assert "0.210 ± 0.012" in widths.evidence
    for row in rows:
        row["iwae_all"] = row["log_density"]
    verdicts = {claim.text: claim.verdict for claim in selection.claims(rows)}
    text = "Ours: the IWAE, all draws selects between KL annealings, at a prior and a "
    assert verdicts[f"{text}width."] == "holds"
    priors = "Ours: the exact ELBO selects across priors, at a width."
    assert verdicts[priors] == "waits for results"


def test_the_table_names_the_choices_and_the_optima(rows):
    text = selection.table(rows)
    assert "| cubic | exact ELBO | 2 (3 of 3) | 10 (3 of 3) | 0.210 ± 0.012" in text
    assert "-3.0 ± 0.0 (0 of 3)" in text
    assert "+3.00 ± 0.00 (3 of 3)" in text


def test_evidence_settles_when_two_schedules_agree(rows):
    about = {"data": "evidence", "prior": "horseshoe", "width": 10, "error": 0.1}
    done = [
        about | {"replicate": seed, "temperatures": t, "log_evidence": 20.0 + gap}
        for seed in range(3)
        for t, gap in ((1_000, 0.4 * seed), (4_000, 0.0))
    ]
    settled = selection.settled(done)
    assert [ok for _, ok in settled.values()] == [True, True, False]
    assert "| 2 of 3 |" in selection.table(rows + done)


def test_the_figures_have_a_panel_for_each_data_set(rows):
    figures = selection.render(rows)
    assert set(figures) == {"selection_elbo_exact", "selection_iwae_all"}
    assert figures["selection_iwae_all"].axes[0].get_title() == "cubic"
