"""The Python of the page on waiting runs as it stands."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from fences import blocks

from accountant import testing


def test_the_request_waits_and_says_how_much_was_admitted() -> None:
    """Of ten counts at epsilon 0.25 a limit of 1 admits four, and the page's code reads that; a
    limit of 3 admits all.
    """
    [block] = [
        one
        for one in blocks()
        if (one.page, one.language) == ("docs/how-to/wait-for-budget.md", "python")
    ]
    for epsilon, admitted in ((1, 4), (3, 10)):
        with testing.ledger(epsilon=epsilon) as ledger:
            names: dict[str, Any] = {"ledger": ledger}
            exec(compile(block.code, block.page, "exec"), names)  # noqa: S102 our own page
            assert names["admitted"] == admitted
            spent = ledger.accounts()["limit"].total.spent
            assert spent == admitted * Decimal("0.25")
