"""The calls under /v1/populations/{population}. Each reads, asks the service, and renders."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from accountant.api.access import (
    Administrator,
    Asker,
    Body,
    Idempotency,
    Overseer,
    Raw,
    Reader,
    Spender,
    ThePublisher,
    TheQuick,
    TheService,
    known_parameters,
    service_of,
)
from accountant.api.answers import amounts, preview_view, priced, respond, respond_to_batch
from accountant.api.grants import grant_view, in_names, listed
from accountant.api.requests import ask, key_from, only_own, read_batch
from accountant.budget.commands import (
    AdoptPolicy,
    AskGrant,
    CloseSparseVector,
    CommitGrant,
    CountAnswers,
    Envelope,
    OpenSparseVector,
    RecordInvocations,
    RegisterDataset,
    RegisterPopulation,
    ReleaseGrant,
)
from accountant.budget.errors import Forbidden, Invalid, Problem
from accountant.budget.facts import opened_by
from accountant.ledger.events import rfc3339
from accountant.reporting.files import rendered, report_of
from accountant.reporting.statement import accounts_json
from accountant.reporting.texts import Texts

router = APIRouter(prefix="/v1/populations/{population}", dependencies=[Depends(known_parameters)])

_REPORT_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""The page has its style within, and neither scripts nor pictures from elsewhere."""
_ID = r"^[a-z0-9][a-z0-9_.-]{0,63}$"
Population = Annotated[str, Path(pattern=_ID, description="the population's name")]
GrantId = Annotated[str, Path(pattern=r"^g\d{1,18}$", description="a grant's id")]


@router.put("", tags=["registering"])
def register_population(
    population: Population, key: Administrator, body: Body, service: TheService
) -> JSONResponse:
    """Register a population, or append values to its dimensions.

    A population is a set of people: one privacy unit, one neighbouring relation, and unchanging
    public attributes that put each unit in exactly one cell for life.
    """
    service.execute(population, ask(RegisterPopulation, key, body, None))
    with service.state(population) as state:
        return JSONResponse(state.people().to_json() | {"sequence": state.last})


@router.get("", tags=["registering"])
def show_population(population: Population, key: Reader, service: TheService) -> JSONResponse:
    """A population with its datasets and the policy in force."""
    with service.state(population) as state:
        adopted = state.adopted
        return JSONResponse(
            state.people().to_json()
            | {
                "sequence": state.last,
                "datasets": [
                    {
                        "id": d.id,
                        "namespace": d.namespace,
                        "name": d.name,
                        "owner": d.owner,
                        "parents": list(d.parents),
                    }
                    for d in state.datasets.values()
                ],
                "policy": adopted and {"digest": adopted.digest, **adopted.policy.to_json()},
            }
        )


@router.put("/datasets/{dataset}", tags=["registering"])
def register_dataset(
    population: Population,
    dataset: Annotated[str, Path(pattern=_ID)],
    key: Administrator,
    body: Body,
    service: TheService,
) -> JSONResponse:
    """Register a dataset about the population under a short id."""
    service.execute(population, ask(RegisterDataset, key, body, None, id=dataset))
    return JSONResponse(body | {"id": dataset})


@router.put("/policy", tags=["registering"])
def adopt_policy(
    population: Population,
    key: Administrator,
    body: Raw,
    service: TheService,
    request: Request,
    approver: Annotated[
        str | None,
        Header(
            alias="Accountant-Approver",
            description="`Bearer <key>` of another admin or officer; needed to loosen a policy",
        ),
    ] = None,
) -> JSONResponse:
    """Adopt a policy file (YAML or JSON). Loosening the one in force takes a second name."""
    try:
        from accountant.budget.policy_file import parse_policy  # noqa: PLC0415 YAML, seldom read

        policy, digest = parse_policy(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Invalid("malformed-policy", "the policy is not UTF-8 text") from None
    second = None
    if approver is not None:
        other = key_from(service_of(request), approver, "Accountant-Approver")
        if other.role not in ("admin", "officer"):
            raise Forbidden("role-not-allowed", f"{other.name} is no admin or officer")
        second = other.name
    command = AdoptPolicy(policy=policy.to_json(), source_digest=digest, approved_by=second)
    answer = service.execute(population, Envelope(key.name, command))
    changed = answer.events[0].body if answer.events else {}
    return JSONResponse(
        {
            "digest": digest,
            "adopted": bool(answer.events),
            "opens_epoch": opened_by(changed),
            **policy.to_json(),
        }
    )


@router.post("/grants", status_code=201, tags=["spending"])
def ask_grant(
    population: Population, key: Spender, body: Body, idempotency: Idempotency, service: TheService
) -> JSONResponse:
    """Ask for budget before anything runs: 201 reserved, or 403 with the decision and what fits."""
    return respond(service, service.execute(population, ask(AskGrant, key, body, idempotency)))


@router.get("/grants", tags=["spending"])
def list_grants(
    population: Population,
    key: Reader,
    service: TheService,
    state: Annotated[Literal["open"], Query(description="those that are not settled yet")] = "open",
    client: Annotated[
        str | None, Query(max_length=64, description="only those of this client; me: your own")
    ] = None,
    dataset: Annotated[str | None, Query(description="only those on this dataset")] = None,
    after: Annotated[
        int, Query(ge=-1, le=2**53, description="only grants reserved after this sequence")
    ] = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JSONResponse:
    """Grants that are open, in the order in which they were reserved. A pipeline sees its own.

    A page holds at most `limit`; the last page has fewer. `expired` are those whose time has passed
    and that are about to be charged.
    """
    wanted = key.name if client == "me" or (client is None and key.role == "pipeline") else client
    if wanted is not None:
        only_own(key, wanted, f"a grant of {wanted!r}")
    found, now = service.open_grants(population, wanted, dataset, after, limit)
    return JSONResponse(
        {
            "grants": [listed(grant, now) for grant in found],
            "last": found[-1].sequence if found else after,
        }
    )


@router.get("/grants/{grant}", tags=["spending"])
def show_grant(
    population: Population, grant: GrantId, key: Reader, service: TheService
) -> JSONResponse:
    """A grant's present state. A pipeline sees its own."""
    found, now = service.grant(population, grant)
    only_own(key, found.by, grant)  # what is read of it below never changes: no lock is held
    return JSONResponse(grant_view(service, population, found, now))


@router.post("/grants/{grant}/commit", tags=["spending"])
def commit_grant(
    population: Population,
    grant: GrantId,
    key: Spender,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Say what was really run: all (empty body), or a listed part; the rest comes back."""
    return respond(
        service, service.execute(population, ask(CommitGrant, key, body, idempotency, grant=grant))
    )


@router.post("/grants/{grant}/release", tags=["spending"])
def release_grant(
    population: Population,
    grant: GrantId,
    key: Spender,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Attest, with a reason, that none of it was executed on the data."""
    command = ask(ReleaseGrant, key, body, idempotency, grant=grant)
    return respond(service, service.execute(population, command))


@router.post("/invocations", status_code=201, tags=["spending"])
def record_invocations(
    population: Population, key: Spender, body: Body, idempotency: Idempotency, service: TheService
) -> JSONResponse:
    """Record what has already run: always recorded, flagged where it is over budget."""
    return respond(
        service, service.execute(population, ask(RecordInvocations, key, body, idempotency))
    )


@router.post("/batch", status_code=201, tags=["spending"])
def batch(
    population: Population,
    key: Spender,
    body: Raw,
    idempotency: Idempotency,
    service: TheService,
    quick: TheQuick,
) -> JSONResponse:
    """Many commands with one answer: commits, releases and grants, all or nothing; or invocations.

    If a rule blocks one item nothing of the batch happens: 403 with that item's decision, for good.
    If one item cannot be answered nothing happens either, and the key is not used up. `item` is its
    place. What gives budget back counts before what asks for it, however the items are listed.
    """
    parts, order = read_batch(quick, key, body)
    try:
        asked = Envelope.together(key.name, parts, idempotency)
        answer = service.execute(population, asked)
    except Problem as problem:
        if (item := problem.numbers.get("item")) is not None:
            problem.numbers["item"] = order[item]
            problem.detail = f"item {order[item]}: {problem.detail}"
        raise
    return respond_to_batch(service, answer, order)


@router.post("/preview", tags=["spending"])
def preview(population: Population, key: Asker, body: Body, service: TheService) -> JSONResponse:
    """The decision and its numbers without recording anything, and how many more would fit."""
    command = AskGrant.model_validate(body)
    return JSONResponse(preview_view(service.preview(population, key.name, command)))


@router.post("/sparse-vector", status_code=201, tags=["sparse vector"])
def open_sparse_vector(
    population: Population, key: Spender, body: Body, idempotency: Idempotency, service: TheService
) -> JSONResponse:
    """Open a sparse vector session: its whole cost is reserved."""
    return respond(
        service, service.execute(population, ask(OpenSparseVector, key, body, idempotency))
    )


@router.post("/sparse-vector/{grant}/answers", tags=["sparse vector"])
def count_answers(
    population: Population,
    grant: GrantId,
    key: Spender,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Count answers given since the last count. Negatives are free."""
    command = ask(CountAnswers, key, body, idempotency, grant=grant)
    return respond(service, service.execute(population, command))


@router.post("/sparse-vector/{grant}/close", tags=["sparse vector"])
def close_sparse_vector(
    population: Population,
    grant: GrantId,
    key: Spender,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Close a session: epsilon for positives that were not used comes back."""
    command = ask(CloseSparseVector, key, body, idempotency, grant=grant)
    return respond(service, service.execute(population, command))


@router.get("/accounts", tags=["reading"])
def show_accounts(
    population: Population,
    key: Reader,
    service: TheService,
    dataset: Annotated[str | None, Query(description="only this dataset")] = None,
    by: Annotated[str | None, Query(description="split by this dimension")] = None,
) -> JSONResponse:
    """Per rule: limit, spent, reserved, remaining, most charged group, lifetime total."""
    with service.state(population) as state:
        return JSONResponse(accounts_json(state, dataset, by))


@router.get("/report", tags=["reading"])
def show_report(
    population: Population,
    key: Overseer,
    service: TheService,
    publisher: ThePublisher,
    form: Annotated[Literal["html", "json", "csv"], Query(alias="format")] = "html",
) -> Response:
    """The compliance report."""
    media = {"html": "text/html", "json": "application/json", "csv": "text/csv"}[form]
    report = report_of(service, population, publisher.last_published(population))
    return Response(rendered(report, form), media_type=media, headers=_REPORT_HEADERS)


@router.get("/events", tags=["reading"])
def list_events(
    population: Population,
    key: Overseer,
    service: TheService,
    after: Annotated[
        int, Query(ge=-1, le=2**53, description="only events after this sequence")
    ] = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The ledger as it is. ``leaf`` is the hash of the event's canonical bytes in the tree."""
    service.known(population)
    rows = service.events(population, after + 1, limit)
    events = b",".join(
        b'{"event":' + row.body + b',"leaf":"' + row.leaf.hex().encode() + b'"}' for row in rows
    )
    last = rows[-1].sequence if rows else min(after, service.head(population).size - 1)
    return Response(
        b'{"events":[' + events + b'],"last":' + orjson.dumps(last) + b"}",
        media_type="application/json",
    )


@router.get("/events/{sequence}", tags=["reading"])
def show_event(
    population: Population,
    sequence: Annotated[str, Path(pattern=r"^\d{1,15}$")],
    key: Reader,
    service: TheService,
) -> Response:
    """One event, as its canonical bytes: what a receipt is about. A pipeline sees its own."""
    service.known(population)
    event = service.event(population, int(sequence))
    only_own(key, event.by, f"event {event.sequence}")
    return Response(event.to_bytes(), media_type="application/json")


@router.get("/decisions/{decision}", tags=["reading"])
def show_decision(
    population: Population,
    decision: Annotated[str, Path(pattern=r"^[dg]\d{1,18}$")],
    key: Reader,
    service: TheService,
) -> JSONResponse:
    """Every rule that was evaluated, with both sides of its comparison, and for each limit that
    fired the charges that used it up. Pipelines see their own decisions, without other clients.
    """
    with service.state(population) as state:
        pass  # what is read of it below are single values that never change: no lock is held
    event = service.event(population, int(decision[1:]))
    only_own(key, event.by, decision)
    explained = service.explain(population, event)
    decision_json = explained.decision.to_json()
    texts = Texts(partial(service.texts, population), page=1)
    document: dict[str, Any] = {
        "id": f"d{event.sequence}",
        "type": event.type,
        "sequence": event.sequence,
        "time": rfc3339(event.time),
        "client": event.by,
        "request": in_names(service, population, texts.opened(event).body["command"]),
        "charge": amounts(event.body["total"]),
        "mechanisms": priced(explained),
        **decision_json,
    }
    if key.role != "pipeline":
        # Imported late, as what makes reports is.
        from accountant.reporting.contributors import used_up_by  # noqa: PLC0415

        rows = service.stream(population)
        document["used_up_by"] = used_up_by(state, rows, decision_json, event.sequence, texts)
    return JSONResponse(document)
