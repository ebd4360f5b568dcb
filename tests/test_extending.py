"""A prior, a likelihood and a training loop of one's own: docs/extending.md.

The page is run as a user would run it, in a process of its own, and its printed output
is compared with the page. Its classes are then checked by themselves.
"""

import inspect
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from farrier import ArrayRows, HorseshoeRegressor, Nuts, Training
from farrier.core.families import Conditional, LogNormal
from farrier.model.distributions import AbstractTargetDistribution, NormalMixture

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
SHORT = Training(max_iter=60)
pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")

RUN = """
import contextlib, io, json, sys, warnings
warnings.simplefilter("ignore")
names, printed = {"__name__": "page"}, []
for block in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(block, names)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def blocks() -> list[tuple[str, str]]:
    """Each Python block of the page, with the output that is shown after it."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?"
    return re.findall(pattern, text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def page() -> Iterator[dict[str, Any]]:
    """What the page defines, without its fits."""
    module = ModuleType("page_of_extending")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    for block, _ in blocks():
        if ".fit(" not in block and "model" not in re.findall(r"^\w+", block, re.M):
            exec(compile(block, PAGE.name, "exec"), names)
    yield names
    monkeypatch.undo()


def split(text: str) -> tuple[list[str], np.ndarray]:
    """The words of a text, and its numbers."""
    number = r"-?\d+\.?\d*"
    values = [float(value) for value in re.findall(number, text)]
    return re.sub(number, "#", text).split(), np.array(values)


def test_the_page_prints_what_it_shows():
    code, shown = zip(*blocks(), strict=True)
    result = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(code),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2_000:]
    printed = json.loads(result.stdout)
    assert sum(map(bool, shown)) >= 4
    for ours, theirs in zip(printed, shown, strict=True):
        words, values = split(ours)
        words_shown, values_shown = split(theirs)
        assert words == words_shown
        # Another processor rounds otherwise, and a run of 1,500 steps amplifies that.
        np.testing.assert_allclose(values, values_shown, rtol=0.25, atol=0.1)


def test_page_code_is_as_short_as_it_says(page):
    lines = lambda *classes: sum(len(inspect_source(c)) for c in classes)
    assert lines("Exponential", "ExponentialNodes") <= 20
    assert lines("PoissonMixture", "PoissonLikelihood", "Poisson") <= 50


def inspect_source(name: str) -> list[str]:
    """Lines of a class of the page, blank ones not counted."""
    (block,) = [
        code
        for code, _ in blocks()
        if f"class {name}(" in code or f"class {name}:" in code
    ]
    source = re.split(r"^(?=class |@dataclass)", block, flags=re.MULTILINE)
    (code,) = [part for part in source if re.match(rf".*class {name}\b", part, re.S)]
    return [line for line in inspect.cleandoc(code).splitlines() if line.strip()]


def test_kl_of_the_prior_is_its_integral(page):
    prior, q = page["Exponential"](0.4), LogNormal(jnp.array(-0.7), jnp.array(-0.5))
    of_log = stats.norm(-0.7, np.exp(-0.5))

    def integrand(log_s: float) -> float:
        log_p = stats.expon(scale=0.4).logpdf(np.exp(log_s)) + log_s
        return of_log.pdf(log_s) * (of_log.logpdf(log_s) - log_p)

    expected, _ = integrate.quad(integrand, -8, 6, epsabs=1e-12)
    np.testing.assert_allclose(prior.kl(q), expected, rtol=1e-8)
    log_s = np.linspace(-3, 2, 7)
    log_p = stats.expon(scale=0.4).logpdf(np.exp(log_s)) + log_s
    np.testing.assert_allclose(prior.log_density(jnp.asarray(log_s)), log_p)


def test_both_are_sampled_and_combined_too(page):
    settings: dict = {
        "prior": page["ExponentialNodes"](node_scale=0.1),
        "likelihood": page["Poisson"](),
        "training": SHORT,
        "random_state": 0,
    }
    x = page["X"][:40]
    y = np.round(np.exp(1 + page["signal"][:40]))
    short = Nuts(chains=2, warm_up=150, draws=10, depth=2)
    sampled = HorseshoeRegressor((4,), refine=short, **settings).fit(x, y)
    assert sampled.sampling_.chains == 2
    several = HorseshoeRegressor((4,), n_restarts=2, **settings).fit(x, y)
    assert len(several.restarts_) == 2
    for model in (sampled, several):
        mean, std = model.predict(x, return_std=True)
        assert (mean > 0).all()
        assert (std**2 >= mean).all()


def mixture(page: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """A Poisson mixture of 5 draws, 4 rows and 2 targets, and its rates."""
    rate = np.random.default_rng(1).gamma(3, 1, (5, 4, 2))
    return page["PoissonMixture"](jnp.asarray(rate)), rate


def test_what_a_distribution_inherits_is_that_of_its_components(page):
    distribution, rate = mixture(page)
    y = np.random.default_rng(2).poisson(3, (4, 2)).astype(float)
    log_p = stats.poisson(rate).logpmf(y).sum(-1)
    density = np.log(np.exp(log_p).mean(0))
    np.testing.assert_allclose(distribution.log_density(jnp.asarray(y)), density)
    cdf = stats.poisson(rate).cdf(y)
    np.testing.assert_allclose(distribution.cdf(jnp.asarray(y)), cdf.mean(0))
    weight = 1 / np.exp(log_p)
    weight = np.minimum(weight / weight.sum(0), 5**-0.5)
    weight /= weight.sum(0)
    left_out = (weight[..., None] * cdf).sum(0)
    group = jnp.zeros(5, int)
    ours = distribution.leave_one_out_cdf(jnp.asarray(y), group)
    np.testing.assert_allclose(ours, left_out)
    values, sd, _ = distribution.check_values(jnp.asarray(y))
    mean, noise = rate.mean(0), np.sqrt(rate.mean(0))
    np.testing.assert_allclose(values, np.concatenate([mean, noise], 1))
    variance = rate.mean(0) + rate.var(0)
    np.testing.assert_allclose(sd, np.sqrt(variance.sum(1)))


def test_quantiles_by_bisection_are_whole_numbers_of_counts(page):
    distribution, rate = mixture(page)
    levels = np.array([0.01, 0.3, 0.5, 0.95])
    ours = np.asarray(distribution.quantiles(jnp.asarray(levels)))
    counts = np.arange(60.0)
    cdf = stats.poisson(rate[..., None]).cdf(counts).mean(0)
    for index, level in enumerate(levels):
        expected = (cdf < level).sum(-1)
        np.testing.assert_allclose(ours[..., index], expected, atol=1e-9)


def test_quantiles_by_bisection_are_those_by_newton():
    random = np.random.default_rng(3)
    loc, variance = random.normal(size=(7, 4, 2)), random.gamma(1, 1, (7, 4, 2))
    parts = [jnp.asarray(part) for part in (loc, variance, np.full((7, 1, 2), 0.3))]
    distribution = NormalMixture(*parts)
    for level in (0.001, 0.1, 0.5, 0.97):
        newton = distribution.quantile(jnp.asarray(level))
        bisection = AbstractTargetDistribution.quantile(
            distribution, jnp.asarray(level)
        )
        np.testing.assert_allclose(bisection, newton, rtol=1e-9, atol=1e-9)


def test_the_likelihood_of_counts_is_that_of_scipy(page):
    likelihood, random = page["PoissonLikelihood"](2), np.random.default_rng(5)
    y = random.poisson(3, (4, 2)).astype(float)
    loc, variance = random.normal(size=(2, 4)), random.gamma(1, 0.2, (2, 4))
    arrays = [jnp.asarray(v) for v in (loc, variance, np.zeros((2, 4)))]
    f = Conditional(jnp.ones((1, 4)), *arrays)
    ours = likelihood.expected_log_density(jnp.asarray(y), f)
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    drawn = loc[..., None] + np.sqrt(variance)[..., None] * points
    log_p = stats.poisson(np.exp(drawn)).logpmf(y.T[..., None])
    expected = (log_p @ weights / weights.sum()).sum(0)
    np.testing.assert_allclose(ours, expected, rtol=1e-8)
    first, second = random.normal(size=(2, 4, 2))
    weight = np.array([1.0, 2.0, 0.0, 3.0])
    args = jnp.asarray(y), jnp.asarray(weight)
    marginal = lambda f: likelihood.log_marginal(args[0], jnp.asarray(f), args[1])
    log_p = lambda f: weight @ stats.poisson(np.exp(f)).logpmf(y).sum(1)
    change = marginal(first) - marginal(second)
    np.testing.assert_allclose(change, log_p(first) - log_p(second))


@pytest.fixture(scope="module")
def counts(page) -> HorseshoeRegressor:
    """A short fit to counts."""
    y = np.random.default_rng(4).poisson(np.exp(1 + page["signal"]))
    model = HorseshoeRegressor(
        (8,), likelihood=page["Poisson"](), training=SHORT, random_state=0
    )
    return model.fit(page["X"], y)


def test_counts_are_not_standardised(page, counts):
    units = counts.model_.units.y
    assert (units.mean, units.scale) == (0, 1)
    y = np.full(100, 3.0)
    mean, std = counts.predict(page["X_test"], return_std=True)
    assert (std**2 >= mean).all()  # the variance of a mixture of Poisson distributions
    log_p = counts.log_density(page["X_test"], y)
    distribution = counts.model_.predictor.predictive(
        jnp.asarray(units_of(counts, page))
    )
    np.testing.assert_allclose(log_p, distribution.log_density(jnp.asarray(y[:, None])))
    streamed = HorseshoeRegressor(
        (4,), likelihood=page["Poisson"](), training=Training(max_iter=1)
    ).fit(ArrayRows(page["X"], np.round(np.exp(page["signal"]))))
    assert (streamed.model_.units.y.scale == 1).all()


def units_of(model: HorseshoeRegressor, page: dict[str, Any]) -> np.ndarray:
    """The test inputs in the units of the network."""
    return model.model_.units.x(page["X_test"])


def test_a_likelihood_is_compacted_plotted_and_calibrated(page, counts):
    low, high = counts.compact().predict_interval(page["X_test"], level=0.5)
    assert (low <= high).all()
    assert counts.plot_band(page["X_test"], 0) is not None
    assert (counts.pit(page["X_test"], np.full(100, 2)) >= 0).all()


def test_a_likelihood_is_pickled_and_not_written_to_a_file(page, counts, tmp_path):
    with pytest.raises(
        TypeError, match="Pickle models with a prior, posterior or likelihood"
    ):
        counts.save(tmp_path / "model.safetensors")
    again = pickle.loads(pickle.dumps(counts))
    expected = counts.predict(page["X_test"])
    np.testing.assert_array_equal(again.predict(page["X_test"]), expected)


def test_targets_that_cannot_be_sampled_are_named(page, counts):
    with pytest.raises(NotImplementedError, match="PoissonLikelihood"):
        counts.sample_y(page["X_test"])
