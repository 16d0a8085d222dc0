"""The page on OpenDP does what it says."""

from __future__ import annotations

import contextlib
import io
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("opendp", reason="OpenDP is not installed")

from ledger import asked, counts

from accountant.adapters import opendp

if TYPE_CHECKING:
    from service import Running

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/opendp.md").read_text(encoding="utf-8")
POLICY = "policy: p\nrules:\n  - {id: lifetime, limit: {epsilon: 2}}\n"


def blocks(text: str) -> list[str]:
    """The Python of a page."""
    return re.findall(r"^```python\n(.+?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_examples_run_as_they_stand(served: Running) -> None:
    """In order, in one namespace with a client: each release has a grant, and what is printed is
    that strict mode stopped a bare measurement. Polars' part runs where it is installed.
    """
    plain, frames = PAGE.split("## Polars")
    code = [*blocks(plain), *(blocks(frames) if find_spec("polars") else [])]
    population, told = served.population(POLICY, "add_or_remove_one"), io.StringIO()
    with served.client(population) as ledger, contextlib.redirect_stdout(told):
        names: dict[str, Any] = {"ledger": ledger}
        for block in code:
            exec(compile(block, "opendp.md", "exec"), names)  # noqa: S102 our own page
    assert "without a grant" in told.getvalue()
    stated = asked(served, population)
    assert [each["kind"] for [each] in stated] == ["discrete_laplace"] * len(stated)
    wanted = 4 if find_spec("polars") else 3
    assert counts(served, population) == (wanted, wanted, 0, 0)
    assert isinstance(names["noisy"], int)


def test_the_page_lists_what_is_known_to_be_wrong() -> None:
    """Each row of ``KNOWN_WRONG`` is in the table, with what happens."""
    for row in opendp.KNOWN_WRONG:
        [line] = [line for line in PAGE.splitlines() if f"({row.source})" in line]
        assert row.below is None or f"before {row.below.removesuffix('.0')}" in line
        assert ("refused" in line) == (row.remedy == "refused")
