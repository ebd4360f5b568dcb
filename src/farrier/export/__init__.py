"""Files to deploy: ONNX, and arrays for a predictor of NumPy alone.

Both hold the compacted network (`compact()`), with all that is done to raw inputs
before it. To convert a scikit-learn pipeline that ends in one of our estimators by
`skl2onnx.to_onnx`, import `farrier.export.pipelines` first.
"""

from typing import TYPE_CHECKING, Any

from ..infer.freeze import Draws, Moments
from .predictor import to_numpy

if TYPE_CHECKING:
    from .onnx_file import to_onnx

__all__ = ["Draws", "Moments", "to_numpy", "to_onnx"]


def __getattr__(name: str) -> Any:
    """Import what needs onnx when it is first used."""
    if name == "to_onnx":
        from .onnx_file import to_onnx

        return to_onnx
    raise AttributeError(f"module 'farrier.export' has no attribute {name!r}")
