"""An adapter says what to install, and what it cannot see."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {
    "opendp": ("opendp", "opendp"),
    "diffprivlib": ("diffprivlib", "diffprivlib"),
    "pipelinedp": ("pipeline_dp", "pipelinedp"),
    "dp_accounting": ("dp_accounting", "dp-accounting"),
}
"""The module that each adapter imports, and its extra."""


@pytest.mark.parametrize("adapter", LIBRARIES)
def test_without_its_library_an_adapter_says_what_to_install(adapter: str) -> None:
    """The ImportError names the extra, which there is."""
    module, extra = LIBRARIES[adapter]
    program = f"import sys; sys.modules[{module!r}] = None; import accountant.adapters.{adapter}"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert found.returncode == 1
    assert f"pip install 'privacy-accountant-client[{extra}]'" in found.stderr
    project = tomllib.loads((ROOT / "packaging/client/pyproject.toml").read_text())["project"]
    assert extra in project["optional-dependencies"]


@pytest.mark.parametrize("adapter", LIBRARIES)
def test_the_first_line_says_what_cannot_be_seen(adapter: str) -> None:
    """It is what a reader sees first."""
    places = ROOT / "accountant/adapters" / f"{adapter}.py", ROOT / "accountant/adapters" / adapter
    [place] = [each for each in places if each.exists()]
    code = (place if place.is_file() else place / "__init__.py").read_text(encoding="utf-8")
    first = (ast.get_docstring(ast.parse(code)) or "").splitlines()[0]
    assert "; cannot see " in first
