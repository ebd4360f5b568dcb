"""Tables: files, columns, and the features that a network takes."""

from .columns import Column, TableWarning
from .files import TableError, read_chunks, read_table, writing
from .table import Columns, describe, find_task

__all__ = [
    "Column",
    "Columns",
    "TableError",
    "TableWarning",
    "describe",
    "find_task",
    "read_chunks",
    "read_table",
    "writing",
]
