"""Settings of the documentation site; `make docs` builds it."""

import re
import warnings
from importlib.metadata import version as installed

from sphinx.application import Sphinx

import farrier

project = "farrier"
version = release = installed("farrier")
extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples", "gallery/*.py", "gallery/*.ipynb"]
root_doc = "index"
highlight_language = "none"  # blocks without a language are formulas and file trees
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
myst_heading_anchors = 3
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = f"farrier {version}"
html_static_path = ["_static"]
html_css_files = ["farrier.css"]
html_theme_options = {
    "show_nav_level": 2,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
    "footer_start": [],
    "footer_end": [],
}
html_sidebars = {"start": [], "api": []}
html_show_sourcelink = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "write_computation_times": False,
    "show_memory": False,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
}

# An example says in its text what a warning would say.
warnings.filterwarnings("ignore", category=farrier.TrainingWarning)


def plain_links(app: Sphinx, name: str, source: list[str]) -> None:
    """Links to files of the repository that are no pages become plain text."""
    del app, name
    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)", r"\1 (`\2`)", source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", plain_links)
