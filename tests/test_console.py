"""Progress and tables: a bar on a terminal, plain lines elsewhere."""

import io
import re
import sys

import pytest

from farrier import console


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self):
        return True


def work(total, *, step=1):
    with console.progress("fit", total) as show:
        for done in range(step, total + 1, step):
            show(done, f"at {done}")


@pytest.mark.parametrize(("total", "lines"), [(10, 10), (1_000, 10), (3, 3)])
def test_without_a_terminal_there_are_a_few_plain_lines(capsys, total, lines):
    """At most ten, the last one at the end; nothing on standard output."""
    work(total)
    out, err = capsys.readouterr()
    assert out == ""
    shown = [
        re.match(r"fit (\d+)/(\d+) at (\d+) \(\d+ s left\)$", line)
        for line in err.splitlines()
    ]
    numbers = [tuple(map(int, match.groups())) for match in shown if match]
    assert len(numbers) == lines
    assert all(done == noted and of == total for done, of, noted in numbers)
    assert numbers[-1][0] == total
    assert "\x1b" not in err


def test_time_left_is_that_of_the_steps_so_far(capsys, monkeypatch):
    """A quarter in 5 seconds leaves 15."""
    clock = iter([100.0, 105.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.progress("fit", 20) as show:
        show(5, "")
    assert "(15 s left)" in capsys.readouterr().err


def test_long_work_says_something_every_minute(capsys, monkeypatch):
    clock = iter([0.0, 30.0, 70.0, 90.0, 140.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.progress("fit", 100) as show:
        for done, note in ((0, "a"), (0, "b"), (1, "c"), (1, "d")):
            show(done, note)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["fit 0/100 b (? left)", "fit 1/100 d (3.9 h left)"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(119, "119 s"), (600, "10 min"), (9_000, "2.5 h")]
)
def test_durations_are_readable(seconds, words):
    assert console.duration(seconds) == words


def test_on_a_terminal_there_is_a_bar(monkeypatch):
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    work(40, step=20)
    text = terminal.getvalue()
    assert "40/40" in text
    assert "at 40" in text
    assert "━" in text


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(console, "find_spec", lambda name: None)
    work(2)
    assert [line.split(" (")[0] for line in terminal.getvalue().splitlines()] == [
        "fit 1/2 at 1",
        "fit 2/2 at 2",
    ]


def test_a_table_has_its_numbers_to_the_right(capsys):
    pytest.importorskip("rich")
    console.table(
        "Results", ["prior", "nodes"], [["horseshoe", "2"], ["gaussian", "100"]]
    )
    out, err = capsys.readouterr()
    lines = [
        line for line in out.splitlines() if "horseshoe" in line or "gaussian" in line
    ]
    cells = [[cell for cell in re.split("[│┃]", line) if cell] for line in lines]
    assert [row[0].strip() for row in cells] == ["horseshoe", "gaussian"]
    assert [row[1] for row in cells] == ["     2 ", "   100 "]
    assert "Results" in out
    assert err == ""
