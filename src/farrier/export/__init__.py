"""Files for deployment: ONNX, or arrays for predictions with NumPy alone.

Both contain the compacted network (`compact()`) and the standardisation of its inputs.
To convert a scikit-learn pipeline that ends in a farrier estimator with
`skl2onnx.to_onnx`, import `farrier.export.pipelines` first.
"""

from typing import TYPE_CHECKING, Any

from .predictor import to_numpy

if TYPE_CHECKING:
    from .onnx_file import to_onnx

__all__ = ["to_numpy", "to_onnx"]


def __getattr__(name: str) -> Any:
    """Import `to_onnx`, which needs the package onnx, when it is first used."""
    if name == "to_onnx":
        from .onnx_file import to_onnx

        return to_onnx
    raise AttributeError(f"module 'farrier.export' has no attribute {name!r}")
