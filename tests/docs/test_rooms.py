"""The code keeps to the house that ``accountant/README.md`` describes, in late imports too."""

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

HOUSE = Path(__file__).resolve().parents[2] / "accountant"
MOST_LOOSE = 4
"""Modules that may stand in no room."""


@pytest.mark.parametrize("package", ["accountant", "examples", "handbook"])
def test_no_module_imports_itself(package: str) -> None:
    """No module comes back to itself by what it imports, at its top or inside a function; imports
    that only the type checker reads do not count.
    """
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imported).prepare()  # raises CycleError, which names a circle


def test_few_modules_stand_loose() -> None:
    """All modules but a few are in a room."""
    loose = {path.stem for path in HOUSE.glob("*.py")} - {"__init__"}
    assert len(loose) <= MOST_LOOSE, loose
