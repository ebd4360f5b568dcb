"""An HTML report about a fitted model and rows with their targets."""

from .page import write_report

__all__ = ["write_report"]
