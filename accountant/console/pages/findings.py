"""Findings, and open grants by age."""

from __future__ import annotations

from fastapi.responses import HTMLResponse

from accountant.console.access import pages
from accountant.console.facts.findings import findings, open_grants
from accountant.console.framing import Overseen, Population
from accountant.reporting.numbers import counted

router = pages()


@router.get("/{population}/findings")
def show_findings(population: Population, visit: Overseen) -> HTMLResponse:
    """Show what somebody should look into."""
    found = visit.ask(population, findings)
    total = sum(one.total for one in found.sorts)
    headline = f"{counted(total, 'finding')} in this ledger" if total else "Nothing was found"
    held = visit.ask(population, open_grants)
    return visit.page(
        "findings.html.j2", "findings", population, found=found, headline=headline, held=held
    )


@router.get("/{population}/grants")
def show_grants(population: Population, visit: Overseen) -> HTMLResponse:
    """Show the open grants, the oldest first."""
    found = visit.ask(population, open_grants)
    return visit.page("grants.html.j2", "findings", population, found=found)
