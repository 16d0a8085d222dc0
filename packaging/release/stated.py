"""What a tree says of its version, in every place that says it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

NAMED = (
    ("accountant/__init__.py", r'__version__ = "(.+)"'),
    ("pyproject.toml", r'^version = "(.+)"'),
    ("pyproject.toml", r'"privacy-accountant-client==(.+?)"'),
    ("packaging/client/pyproject.toml", r'^version = "(.+)"'),
    ("deploy/compose/compose.yaml", r"image: accountant:(\S+)"),
    ("deploy/kubernetes/kustomization.yaml", r"newTag: (\S+)"),
    ("docs/how-to/deploy.md", r"accountant:(\d\S+)"),
    ("SECURITY.md", r"^Version (\d+\.\d+\.\d+) is"),
)
"""Files, and how each names the version; every place in a file counts."""


def version(root: Path) -> str:
    """The version of the tree."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def faults(root: Path, *, draft: bool) -> list[str]:
    """Why this tree is not the release that it says it is; a ``draft`` may be uncommitted, and
    undated in the changelog.
    """
    found = list(_otherwise(root))
    if not draft:
        wanted = f"## [{version(root)}] - "
        if not any(line.startswith(wanted) for line in _lines(root / "CHANGELOG.md")):
            found.append(f"CHANGELOG.md: no heading '{wanted}<date>'")
        if git(root, "status", "--porcelain"):
            found.append("the tree has changes that are not committed")
    return found


def _otherwise(root: Path) -> Iterator[str]:
    right = version(root)
    for name, pattern in NAMED:
        places = re.findall(pattern, (root / name).read_text(), re.MULTILINE)
        if not places:
            yield f"{name}: names no version by {pattern}"
        for other in places:
            if other != right:
                yield f"{name}: version {other}, where pyproject.toml has {right}"


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def git(root: Path, *words: str) -> str:
    """What git says of the tree."""
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()
