"""Files that are written completely or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A new binary file that takes the place of `path` when the block has succeeded.

    It has a temporary name until then, and is deleted if the block fails: the file at
    `path` is the old one or the new one, and always complete.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
