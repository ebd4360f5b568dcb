"""Where rows come from: the commit, the versions of packages, the machine."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "experiments", "benchmarks")
PACKAGES = ("farrier", "jax", "jaxlib", "equinox", "optax", "numpy", "scikit-learn")


@cache
def provenance() -> dict[str, Any]:
    """Commit, versions and machine of this process, taken at the first call.

    Later commits are not those of the modules that were imported by then.
    """
    commit, changed = _commit()
    return {
        "commit": commit,
        "sources_changed": changed,
        "versions": {package: version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }


def _commit() -> tuple[str | None, bool | None]:
    """The commit of the sources, and whether they differ from it; None if unknown."""
    folders = [str(ROOT / name) for name in SOURCES]
    try:
        changed = _git(ROOT, "status", "--porcelain", "--", *folders)
        return _git(ROOT, "rev-parse", "HEAD").strip(), bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None, None


@cache
def dates(root: Path = ROOT) -> dict[str, str] | None:
    """The date of each commit in the history of HEAD; None if it is not all there."""
    try:
        if _git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
            return None
        lines = _git(root, "log", "--format=%H %cs").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return {commit: date for commit, _, date in (s.partition(" ") for s in lines)}


def is_lost(commit: str | None, root: Path = ROOT) -> bool:
    """Whether a commit is named that the history does not have."""
    history = dates(root)
    return commit is not None and history is not None and commit not in history


def commit_text(commit: str | None, root: Path = ROOT) -> str:
    """A commit with its date, or that the repository does not have it."""
    if commit is None:
        return "unknown commit"
    if is_lost(commit, root):
        return f"commit {commit[:7]}, the commit is not in the repository"
    date = (dates(root) or {}).get(commit)
    return f"commit {commit[:7]}" + (f", {date}" if date else "")


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout
