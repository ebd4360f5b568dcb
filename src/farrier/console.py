"""Progress of long work, as a bar on a terminal or as plain lines; and tables."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

LINES = 10  # plain lines, one for each tenth of the work
SILENCE = 60.0  # seconds after which one more is printed


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show progress: yields a function of the number of steps done and a note."""
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield _lines(title, total)
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


def _lines(title: str, total: int) -> Callable[[int, str], None]:
    began = printed = time.monotonic()
    shown = 0

    def show(done: int, note: str) -> None:
        nonlocal shown, printed
        now = time.monotonic()
        tenth = done * LINES // total
        if tenth > shown or done >= total or now - printed >= SILENCE:
            shown, printed = tenth, now
            left = duration((now - began) * (total - done) / done) if done else "?"
            text = f"{title} {done}/{total} {note} ({left} left)"
            print(text, file=sys.stderr, flush=True)

    return show


def duration(seconds: float) -> str:
    """A number of seconds as text, in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is left-aligned, the others right-aligned."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        grid.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        grid.add_row(*row)
    Console().print(grid)
