"""Tables: files, columns, and their encoding as the features of a network."""

from .columns import Column, TableWarning
from .files import TableError, read_chunks, read_table, writing
from .learn import Learned, find_task, learn
from .table import Columns

__all__ = [
    "Column",
    "Columns",
    "Learned",
    "TableError",
    "TableWarning",
    "find_task",
    "learn",
    "read_chunks",
    "read_table",
    "writing",
]
