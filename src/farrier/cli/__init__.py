"""The command line, one file for each command; `app.py` puts them together."""

from .app import main

__all__ = ["main"]
