"""Findings, and open grants by age."""

from __future__ import annotations

from typing import Final

from fastapi.responses import HTMLResponse

from accountant.console.access import pages
from accountant.console.facts.findings import findings, open_grants
from accountant.console.framing import Overseen, Population
from accountant.ledger.events import rfc3339
from accountant.reporting.numbers import counted

router = pages()
MOST: Final = 200
"""Reads without a grant that are listed, the latest."""


@router.get("/{population}/findings")
def show_findings(population: Population, visit: Overseen) -> HTMLResponse:
    """Show what somebody should look into."""
    found = visit.ask(population, findings)
    reads = visit.service.ledgers.ungranted(population, most=MOST)
    ungranted = visit.service.ledgers.count_ungranted(population)
    total = sum(one.total for one in found.sorts) + ungranted
    headline = f"{counted(total, 'finding')} in this ledger" if total else "Nothing was found"
    held = visit.ask(population, open_grants)
    return visit.page(
        "findings.html.j2",
        "findings",
        population,
        found=found,
        reads=[(one, rfc3339(one.last)) for one in reads],
        all_reads=ungranted,
        headline=headline,
        held=held,
    )


@router.get("/{population}/grants")
def show_grants(population: Population, visit: Overseen) -> HTMLResponse:
    """Show the open grants, the oldest first."""
    found = visit.ask(population, open_grants)
    return visit.page("grants.html.j2", "findings", population, found=found)
