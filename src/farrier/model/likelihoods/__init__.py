"""Likelihoods: one file each, and the names that a user can give."""

from .base import AbstractLikelihood, OutputDraws
from .categorical import Categorical, CategoricalLikelihood
from .normal import (
    AbstractNoise,
    AbstractNormalLikelihood,
    GaussianLikelihood,
    GaussianNoise,
    HeteroscedasticLikelihood,
    HeteroscedasticNoise,
)

NOISES: dict[str, AbstractNoise] = {
    "gaussian": GaussianNoise(),
    "heteroscedastic": HeteroscedasticNoise(),
}

__all__ = [
    "NOISES",
    "AbstractLikelihood",
    "AbstractNoise",
    "AbstractNormalLikelihood",
    "Categorical",
    "CategoricalLikelihood",
    "GaussianLikelihood",
    "GaussianNoise",
    "HeteroscedasticLikelihood",
    "HeteroscedasticNoise",
    "OutputDraws",
]
