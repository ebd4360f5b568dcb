"""scikit-learn estimators: the data scientist's door to the network."""

import copy
import dataclasses
import hashlib
import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,  # noqa: PLC2701
    check_is_fitted,
    validate_data,
)

from . import persist
from .console import progress
from .core.priors import PRIORS, AbstractPrior, Gaussian, Horseshoe
from .infer import compact as compaction
from .infer import predict as predictive
from .infer.train import (
    Data,
    History,
    Run,
    Schedule,
    Status,
    TrainConfig,
    TrainState,
    run_chunk,
    train,
)
from .model.likelihoods import Categorical, GaussianNoise
from .model.network import ACTIVATIONS, Network
