"""All accounts of a population, a page at a time, and the parts that divide their limits."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from accountant.console.facts.account import MOST_PARTS, Other, other, share_of
from accountant.console.facts.accounts import Row, ranked, row_of
from accountant.reporting.desk import Page
from accountant.reporting.statement import scopes
from accountant.reporting.verdict import in_words

EACH: Final = 200
"""Accounts on a page."""


class Listing(Struct, frozen=True):
    """A page of accounts, worst first. ``total``: accounts of the population; ``found``: those with
    the ``name`` that was asked for; ``parts``: the most used, and ``more`` are not listed.
    """

    population: str
    accounts: tuple[Row, ...]
    number: int
    found: int
    total: int
    unlimited: int
    troubled: int
    parts: tuple[Other, ...]
    more: int

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-self.found // EACH))


def listing(page: Page, name: str = "", number: int = 1) -> Listing:
    """Return a page of the accounts whose name contains ``name``, in any case."""
    state, found = page.followed.state, ranked(page)
    wanted = name.casefold()
    kept = [one for one in found if wanted in in_words(one.dataset).casefold()]
    number = min(max(1, number), max(1, -(-len(kept) // EACH)))
    limits = scopes(state) if state.population else []
    parts = [other(page, one) for one in limits if one.rule.divides]
    parts.sort(key=share_of, reverse=True)
    return Listing(
        population=state.ledger,
        accounts=tuple(row_of(page, one) for one in kept[(number - 1) * EACH : number * EACH]),
        number=number,
        found=len(kept),
        total=len(found),
        unlimited=sum(one.total is None for one in found),
        troubled=sum(one.total is not None and one.total.status != "within" for one in found),
        parts=tuple(parts[:MOST_PARTS]),
        more=max(0, len(parts) - MOST_PARTS),
    )
