"""Figures as SVG elements of a page."""

import xml.etree.ElementTree as ET

import numpy as np

from farrier.views.report import figures

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def test_inputs_are_sorted_and_named_as_they_are():
    names = ["a & b", "<script>", "price $ and $", "x" * 60]
    shares = np.tile([0.1, 0.4, 0.2, 0.3], (50, 1))
    (svg,) = figures.inputs(names, shares)
    found = [text for text in texts(svg) if not text.replace(".", "").isdigit()]
    assert found[1:] == ["a & b", "price $ and $", "x" * 23 + "…", "<script>"]
    assert "<script>" not in svg


def test_many_inputs_give_the_largest():
    names = [f"x{index}" for index in range(50)]
    (svg,) = figures.inputs(names, np.tile(np.arange(50) / 100, (9, 1)))
    found = [text for text in texts(svg) if text.startswith("x")]
    assert found == [f"x{index}" for index in range(30, 50)]


def test_colours_are_those_of_the_page():
    pit = np.random.default_rng(0).uniform(size=100)
    histogram, curve = figures.calibration_of_pit(pit)
    for svg in (histogram, curve):
        assert "var(--blue)" in svg
        assert "var(--ink)" in svg
        assert not any(colour in svg for colour in figures.VARIABLES)
        root = ET.fromstring(svg)
        assert "width" not in root.attrib
        assert root.attrib["viewBox"]


def test_equal_figures_are_equal_bits():
    y = np.linspace(0, 1, 2_500)
    one, two = (figures.observed(y, y, "height") for _ in range(2))
    assert one == two
    assert one[0].count("<use") < 1_100  # not a mark for each row
