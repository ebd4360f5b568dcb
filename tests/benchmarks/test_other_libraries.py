"""Peers are pinned, and whatever one of them does, the others' figures are kept."""

import ast
import importlib
import json
import math
import re
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks import bench, environments
from benchmarks import other_libraries as peers

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
PEERS = (*peers.STEP_PEERS, *peers.FIT_PEERS)
SCRIPTS = sorted(FOLDER.rglob("*.py"))
GOOD_STEP = {"step_s": [0.3, 0.1, 0.2], "note": "fine", "versions": {"it": "1"}}
GOOD_FIT = {
    "seconds": 2.0,
    "rmse": 1.0,
    "log_density": -1.5,
    "crps": 0.5,
    "coverage": 0.9,
    "note": "",
    "versions": {},
}


@pytest.fixture
def protocol(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("protocol")
    del sys.modules["protocol"]


def script(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "peer.py"
    file.write_text(text)
    return file


def printing(answer: dict) -> str:
    return f"print('chatter')\nprint({json.dumps(answer)!r})\n"


def ask(file: Path, *arguments: str, seconds: float = 60) -> dict:
    keys = peers.STEP_KEYS
    python = Path(sys.executable)
    return environments.answer_of(python, file, [*arguments], seconds, keys)


def test_the_folders_are_the_peers():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == set(PEERS)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_has_a_script_and_pins_all_it_names(name):
    assert (FOLDER / name / "peer.py").is_file()
    assert (FOLDER / name / "requirements.txt").is_file()
    for file in (FOLDER / name).glob("requirements*.txt"):
        lines = file.read_text().splitlines()
        loose = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\d.]+", line)]
        assert lines
        assert not loose, f"{name}/{file.name} does not pin {loose}."


@pytest.mark.parametrize("name", ["uq360", "bayesian_torch", "torchbnn", "blitz"])
def test_peers_that_would_bring_another_torch_come_without_dependencies(name):
    asked = (FOLDER / name / "requirements.txt").read_text()
    alone = (FOLDER / name / "requirements-nodeps.txt").read_text()
    assert "torch==" in asked
    assert alone.split("==")[0] not in asked


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda f: str(f.relative_to(FOLDER)))
def test_scripts_are_python_with_a_docstring(file):
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))


def test_the_last_line_is_the_answer(tmp_path):
    assert ask(script(tmp_path, printing(GOOD_STEP))) == GOOD_STEP


def test_a_peer_finds_what_peers_share_and_its_arguments(tmp_path):
    (tmp_path / "shared.py").write_text("NOTE = 'found'\n")
    text = (
        "import json, shared, sys\n"
        "print(json.dumps({'step_s': [1], 'note': shared.NOTE, 'versions': sys.argv}))"
    )
    file = script(tmp_path / "fake", text)
    answer = ask(file, "table.npz", "8-50-1")
    assert answer["note"] == "found"
    assert answer["versions"] == [str(file), "table.npz", "8-50-1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('1.5 ms a step')", r"not JSON: '1\.5 ms a step'"),
        ("", "not JSON: ''"),
        ("print([1, 2])", r"no JSON object: '\[1, 2\]'"),
        ("print('{\"step_s\": [1]}')", r"lacks \['note', 'versions'\]"),
        ('print(\'{"error": "one width only"}\')', "^one width only$"),
        ("raise SystemExit('no such shape')", "status 1: no such shape"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_peer_that_does_not_answer_says_why(tmp_path, text, message):
    with pytest.raises(peers.PeerError, match=message):
        ask(script(tmp_path, text))


def test_a_peer_that_hangs_is_ended(tmp_path):
    file = script(tmp_path, "import time\ntime.sleep(60)")
    with pytest.raises(peers.PeerError, match=r"peer\.py` took more than 0\.3 s"):
        ask(file, seconds=0.3)


def test_an_environment_without_python_is_an_error_of_the_peer(tmp_path):
    file = script(tmp_path, "")
    with pytest.raises(peers.PeerError, match="did not start"):
        environments.answer_of(tmp_path / "absent", file, [], 60, set())


LINE = 'print(json.dumps({"split": %d, "note": "fine"}), flush=True)\n'


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("time.sleep(60)", r"took more than 1\.5 s"),
        ("raise SystemExit('no memory')", "status 1: no memory"),
        ("print('{not JSON')", "not JSON"),
    ],
)
def test_what_a_peer_answered_before_it_failed_is_kept(tmp_path, last, message):
    text = "import json, time\nprint('chatter')\n" + LINE % 0 + LINE % 3 + last
    file, python = script(tmp_path, text), Path(sys.executable)
    found, error = environments.answers_of(python, file, [], 1.5, {"note"})
    assert [answer["split"] for answer in found] == [0, 3]
    assert re.search(message, str(error))
    file = script(tmp_path, "import json\n" + LINE % 0)
    found, error = environments.answers_of(python, file, [], 60, {"note"})
    assert [answer["split"] for answer in found] == [0]
    assert error is None


def test_a_script_that_stands_alone_runs_in_our_own_environment(tmp_path):
    (tmp_path / "line.py").write_text("")
    python, file = environments.door(tmp_path, "line", tmp_path / "homes")
    assert (python, file) == (Path(sys.executable), tmp_path / "line.py")
    with pytest.raises(environments.PeerError, match="There is no other in benchmarks"):
        environments.door(tmp_path, "other", tmp_path / "homes")


def test_each_split_of_a_table_has_a_line(tmp_path):
    """Least squares and its scores, against NumPy and scipy here."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 2)), random.normal(size=60)
    rows = random.permutation(60)
    splits = {2: (rows[:50], rows[50:]), 5: (rows[10:], rows[:10])}
    environments.write_splits(tmp_path / "rows.npz", x, y, splits)
    python, file = environments.door(FOLDER, "straight_line", tmp_path)
    arguments = [str(tmp_path / "rows.npz")]
    keys = environments.FIT_KEYS
    found, error = environments.answers_of(python, file, arguments, 60, keys)
    assert error is None
    assert [answer["split"] for answer in found] == [2, 5]
    for answer, (train, test) in zip(found, splits.values(), strict=True):
        ones = np.column_stack([x, np.ones(60)])
        weights = np.linalg.lstsq(ones[train], y[train])[0]
        law = stats.norm(ones[test] @ weights, (y[train] - ones[train] @ weights).std())
        low, high = law.interval(0.9)
        held = ((low <= y[test]) & (y[test] <= high)).mean()
        assert answer["log_density"] == pytest.approx(law.logpdf(y[test]).mean())
        assert answer["rmse"] == pytest.approx(
            np.sqrt(((law.mean() - y[test]) ** 2).mean())
        )
        assert answer["coverage"] == pytest.approx(held)


@pytest.fixture
def commands(monkeypatch):
    """The commands that would have been run."""
    said = []
    monkeypatch.setattr(
        environments, "process", lambda command, _: said.append(command)
    )
    return said


def test_an_environment_is_built_once_for_each_set_of_requirements(tmp_path, commands):
    peer, home = tmp_path / "peer", tmp_path / "home"
    script(peer, "")
    home.mkdir()
    (peer / "requirements.txt").write_text("a==1\n")
    (peer / "requirements-nodeps.txt").write_text("b==1\n")
    assert environments.environment(peer, home) == home / "bin" / "python"
    make, with_dependencies, alone = commands
    assert make[1:] == ["-m", "venv", "--clear", str(home)]
    assert with_dependencies[-2:] == ["-r", str(peer / "requirements.txt")]
    assert "--no-deps" not in with_dependencies
    assert alone[-3:] == ["--no-deps", "-r", str(peer / "requirements-nodeps.txt")]
    environments.environment(peer, home)
    assert len(commands) == 3
    (peer / "requirements-nodeps.txt").write_text("b==2\n")
    environments.environment(peer, home)
    assert len(commands) == 6


def test_an_install_that_failed_is_tried_again(tmp_path, monkeypatch):
    peer, home = tmp_path / "peer", tmp_path / "home"
    script(peer, "")
    home.mkdir()
    (peer / "requirements.txt").write_text("a==1\n")
    tries = []

    def process(command, seconds):
        tries.append(command)
        if "pip" in command:
            raise peers.PeerError("no such version")

    monkeypatch.setattr(environments, "process", process)
    for _ in range(2):
        with pytest.raises(peers.PeerError, match="no such version"):
            environments.environment(peer, home)
    assert len(tries) == 4


def test_every_peer_has_an_entry_whatever_the_others_do(tmp_path, monkeypatch):
    scripts, results = tmp_path / "peers", tmp_path / "results"
    script(scripts / "good", printing(GOOD_STEP))
    script(scripts / "bad", "raise SystemExit('sorry')")
    script(scripts / "absent", "")
    script(scripts / "fit", printing(GOOD_FIT))
    (scripts / "ours.py").write_text(printing(GOOD_FIT | {"note": "ours"}))
    monkeypatch.setattr(peers, "STEP_PEERS", ("bad", "absent", "good"))
    monkeypatch.setattr(peers, "FIT_PEERS", ("fit", "bad"))
    monkeypatch.setattr(peers, "STEP_SHAPES", ("2-4-1",))
    for module in (bench, peers):
        monkeypatch.setattr(module, "SHAPES", {"2-4-1": (2, (4,), 1, 40, 40, 3)})
    monkeypatch.setattr(peers, "our_seconds", lambda *_: lambda: [0.05, 0.1, 0.4])
    monkeypatch.setattr(peers, "TRAINING_PEER", "good")
    trainings = {"all": ("2-4-1", lambda data: (5.0, 100))}
    monkeypatch.setattr(peers, "TRAININGS", trainings)

    def environment(peer, home):
        assert home == tmp_path / "homes" / peer.name
        if peer.name == "absent":
            raise peers.PeerError("no such version")
        return Path(sys.executable)

    monkeypatch.setattr(peers, "environment", environment)
    data = tmp_path / "data" / "uci" / peers.FIT_DATA
    data.mkdir(parents=True)
    np.savetxt(data / "data.txt", np.arange(12.0).reshape(4, 3))
    np.savetxt(data / "n_splits.txt", [1])
    for name, rows in {"features": [0, 1], "target": [2]}.items():
        np.savetxt(data / f"index_{name}.txt", rows)
    for name, rows in {"train": [0, 1, 3], "test": [2]}.items():
        np.savetxt(data / f"index_{name}_{peers.FIT_SPLIT}.txt", rows)

    told, written = [], []

    def report(done, text):
        told.append((done, text))
        file = results / "peers.json"
        written.append(json.loads(file.read_text())["figures"] if done else None)

    found = peers.run_peers(
        results,
        tmp_path / "homes",
        report,
        scripts=scripts,
        data=tmp_path / "data",
    )

    assert "sorry" in found["steps"]["bad"]["2-4-1"]["error"]
    assert found["steps"]["absent"]["2-4-1"] == {"error": "no such version"}
    good = found["steps"]["good"]["2-4-1"]
    assert good["peer_ms"] == pytest.approx(200)
    assert good["ours_ms"] == pytest.approx(100)
    assert good["ratio"] == pytest.approx(2)
    assert good["note"] == "fine"
    whole = found["trainings"]["all"]
    assert whole["peer_s"] == pytest.approx(100 * 0.2)
    assert whole["ours_s"] == 5.0
    assert whole["ratio"] == pytest.approx(4)
    assert "| good, 2-4-1, all | 20 | 5 | 4 | fine |" in peers.page(found)
    assert found["fits"]["fit"]["log_density"] == -1.5
    assert found["fits"]["farrier"]["note"] == "ours"
    assert "sorry" in found["fits"]["bad"]["error"]
    assert [done for done, _ in told] == [*range(9)]
    assert written[3]["steps"] == found["steps"]
    assert written[-1] == found

    script(scripts / "good", printing(GOOD_STEP | {"step_s": [0.4]}))
    again = peers.run_peers(
        results,
        tmp_path / "homes",
        lambda done, text: None,
        scripts=scripts,
        data=tmp_path / "data",
        only=["steps good"],
    )
    assert again["steps"]["good"]["2-4-1"]["peer_ms"] == pytest.approx(400)
    changed = again["steps"].pop("good"), found["steps"].pop("good")
    assert changed[0] != changed[1]
    assert again == found


def test_the_readme_has_the_figures_of_the_last_run():
    root = FOLDER.parents[1]
    found = json.loads((root / "benchmarks/results/peers.json").read_text())["figures"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert peers.beside(found) in readme, "put this into it:\n" + peers.beside(found)


def test_our_steps_go_on_where_they_were_and_are_timed_one_by_one(monkeypatch):
    seen = []

    def run_chunk(state, table, schedule, steps, records, *, key):
        seen.append((state, steps * records))
        time.sleep(0.05 if len(seen) == 1 else 0.01)
        return len(seen), jnp.zeros(1)

    monkeypatch.setattr(bench, "run_chunk", run_chunk)
    for module in (bench, peers):
        monkeypatch.setattr(module, "SHAPES", {"2-4-3": (2, (4,), 3, 40, 16, 5)})
    monkeypatch.setattr(peers, "REPEATS", 3)
    ours = peers.our_seconds("2-4-3", *bench.random_table("2-4-3"))
    seconds = ours()
    assert [state for state, _ in seen[1:]] == [1, 2, 3]
    assert {steps for _, steps in seen} == {5}
    assert len(seconds) == 3
    assert min(seconds) >= 0.01 / 5


def test_the_split_is_the_standard_one(tmp_path, shared_data):
    peers.write_split(tmp_path / "split.npz", shared_data)
    split = np.load(tmp_path / "split.npz")
    rows = np.concatenate([split["train_0"], split["test_0"]])
    assert len(split["train_0"]) == 927
    np.testing.assert_array_equal(np.sort(rows), np.arange(1030))
    table = np.loadtxt(shared_data / "uci" / "concrete" / "data.txt")
    np.testing.assert_array_equal(split["x"], table[:, :8])
    np.testing.assert_array_equal(split["y"], table[:, 8])


def test_missing_data_are_named(tmp_path):
    with pytest.raises(peers.PeerError, match="concrete were not found"):
        peers.write_split(tmp_path / "split.npz", tmp_path)


def test_closed_crps_agrees_with_quadrature(protocol):
    mean, sd, y = 0.3, 1.7, -0.8
    cdf = stats.norm(mean, sd).cdf
    below, _ = integrate.quad(lambda t: cdf(t) ** 2, -np.inf, y)
    above, _ = integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, np.inf)
    found = protocol.normal_crps(*np.array([[mean], [sd], [y]]))
    np.testing.assert_allclose(found, below + above, rtol=1e-6)


def test_crps_of_draws_agrees_with_the_closed_form(protocol):
    random = np.random.default_rng(0)
    draws = random.normal(0.3, 1.7, size=(5, 40_000))  # many small, unbiased samples
    y = np.full(draws.shape[1], -0.8)
    found = protocol.sample_crps(draws, y)
    (expected,) = protocol.normal_crps(*np.array([[0.3], [1.7], [-0.8]]))
    standard_error = found.std() / math.sqrt(found.size)
    assert abs(found.mean() - expected) < 5 * standard_error


def test_density_of_a_mixture_is_the_mean_of_the_densities(protocol):
    mean, sd = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[1.0, 2.0], [0.5, 3.0]])
    y = np.array([0.4, 5.0])
    expected = np.log(stats.norm(mean, sd).pdf(y).mean(axis=0))
    found = protocol.Normals(mean, sd)
    np.testing.assert_allclose(found.log_density(y), expected, rtol=1e-12)
    np.testing.assert_allclose(found.point, [1.0, 0.0])
    expected = stats.norm(mean, sd).cdf(y).mean(axis=0)
    np.testing.assert_allclose(found.cdf(y), expected, rtol=1e-12)


def test_scores_do_not_depend_on_how_many_rows_are_looked_at_together(
    protocol, monkeypatch
):
    random = np.random.default_rng(0)
    found = protocol.Normals(random.normal(size=(3, 7)), np.ones((3, 7)))
    whole = [found.log_density(np.zeros(7)), found.cdf(np.zeros(7))]
    monkeypatch.setattr(protocol, "ROWS", 2)
    parts = [found.log_density(np.zeros(7)), found.cdf(np.zeros(7))]
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
    assert found.crps(np.zeros(7)).shape == (7,)
