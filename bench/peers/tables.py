"""The tables of the comparison, in Markdown, between marks of the page that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bench.peers.rows import ROUNDS, ROWS, THEIRS, Row

WAITING: Final = ("arrival", "dominant share", "efficiency")
OURS: Final = ("requests", "one by one", "planned", *WAITING, "no more than")
COLUMNS: Final = (*OURS, *(f"{rule}, {order}" for rule in (THEIRS, ROUNDS) for order in WAITING))
ILP: Final = "ILP by round"
"""Cohere's optimum of each round, which this service has no order for."""
BEGIN: Final = "<!-- written by `python -m bench.peers --write` -->"
END: Final = "<!-- end -->"
Results = dict[str, dict[str, int]]
"""Of each row and column the number."""
_NOTHING: Final = "–"


def rendered(results: Results) -> str:
    """Return what this service admits; then, by order, what the peers published, what their rule
    admits of our requests, and what the filter of this service does in their rounds and its own.
    """
    shown = [row for row in ROWS.values() if row.name in results]
    ours = [
        [row.name, f"`{row.unlock}`", *(_number(results, row, column) for column in OURS)]
        for row in shown
    ]
    theirs = [
        [row.name, order, _published(row, order)]
        + [_number(results, row, f"{rule}, {order}") for rule in (THEIRS, ROUNDS)]
        + [_number(results, row, order)]
        for row in shown
        if row.theirs
        for order in (*WAITING, ILP)
        if order != ILP or row.make().published
    ]
    heads = ["workload", "order", "published", "their rule, our requests"]
    heads += ["this filter, their rounds", "this service"]
    first = _table(["workload", "unlocks", *OURS], ours)
    return f"{first}\n\n{_table(heads, theirs)}"


def _published(row: Row, order: str) -> str:
    found = [f"{one.admitted:,.0f}" for one in row.make().published if one.order == order]
    return found[0] if found else _NOTHING


def replaced(page: str, text: str) -> str:
    """Return the page with another text between its marks. Raises ValueError without marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _number(results: Results, row: Row, column: str) -> str:
    found = results[row.name].get(column)
    return _NOTHING if found is None else f"{found:,}"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads), *map(list, rows)]
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)
