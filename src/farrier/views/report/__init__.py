"""One HTML page about a fitted model and a table with its targets."""

from .page import write_report

__all__ = ["write_report"]
