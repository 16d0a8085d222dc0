"""The page on other libraries does what it says, where they are installed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ledger import asked, counts

if TYPE_CHECKING:
    from service import Running

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/adapters.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)\n(.+?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
LIBRARIES = {"diffprivlib": "diffprivlib", "PipelineDP": "pipeline_dp"} | {
    "dp_accounting": "dp_accounting"
}
KINDS = {
    "diffprivlib": [["declared"]],
    "PipelineDP": [["laplace", "laplace", "declared"]],
    "dp_accounting": [["laplace"], ["laplace"]],
}
POLICY = """
policy: p
rules:
  - {id: lifetime, limit: {epsilon: 2, delta: 1e-3}}
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_example_runs_as_it_stands(served: Running, library: str) -> None:
    """Each grant of it is asked for the mechanisms that the page tells of, and committed."""
    if find_spec(LIBRARIES[library]) is None:
        pytest.skip(f"{library} is not installed")
    [block] = re.findall(r"^```python\n(.+?)^```", SECTIONS[library], re.DOTALL | re.MULTILINE)
    population = served.population(POLICY, "add_or_remove_one")
    with served.client(population) as ledger:
        names: dict[str, Any] = {"ledger": ledger}
        exec(compile(block, "adapters.md", "exec"), names)  # noqa: S102 our own page
    kinds = [[each["kind"] for each in grant] for grant in asked(served, population)]
    assert kinds == KINDS[library]
    assert counts(served, population) == (len(kinds), len(kinds), 0, 0)


def test_every_section_has_an_example_that_is_run() -> None:
    """No library is told of without one."""
    assert SECTIONS.keys() == LIBRARIES.keys()
