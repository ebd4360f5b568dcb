"""The whole page: what it says, and how a browser shows it."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from farrier import (
    HorseshoeClassifier,
    HorseshoeRegressor,
    Training,
    write_report,
)
from farrier.tables import learn
from farrier.tables.model import TableModel

# Nearly all nodes of networks as small as these are active, which is a warning.
pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = {
    "hidden_layer_sizes": (6,),
    "training": Training(learning_rate=0.03, max_iter=200),
    "n_draws": 32,
    "random_state": 0,
}
SECTIONS = "predictions calibration inputs nodes training worst data settings".split()
NASTY = "<img src=x onerror=alert(1)> & $x"
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 25, 31)"}


def table(rows=90, seed=0):
    """A table with a category, missing values and names that are not safe as HTML."""
    random = np.random.default_rng(seed)
    size = random.uniform(-1, 1, rows)
    job = random.choice(["cook", "smith", NASTY], rows)
    frame = pd.DataFrame({"size": size, NASTY: job, "noise": random.normal(size=rows)})
    frame.loc[:3, "noise"] = np.nan
    pay = 3 * size + (job == "smith") + 0.2 * random.normal(size=rows)
    return frame.assign(pay=pay)


@pytest.fixture(scope="module")
def model():
    frame = table()
    columns = learn([frame], "pay", missing="impute").columns
    estimator = HorseshoeRegressor(**SMALL)
    estimator.fit(columns.features(frame), columns.targets(frame))
    return TableModel(columns, estimator, {"file": "jobs.csv", "rows": len(frame)})


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    """The page of a regression with a table."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(model, table(60, seed=1), path)
    return path


class Reader(HTMLParser):
    """Tags, addresses and text of a page; complains where tags do not close."""

    empty = ("meta", "link", "br", "img", "use", "path", "rect")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.addresses, self.words = [], [], [], []
        self.ids = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.addresses += [found[k] for k in ("src", "href", "srcset") if k in found]
        self.ids += [found["id"]] if "id" in found else []
        if tag not in self.empty:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.empty:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.empty:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_sections_and_facts(page, model):
    read = Reader(page.read_text(encoding="utf-8"))
    assert [name for name in read.ids if name in SECTIONS] == SECTIONS
    assert read.tags.count("svg") == 6
    text = read.text
    assert "Report on pay" in text
    assert "Fitted to 90 rows of jobs.csv, tested here on 60." in text
    mean = model.predict(table(60, seed=1))
    rmse = np.sqrt(np.mean((mean - table(60, seed=1)["pay"]) ** 2))
    assert f"root mean square error {rmse:.4g}" in text
    assert "90 % interval" in text
    assert "Training: whole budget used; 200 steps in " in text
    assert "if the ELBO still rises, use a larger max_iter" in text
    history = model.estimator.history_
    assert f"at the end: {history.elbo[-1] / 90:.3f} nats per row" in text
    active = f"{model.estimator.widths_[0]} of 6 active nodes"
    assert active in text
    inside = model.scores(table(60, seed=1))
    for level in (50, 80, 90, 95):
        assert f"{level} % {100 * inside[f'coverage_{level}']:.1f} %" in text
    worst = model.log_density(table(60, seed=1)).argmin()
    first = text.index("Worst rows The rows whose")
    assert f"noise {worst + 1} " in text[first : first + 500]


def test_it_needs_no_network_and_no_scripts(page):
    text = page.read_text(encoding="utf-8")
    read = Reader(text)
    assert "script" not in read.tags
    assert all(address.startswith(("#", "data:")) for address in read.addresses)
    hosts = set(re.findall(r"https?://([^/\"]+)", text))
    assert hosts <= {"www.w3.org"}  # the name space of SVG, which is not fetched
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_text_is_escaped(page):
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt; &amp; $x") >= 3
    assert "img" not in Reader(text).tags


def test_of_a_classifier_with_an_array(tmp_path):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (150, 3))
    y = np.array(["low", "mid", "top"])[(X[:, 0] > -0.3) * 1 + (X[:, 0] > 0.3)]
    model = HorseshoeClassifier(**SMALL).fit(X[:100], y[:100])
    write_report(model, (X[100:], y[100:]), tmp_path / "report.html")
    read = Reader((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [name for name in read.ids if name in SECTIONS] == SECTIONS
    wrong = np.mean(model.predict(X[100:]) != y[100:])
    assert f"error rate {100 * wrong:.2f} %" in read.text
    assert "observed ↓ predicted → low mid top" in read.text
    assert "Classification by a Bayesian neural network" in read.text
    assert "probability of the predicted class" in read.text


def test_wrong_arguments_are_named(model, tmp_path):
    estimator = model.estimator
    with pytest.raises(TypeError, match=r"pair `\(X, y\)`, got DataFrame"):
        write_report(estimator, table(), tmp_path / "report.html")
    with pytest.raises(TypeError, match="TableModel, got str"):
        write_report("model", table(), tmp_path / "report.html")
    with pytest.raises(TypeError, match=r"a fitted .* got HorseshoeRegressor"):
        write_report(HorseshoeRegressor(), table(), tmp_path / "report.html")
    with pytest.raises(ValueError, match="one target, but `y` has 2 columns"):
        write_report(estimator, (np.ones((3, 2)), np.ones((3, 2))), tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_missing_jinja_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"farrier\[report\]"):
        write_report(model, table(60, seed=1), tmp_path / "report.html")


# -- in a browser ----------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
in_a_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed on this machine"
)
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync
--hide-scrollbars --enable-logging=stderr""".split()
SCHEMES = {"dark": 0, "light": 1}  # numbers of Chromium's own setting
FRAMES = """<!doctype html><pre id="out"></pre>
<iframe id="phone" src="report.html" style="width:360px;height:700px"></iframe>
<iframe id="laptop" src="report.html" style="width:1280px;height:700px"></iframe>
<script>onload = () => {
  const out = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const shown = [...page.querySelectorAll("section, svg")];
    out[frame.id] = {
      beyond: root.scrollWidth - root.clientWidth,
      paper: getComputedStyle(page.body).backgroundColor,
      small: shown.filter(e => e.getBoundingClientRect().height < 50).length,
      shown: shown.length,
    };
  }
  document.getElementById("out").textContent = JSON.stringify(out);
};</script>"""


def browse(folder, address, scheme, *arguments):
    """What Chromium prints of a page, after checking that it did not complain."""
    log = folder / "net.json"
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    command += [f"--log-net-log={log}", "--allow-file-access-from-files"]
    command += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    done = subprocess.run(
        [*command, *arguments, address.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    # Chromium asks its maker for updates whatever its flags say; the page for nothing.
    asked = set(re.findall(r'"url":"https?://([^/"]+)', log.read_text()))
    own = {host for host in asked if host.endswith(("google.com", "googleapis.com"))}
    assert asked == own
    return done.stdout


@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_laptop_and_a_phone(page, scheme, tmp_path):
    frames = page.with_name("frames.html")
    frames.write_text(FRAMES, encoding="utf-8")
    dom = browse(tmp_path, frames, scheme, "--dump-dom")
    (text,) = re.findall(r'<pre id="out">(.*?)</pre>', dom)
    found = json.loads(text)
    expected = {"beyond": 0, "paper": PAPER[scheme], "small": 0, "shown": 14}
    assert found == {"phone": expected, "laptop": expected}


@in_a_browser
@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1280), ("dark", 1280), ("dark", 500)]
)
def test_screenshot(page, scheme, width, tmp_path):
    """The page has its own colour around, and something on it."""
    picture = tmp_path / "page.png"
    size = f"--window-size={width},4000"
    browse(tmp_path, page, scheme, size, f"--screenshot={picture}")
    pixels = np.round(255 * mpl.image.imread(picture)[..., :3]).astype(int)
    assert pixels.shape == (4000, width, 3)
    paper = np.array(re.findall(r"\d+", PAPER[scheme]), int)
    assert (pixels[:, 2] == paper).all()
    inked = (pixels != paper).any(axis=2)
    assert 0.02 < inked.mean() < 0.5
