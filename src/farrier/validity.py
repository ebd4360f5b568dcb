"""Whether the parts of a model that was read from a file fit each other.

`check_fields` compares each field with its annotation, array shapes included; the other
functions compare what no annotation says. Whatever is wrong is a ValueError. Nothing is
computed, so that reading a file compiles nothing.
"""

import dataclasses
import math
import types
import typing
from functools import cache
from itertools import pairwise
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import jaxtyped

from .core.weights import MeanFieldWeights
from .fitted import FittedModel, Units
from .infer.compact import Compaction
from .infer.intervals import are_depths
from .infer.nodes import Nodes
from .model.layers import Layer
from .model.likelihoods import AbstractLikelihood, AbstractNormalLikelihood
from .model.network import ACTIVATIONS, Network
from .model.posterior import AbstractPosterior, SampledPosterior
from .train.history import History
from .units import Standardiser

SEEDS = 2**31  # seeds are smaller than this
ShapeTuple = tuple[int, ...]


def check_model(model: FittedModel, known: dict[str, Any]) -> None:
    """Check a model and its computed values, each by the name of its property."""
    check_fields(model)
    for name, of in {"nodes": Nodes, "compaction": Compaction}.items():
        if name in known:
            _require(isinstance(known[name], of), f"its `{name}` are not {of.__name__}")
            check_fields(known[name])
    nodes = known["nodes"]
    posterior = model.posterior
    _check_posterior(posterior)
    _check_units(model.units, posterior)
    _check_nodes(model, nodes)
    _check_depths(model.units, known["depths"])
    _check_history(model)
    compaction = known.get("compaction")
    if compaction is not None:
        _check_compaction(model, compaction)
    shares = known.get("column_shares")
    if shares is not None:
        _check_shares(shares, model.draws, posterior.d_in)
    total_fits = 0 < model.total < math.inf and model.epochs >= 0
    _require(total_fits, "its numbers of rows and epochs are not positive")
    _require(0 <= model.seed < SEEDS, f"its seed is {model.seed}")
    weights = [fit.weight for fit in model.fits]
    valid = all(0 <= w <= 1 for w in weights) and math.isclose(sum(weights), 1)
    _require(not weights or valid, "the weights of its fits do not sum to 1")


def _require(condition: Any, otherwise: str) -> None:
    """Raise a ValueError with this text where a condition is not met."""
    if not condition:
        raise ValueError(otherwise)


# -- annotations -------------------------------------------------------------------


def check_fields(value: Any, name: str = "model") -> None:
    """Check the fields of a dataclass against their annotations, all the way down.

    Axes of the same name must have the same length in all arrays of one object.
    """
    hints = _hints(type(value))
    with jaxtyped("context"):
        for field, hint in hints.items():
            inner = getattr(value, field)
            if not _fits(inner, hint):
                raise ValueError(f"`{name}.{field}` is {_described(inner)}")
    for field in hints:
        _check_inner(getattr(value, field), f"{name}.{field}")


@cache
def _hints(of: type) -> dict[str, Any]:
    """Annotations of the fields of a dataclass."""
    hints = typing.get_type_hints(of)
    return {field.name: hints[field.name] for field in dataclasses.fields(of)}


def _check_inner(value: Any, name: str) -> None:
    """Check all dataclasses within a value."""
    if dataclasses.is_dataclass(value):
        check_fields(value, name)
    elif isinstance(value, tuple | list):
        for number, each in enumerate(value):
            _check_inner(each, f"{name}[{number}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_inner(each, f"{name}.{key}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type: a class, a union, or tuples and dicts of these."""
    if hint is Any:
        return True
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        several = parts[-1:] == (...,)
        parts = parts[:1] * len(value) if several else parts
        pairs = zip(value, parts, strict=False)
        return len(value) == len(parts) and all(_fits(v, part) for v, part in pairs)
    if origin is dict:
        key, inner = parts
        return isinstance(value, dict) and all(
            _fits(name, key) and _fits(v, inner) for name, v in value.items()
        )
    if hint in (int, float):  # True and False are no numbers here
        numbers = (int, float, np.floating) if hint is float else int
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(value, hint)


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"{value!r:.60}"
    return f"an array of {value.dtype} and shape {tuple(shape)}"


# -- the posterior -----------------------------------------------------------------


def _check_posterior(posterior: AbstractPosterior) -> None:
    """Check the sizes of all layers, and that all numbers are finite."""
    _require(posterior.draws >= 2, "it has fewer than two draws")
    _check_likelihood(posterior.likelihood)
    if isinstance(posterior, SampledPosterior):
        _check_sampled(posterior)
    elif posterior.variational is not None:
        _check_network(posterior.variational)
    noise, unknowns = np.asarray(posterior.noise), posterior.likelihood.unknowns
    _require(noise.shape[1] == unknowns, "its noise is not that of its likelihood")
    _require((noise > 0).all(), "its noise is not positive")
    for leaf in _arrays(posterior):
        finite = leaf.dtype.kind != "f" or np.isfinite(leaf).all()
        _require(finite, "its weights or scales are not finite")


def _arrays(tree: eqx.Module) -> list[np.ndarray]:
    """All arrays of a module, on the host."""
    arrays = []
    for value in vars(tree).values():
        for inner in _flat(value):
            of_module = isinstance(inner, eqx.Module)
            arrays += _arrays(inner) if of_module else [np.asarray(inner)]
    return arrays


def _flat(value: Any) -> list[Any]:
    """Modules and arrays in tuples and dicts."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [inner for each in value for inner in _flat(each)]
    return [value] if eqx.is_array(value) or isinstance(value, eqx.Module) else []


def _check_likelihood(likelihood: AbstractLikelihood) -> None:
    if isinstance(likelihood, AbstractNormalLikelihood):
        prior = (likelihood.prior_shape, likelihood.prior_rate)
        valid = likelihood.targets >= 1 and all(0 < v < math.inf for v in prior)
        shape = np.asarray(likelihood.gamma.fixed_shape)
        valid = valid and shape.ndim == 1 and (shape > 0).all()
        _require(valid, "the prior of its noise is not positive")
    else:
        _require(likelihood.d_out >= 2, "it has fewer than two classes")


def _check_network(network: Network) -> None:
    """Each layer takes the nodes of the one before it; the last feeds the target."""
    _check_activation(network.activation)
    layers = (*network.layers, network.output)
    _require(len(layers) > 1, "it has no hidden layer")
    for layer in layers:
        _check_layer(layer)
    for before, after in pairwise(layers):
        same = np.array_equal(before.nodes, after.inputs)
        _require(same, "its layers do not fit each other")
    _check_outputs(network.output.weights.nodes, network.likelihood)
    first = np.asarray(layers[0].inputs)
    if network.inputs is None:
        _require(
            np.array_equal(first, np.arange(len(first))), "its inputs are numbered"
        )
        return
    columns, total = np.asarray(network.inputs.columns), network.inputs.total
    known = len(columns) == len(first) and _are_numbers(columns, total)
    sizes = network.inputs.tau.q.loc.shape, network.inputs.upsilon.q.loc.shape
    _require(known and sizes == (columns.shape, ()), "its column scales do not fit")


def _are_numbers(values: np.ndarray, total: int) -> bool:
    """Whether values are different numbers from 0 to under `total`, in their order."""
    inside = (values >= 0).all() and (values < total).all()
    return bool(inside and (np.diff(values) > 0).all())


def _check_layer(layer: Layer) -> None:
    weights, nodes = layer.weights, np.asarray(layer.nodes)
    if isinstance(weights, MeanFieldWeights):
        shapes = weights.kernel.loc.ndim, weights.bias.loc.shape
        _require(shapes == (2, (weights.nodes,)), "its biases do not fit its weights")
    sizes = (weights.fan_in - 1, weights.nodes)
    _require(sizes == (layer.inputs.size, nodes.size), "a layer has other weights")
    _require(nodes.size and _are_numbers(nodes, SEEDS), "a layer has no nodes")
    for scale in layer.scales.values():
        fits = scale.q.loc.shape in ((), nodes.shape)
        _require(fits, "its scales do not fit its nodes")


def _check_sampled(posterior: SampledPosterior) -> None:
    """The kernels of all draws follow each other."""
    _check_activation(posterior.activation)
    kernels, biases = posterior.kernels, posterior.biases
    sizes = [kernel.shape[1:] for kernel in kernels]
    fits = len(kernels) == len(biases) > 1 and all(min(size) for size in sizes)
    fits = fits and all(a[1] == b[0] for a, b in pairwise(sizes))
    ends = [bias.shape[1] for bias in biases]
    _require(
        fits and ends == [b for _, b in sizes], "its kernels do not fit each other"
    )
    draws = {values.shape[0] for values in (*kernels, *biases)}
    nodes = {f"layer_{number}": end for number, end in enumerate(ends[:-1], start=1)}
    nodes |= {"inputs": posterior.d_in, "output": ends[-1]}
    for layer, group in posterior.scales.items():
        draws |= {values.shape[0] for values in group.values()}
        fits = all(v.shape[1:] in ((), (nodes.get(layer),)) for v in group.values())
        _require(fits, f"its scales of {layer!r:.40} do not fit its kernels")
    _require(draws == {posterior.draws}, "its parts have other numbers of draws")
    _check_outputs(ends[-1], posterior.likelihood)
    variance = posterior.output_variance
    if variance is not None:
        last = (kernels[-1].shape, biases[-1].shape)
        _require(tuple(v.shape for v in variance) == last, "its variances do not fit")


def _check_activation(name: str) -> None:
    _require(name in ACTIVATIONS, f"its activation is {name!r:.40}")


def _check_outputs(outputs: int, likelihood: AbstractLikelihood) -> None:
    fits = outputs == likelihood.d_out
    _require(fits, f"it has {outputs} outputs, its likelihood needs {likelihood.d_out}")


# -- everything else ---------------------------------------------------------------


def _check_units(units: Units, posterior: AbstractPosterior) -> None:
    _check_standardiser(units.x, "x", posterior.d_in)
    targets = posterior.likelihood.unknowns  # a precision for each numeric target
    fits = bool(targets) == (units.y is not None)
    _require(fits, "its targets do not fit its likelihood")
    if units.y is not None:
        _check_standardiser(units.y, "y", targets)


def _check_standardiser(units: Standardiser, what: str, columns: int) -> None:
    mean, scale = units.mean, units.scale
    if mean.shape != (columns,) or scale.shape != (columns,):
        raise ValueError(f"the units of {what} are not those of {columns} columns")
    finite = all(v.dtype.kind == "f" and np.isfinite(v).all() for v in (mean, scale))
    if not (finite and (scale > 0).all()):
        raise ValueError(f"the units of {what} are not finite, or not positive")


def _check_nodes(model: FittedModel, nodes: Nodes) -> None:
    """Node scores belong to the posterior, of which all nodes were built."""
    posterior = model.posterior
    for share in nodes.shares:
        _check_shares(share, model.draws, share.shape[-1])
        _require(bool((share >= 0).all()), "its node scores are negative")
    if nodes.columns is not None:  # (I4): noise of either sign about 0
        _check_shares(nodes.columns, model.draws, nodes.columns.shape[-1])
    known = posterior.variational is None
    fits = model.draws >= 2 and (known or posterior.draws == model.draws)
    _require(fits, f"its number of draws is {model.draws}")
    widths = tuple(share.shape[1] for share in nodes.shares)
    fits = posterior.widths == widths
    _require(fits, f"its node scores do not fit the widths {posterior.widths}")
    columns = nodes.columns
    fits = (columns is not None) == posterior.scales_columns
    fits = fits and (columns is None or columns.shape[1] == posterior.d_in)
    _require(fits, "its column scores do not fit its columns")
    built = model.built_widths
    fits = len(built) == len(widths) and bool((np.array(built) >= widths).all())
    if posterior.variational is not None and not model.is_compact:
        fits = fits and built == _with_removed(widths, model.history)
    _require(fits, f"it was built with {built} nodes and has {widths}")


def _check_shares(shares: Any, draws: int, columns: int) -> None:
    """Shares of nodes or columns: a finite one for each draw."""
    valid = isinstance(shares, np.ndarray) and shares.shape == (draws, columns)
    valid = valid and shares.dtype.kind == "f" and bool(np.isfinite(shares).all())
    _require(valid, "its node or column scores are not shares")


def _with_removed(widths: ShapeTuple, history: History) -> ShapeTuple:
    """Widths before nodes were removed in training."""
    removed = [0] * len(widths)
    for removal in history.removed:
        _require(1 <= removal.layer <= len(widths), "it removed nodes of no layer")
        removed[removal.layer - 1] += len(removal.nodes)
    return tuple(w + r for w, r in zip(widths, removed, strict=True))


def _check_depths(units: Units, depths: Any) -> None:
    """A regression has depths of its intervals, a classification has none."""
    if units.y is None:
        _require(depths is None, "it has intervals and no numeric targets")
        return
    valid = isinstance(depths, np.ndarray) and are_depths(depths)
    _require(valid, "its interval depths do not rise from 0 to 1")


def _check_history(model: FittedModel) -> None:
    step, terms = model.history.step, model.history.terms
    if step.ndim != 1 or any(v.shape != step.shape for v in terms.values()):
        raise ValueError("the records of its history differ in length")
    rises = step.dtype.kind in "iu" and (np.diff(step) > 0).all()
    _require(rises, "the steps of its history do not rise")
    _require("log_likelihood" in terms, "its history has no log likelihood")


def _check_compaction(model: FittedModel, compaction: Compaction) -> None:
    """The masks of a compaction select the nodes of its posterior."""
    small, keep, columns = compaction.posterior, compaction.keep, compaction.columns
    _check_posterior(small)
    masks = [*keep, *([] if columns is None else [columns])]
    valid = all(mask.ndim == 1 and mask.dtype == bool for mask in masks)
    valid = valid and tuple(int(mask.sum()) for mask in keep) == small.widths
    if not model.is_compact:
        valid = valid and tuple(mask.size for mask in keep) == model.posterior.widths
    if columns is not None:
        valid = valid and columns.size == model.posterior.d_in
    same = small.d_in == model.posterior.d_in
    same = same and (model.is_compact or small.draws == model.draws)
    _require(valid and same, "its compaction keeps other nodes")
    cost = (compaction.moved, compaction.log_density_change)
    _require(all(map(math.isfinite, cost)), "the cost of its compaction is not finite")
