"""The auditor's page: checkpoints, witnesses, what happened to the ledger itself, the bundle."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, Response
from msgspec import Struct

from accountant.api.access import OVERSEE
from accountant.budget.policy import NO_WITNESSES, Publication
from accountant.console.access import Form, form, pages
from accountant.console.facts.home import custody
from accountant.console.framing import Overseen, Population, Visit
from accountant.door.sending import FileResponse
from accountant.publishing.evidence import written
from accountant.store.ledgers import Signed

router = pages()
MOST: Final = 20
"""Checkpoints that are listed, the latest."""


class Shown(Struct, frozen=True):
    """A checkpoint: its number, the events that it is of, the root in hex, who cosigned it."""

    number: int
    size: int
    root: str
    origin: str
    witnesses: tuple[str, ...]


@router.get("/{population}/evidence")
def show_evidence(population: Population, visit: Overseen) -> HTMLResponse:
    """Show by what an auditor can prove that nothing was changed."""
    facts = visit.ask(population, custody)
    adopted, _ = visit.service.in_force(population)
    asks: Publication = adopted.policy.publication if adopted else NO_WITNESSES
    newest = islice(visit.publisher.log(population).newest(), MOST)
    return visit.page(
        "evidence.html.j2",
        "evidence",
        population,
        ledger=facts,
        checkpoints=[_shown(one) for one in newest],
        witnesses=[str(one.verifier.name) for one in asks.witnesses],
        required=asks.required,
        key=_key(visit, population),
        wrong=[one for one in facts.verified if one.findings],
    )


def _shown(signed: Signed) -> Shown:
    head = signed.head
    names = tuple(name for name, _ in signed.cosignatures)
    return Shown(signed.number, head.size, head.root.hex(), head.origin, names)


def _key(visit: Visit, population: str) -> str:
    """Return the verifier key that the ledger names now; empty before there is one."""
    _, found = visit.service.in_force(population)
    return found.keys[-1].text if found.keys else ""


Sent = Annotated[Form, Depends(form(optional=("texts",), roles=OVERSEE))]


@router.post("/{population}/evidence/bundle")
def send_bundle(population: Population, request: Request, sent: Sent, visit: Overseen) -> Response:
    """Send the ledger as a bundle, up to a checkpoint that is signed now."""
    visit.service.known(population)
    found = written(
        visit.service,
        visit.publisher,
        population,
        0,
        None,
        with_texts=sent.fields.get("texts") == "yes",
        gone=request.state.gone,
    )
    name = f'attachment; filename="{population}-{found.signed.size}.tar"'
    headers = {"Content-Disposition": name}
    return FileResponse(found.file, found.size, "application/x-tar", headers)
