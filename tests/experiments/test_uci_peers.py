"""Other libraries on the tables: parts, limits, failures, table, claims."""

from pathlib import Path

import pytest

from benchmarks.environments import PeerError
from experiments import datasets, uci_peers
from experiments._harness import Work, read_rows
from experiments._names import RECIPES

ROOT = Path(__file__).parents[2]


def made_rows(peer, name, density, coverage=0.9, splits=3):
    row = {"peer": peer, "set": name, "rmse": 0.5, "log_density": density}
    row |= {"crps": 0.3, "coverage": coverage, "seconds": 2.0, "version": "1.2"}
    row |= {"note": "its defaults", "part": f"{peer}/{name}/0-4"}
    return [row | {"split": split} for split in range(splits)]


def failed(peer, name):
    row = {"peer": peer, "set": name, "missing": 3, "part": f"{peer}/{name}/0-4"}
    return row | {"error": "`python peer.py rows.npz` took more than 7.2e+03 s."}


def work_in(folder):
    return Work(folder, lambda share, text: None)


def run(tmp_path, shared_data, peer="straight_line"):
    numbers = range(3)
    return uci_peers.fit(
        uci_peers.SMOKE, shared_data, peer, "yacht", numbers, work_in(tmp_path)
    )


def test_parts_are_those_of_our_recipes_for_each_peer(tmp_path):
    names = list(uci_peers.parts(uci_peers.FULL, tmp_path))
    assert names[:2] == ["ngboost/boston/0-4", "ngboost/boston/5-9"]
    assert names[-1] == "bde/yacht/15-19"
    assert [n for n in names if "protein" in n] == [
        "ngboost/protein/0-4",
        "bde/protein/0-4",
    ]
    assert not [n for n in names if "year" in n]


def test_a_part_goes_by_the_files_of_its_peer_and_its_own_limit():
    of = lambda part: uci_peers.settings_of(uci_peers.FULL, part)
    assert "bde==" in str(of("bde/yacht/0-4")["asked"]["requirements.txt"])
    assert of("bde/yacht/0-4") != of("ngboost/yacht/0-4")
    assert of("bde/yacht/0-4")["seconds"] < of("bde/protein/0-4")["seconds"]
    assert "straight_line.py" in of("straight_line/yacht/0-1")["asked"]


def test_a_split_has_a_row_of_scores(tmp_path, shared_data):
    rows = run(tmp_path, shared_data)
    assert [row["split"] for row in rows] == [0, 1, 2]
    assert {"rmse", "log_density", "crps", "coverage", "seconds"} <= rows[0].keys()
    _, y, _ = datasets.uci("yacht", shared_data)
    assert all(0 < row["rmse"] < y.std() for row in rows)


def test_a_peer_that_is_too_slow_keeps_what_it_has(tmp_path, shared_data, monkeypatch):
    ended = PeerError("`python peer.py rows.npz` took more than 9 s.")
    good = dict.fromkeys(uci_peers.FIT_KEYS, 1.0) | {"split": 0}
    good |= {"versions": {"it": "1"}, "note": ""}
    monkeypatch.setattr(uci_peers, "answers_of", lambda *_: ([good], ended))
    scored, why = run(tmp_path, shared_data)
    assert scored["split"] == 0
    assert why["missing"] == 2
    assert "took more than 9 s" in why["error"]


def test_a_peer_that_cannot_be_installed_is_tried_again(
    tmp_path, shared_data, monkeypatch
):
    def door(*_):
        raise PeerError("`pip` ended with status 1: no\nsee https://index/simple")

    monkeypatch.setattr(uci_peers, "door", door)
    with pytest.raises(FileNotFoundError) as caught:
        run(tmp_path, shared_data, "bde")
    text = "bde could not be installed: `pip` ended with status 1"
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("`a` took more than 9 s.", "`a` took more than 9 s."),
        ("`a` ended: one\nValueError: no", "`a` ended: ValueError: no"),
        ("`a` ended: File 'here/there.py'", "`a` ended"),
    ],
)
def test_what_went_wrong_is_said_without_paths(text, short):
    assert uci_peers.brief(PeerError(text)) == short


def test_the_table_has_a_line_for_each_peer_and_names_what_failed():
    rows = made_rows("ngboost", "yacht", -0.3) + made_rows("bde", "yacht", -0.2)
    rows += [*made_rows("ngboost", "protein", -2.9), failed("bde", "protein")]
    text = uci_peers.table(rows)
    start = "| yacht | NGBoost | 3 | 0.500 ± 0 | 1.58 ± 0.051 | 0.70 ± 0.05 | -0.300"
    assert start in text
    assert "| yacht | bde | 3 |" in text
    assert "| protein | bde |" not in text
    assert "bde 1.2: its defaults." in text
    assert "- bde, protein/0-4: 3 of the splits. `python peer.py rows.npz`" in text
    figure = uci_peers.render(rows)["peers"]
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert [label for label in labels if label.startswith("bde")]
    assert uci_peers.render([failed("bde", "protein")]) == {}
    assert uci_peers.claims([failed("bde", "protein")]) == []


def test_a_mean_that_one_split_decides_stands_beside_its_median():
    rows = made_rows("bde", "wine", 0.5) + made_rows("bde", "yacht", 0.4)
    assert uci_peers.swamped(rows) == ""
    rows[0]["log_density"] = -585.0
    assert "- bde on wine: the median is 0.5, the worst -585.\n" in uci_peers.table(
        rows
    )
    assert "bde on yacht: the median" not in uci_peers.table(rows)


def test_a_density_that_is_far_off_is_written_at_the_edge():
    """So that all others can be told apart; what is near is drawn."""
    rows = made_rows("bde", "wine", -30.0) + made_rows("bde", "yacht", 0.4)
    _, right = uci_peers.render(rows)["peers"].axes
    assert [text.get_text() for text in right.texts] == ["← -29"]  # VMG has -0.95
    assert right.get_xlim()[0] > -10


def test_claims_on_intervals_and_on_one_peer_against_the_other():
    rows = made_rows("ngboost", "yacht", -0.3) + made_rows("bde", "yacht", -0.2)
    rows += made_rows("ngboost", "wine", -0.9, coverage=0.7)
    rows += made_rows("bde", "wine", -1.0)
    trees, networks, against = uci_peers.claims(rows)
    assert (trees.verdict, networks.verdict) == ("does not hold", "holds")
    assert trees.text.startswith("NGBoost: 90 %")
    assert against.verdict == "does not hold"
    assert "Better in 1 of 6 cells, level in 4, worse in 1 " in against.evidence
    assert "; worse: wine (log density)." in against.evidence
    yacht = [row for row in rows if row["set"] == "yacht"]
    for row in yacht:
        if row["peer"] == "bde":
            row |= {"rmse": 0.4, "crps": 0.2}
    assert uci_peers.claims(yacht)[-1].verdict == "holds"


def test_ours_stand_beside_each_peer_over_the_splits_of_both():
    peers = made_rows("ngboost", "yacht", -0.3) + made_rows("bde", "yacht", -0.2)
    peers += [*made_rows("bde", "wine", -1.0), failed("ngboost", "wine")]
    for row, gap in zip(peers, (0.1, 0.2, 0.3), strict=False):
        row["crps"] = 0.3 + gap
    ours = made_rows("", "yacht", -0.25, splits=4) + made_rows("", "wine", -1.0)
    text = uci_peers.beside(peers, {"default": ours})
    first, second = text.splitlines()
    assert first.startswith("- default, against NGBoost: better in 2 of 3 cells, level")
    assert first.endswith("; level: yacht (RMSE).")
    level = "level: yacht (RMSE, CRPS), wine (RMSE, log density, CRPS)"
    assert f"; {level}; worse: yacht (log density)." in second
    table = uci_peers.gaps_table(peers, ours)
    assert (
        "| yacht | +0 ± 0, level | +0.05 ± 0, better | -0.2 ± 0.06, better |" in table
    )


def test_readme_and_docs_have_the_verdicts_of_the_last_run():
    read = lambda name: read_rows(ROOT / f"results/{name}/rows.json")
    peers, recipes = read("uci-peers"), {r: read(f"uci-{r}") for r in RECIPES}
    expected = {
        "README.md": uci_peers.beside(peers, recipes),
        "docs/how-to/compare-honestly.md": uci_peers.gaps_table(
            peers, recipes["refined"]
        ),
    }
    for page, text in expected.items():
        found = (ROOT / page).read_text(encoding="utf-8")
        assert text in found, f"put this into {page}:\n{text}"
