"""What pages import from adapters and the client is defined there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = re.compile(r"^from (accountant\.[\w.]+) import ([\w, ]+)$", re.MULTILINE)
PAGES = [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if IMPORTED.search(page.read_text())
]


def defined(module: str) -> set[str]:
    """The names that a module, or a package's first file, defines or imports."""
    place = ROOT / module.replace(".", "/")
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    found: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_imported_names_are_there(page: Path) -> None:
    """Each ``from accountant… import …`` of a page names what that module has."""
    for module, names in IMPORTED.findall(page.read_text()):
        wanted = {name.strip() for name in names.split(",")}
        assert wanted <= defined(module), f"{module}: {wanted - defined(module)}"
