"""Whether the header of a model file makes sense, before anything is built from it.

A checksum only says that a file is as somebody wrote it. Sizes are held against the
arrays that are really there; of the network that they describe, nothing but shapes is
made (`persist.fill`), so that no header can ask for more memory than its file has.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..train.history import Status

MOST_DRAWS = 1_000_000
# Constructor arguments that files of the present format may lack: they get the default,
# with which a fit was the same before there was the argument.
NEWER_PARAMS: frozenset[str] = frozenset({"input_horseshoe", "n_restarts", "refine"})

Test = Callable[[Any], bool]


def whole(least: int, most: float = math.inf) -> Test:
    """Whether a value is a whole number in a range, ends included."""
    return lambda v: type(v) is int and least <= v <= most


def is_text(value: Any) -> bool:
    """Whether a value is a text."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Whether a value is a number, and not a boolean."""
    return type(value) in (int, float)


def _is_positive(value: Any) -> bool:
    return is_number(value) and 0 < value < math.inf


def list_of(test: Test) -> Test:
    """Whether a value is a list whose entries all pass."""
    return lambda v: isinstance(v, list) and all(test(entry) for entry in v)


def record(**fields: Test) -> Test:
    """Whether a value is a dict of these fields and no others."""
    return lambda v: (
        isinstance(v, dict)
        and v.keys() == fields.keys()
        and all(test(v[name]) for name, test in fields.items())
    )


_TEXTS = list_of(is_text)
_REMOVAL = record(step=whole(0), layer=whole(1), nodes=list_of(whole(0)))
_HEADER: dict[str, Test] = {
    "version": is_text,
    "params": lambda v: isinstance(v, dict),
    "seed": whole(0, 2**32 - 1),
    "n_features_in": whole(1),
    "feature_names_in": lambda v: v is None or _TEXTS(v),
    "n_iter": whole(0),
    "rows": _is_positive,
    "widths": list_of(whole(0)),
    "built_widths": list_of(whole(1, 2**31)),
    "compaction": record(
        moved=is_number,
        log_density_change=is_number,
        done=lambda v: isinstance(v, bool),
    ),
    "history": record(
        status=lambda v: v in [*Status],
        skipped=whole(0),
        bad_step=whole(-1),
        bad_term=is_text,
        seconds=lambda v: is_number(v) and 0 <= v < math.inf,
        removed=list_of(_REMOVAL),
    ),
}
_SAMPLING = record(
    chains=whole(1),
    draws=whole(1),
    r_hat=is_number,
    effective_draws=is_number,
    acceptance=is_number,
    divergences=whole(0),
    gradients=whole(0),
    seconds=is_number,
)
_FIT = {"bound": is_number, "weight": is_number, "widths": list_of(whole(0))}
_FITS = record(**_FIT), record(**_FIT, likelihood=is_text)  # older files do not tell it
_RESTARTS = list_of(lambda v: any(is_fit(v) for is_fit in _FITS))
_KINDS = {
    "warm_start": (bool, int),
    "shrink": (bool, int),
    "input_horseshoe": (bool, int),
    "standardise": (bool, int),
    "early_stopping": (bool, int),
    "verbose": (bool, int),
    "random_state": (int, type(None)),
    "class_weight": (dict, str, type(None)),
}


def check_header(header: dict, arrays: dict[str, np.ndarray], params: set[str]) -> None:
    """Raise a ValueError, in one line, if the header or a size is not right.

    Parameters
    ----------
    params
        Names of the constructor's arguments.
    """
    for name, is_right in _HEADER.items():
        if not is_right(header[name]):
            raise ValueError(f"`{name}` is {header[name]!r:.80}")
    sampling = header.get("sampling")
    if sampling is not None and not _SAMPLING(sampling):
        raise ValueError(f"`sampling` is {sampling!r:.80}")
    restarts = header.get("restarts", [])
    if not _RESTARTS(restarts):
        raise ValueError(f"`restarts` is {restarts!r:.80}")
    found = header["params"].keys()
    for name in sorted((params ^ found) - (NEWER_PARAMS - found)):
        what = "misses" if name in params else "has an unknown"
        raise ValueError(f"it {what} setting `{name}`")
    _check_sizes(header, arrays)


def _check_sizes(header: dict, arrays: dict[str, np.ndarray]) -> None:
    d_in, names = header["n_features_in"], header["feature_names_in"]
    widths, built = header["widths"], header["built_widths"]
    if names is not None and len(names) != d_in:
        raise ValueError(f"it names {len(names)} of {d_in} features")
    if len(widths) != len(built) or not widths:
        raise ValueError(f"`widths` {widths!r:.40} and `built_widths` {built!r:.40}")
    if any(now > before for now, before in zip(widths, built, strict=True)):
        raise ValueError(f"`widths` {widths!r:.40} exceed `built_widths` {built!r:.40}")
    check_units(arrays, "x", d_in)
    for layer, nodes in enumerate(widths):
        keep, shares = (arrays[f"nodes[{layer}].{n}"] for n in ("keep", "shares"))
        # A compacted network has the nodes that were kept, and no others.
        here = keep[keep] if header["compaction"]["done"] else keep
        if keep.dtype != bool or here.shape != (nodes,):
            raise ValueError(f"`widths` {widths!r:.40} do not fit the arrays")
        if shares.shape[1:] != (nodes,) or shares.dtype.kind != "f":
            raise ValueError(f"`widths` {widths!r:.40} do not fit the scores")
    _check_columns(header, arrays)
    _check_history(arrays)


def _check_columns(header: dict, arrays: dict[str, np.ndarray]) -> None:
    """What is known of the columns, where each has a scale of its own."""
    if not header["params"].get("input_horseshoe"):
        return
    keep, shares = (arrays[f"columns.{name}"] for name in ("keep", "shares"))
    columns = (header["n_features_in"],)
    if keep.dtype != bool or keep.shape != columns or not keep.any():
        raise ValueError("`columns.keep` does not fit the features")
    if shares.shape[1:] != columns or shares.dtype.kind != "f":
        raise ValueError("`columns.shares` do not fit the features")


def _check_history(arrays: dict[str, np.ndarray]) -> None:
    step = arrays["history.step"]
    if step.ndim != 1 or step.dtype.kind != "i":
        raise ValueError("the history has no steps")
    for name, values in arrays.items():
        if name.startswith("history.terms.") and values.shape != step.shape:
            raise ValueError(f"`{name}` has another length than `history.step`")


def check_units(arrays: dict[str, np.ndarray], what: str, columns: int) -> None:
    """Raise a ValueError if means and scales are not those of so many columns."""
    mean, scale = arrays[f"{what}.mean"], arrays[f"{what}.scale"]
    if mean.shape != (columns,) or scale.shape != (columns,):
        raise ValueError(f"the units of {what} are not those of {columns} columns")
    if not (np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError(f"the units of {what} are not finite, or not positive")


def check_settings(params: dict[str, Any]) -> None:
    """Raise a ValueError for settings that no fit looks at before it uses them."""
    for name, kinds in _KINDS.items():
        if name in params and not isinstance(params[name], kinds):
            raise ValueError(f"`{name}` is {params[name]!r:.80}")
    if not whole(2, MOST_DRAWS)(params["n_draws"]):
        raise ValueError(f"`n_draws` is {params['n_draws']!r:.80}")


def labels_from(found: dict) -> np.ndarray:
    """The labels of a classifier: at least two, all different, in their order."""
    values, dtype = found["values"], np.dtype(found["dtype"])
    if not isinstance(values, list) or dtype.kind not in "biufUO" or dtype.shape:
        raise ValueError(f"`classes` is {found!r:.80}")
    longest = max((len(v) for v in values if isinstance(v, str)), default=0)
    if dtype.kind == "U" and dtype.itemsize > 4 * max(longest, 1):
        raise ValueError(f"`classes` are of type {found['dtype']!r:.40}")
    labels = np.asarray(values, dtype)
    if labels.ndim != 1 or labels.tolist() != values:
        raise ValueError(f"`classes` is {found!r:.80}")
    if len(labels) < 2 or not (labels[1:] > labels[:-1]).all():
        raise ValueError("`classes` are not at least two labels in their order")
    return labels
