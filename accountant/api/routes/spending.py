"""The calls of pipelines: grants, settlements, invocations, batches, sparse vector sessions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from accountant.api.access import (
    Asker,
    Body,
    Call,
    GrantId,
    Idempotency,
    Name,
    Posted,
    Raw,
    Reader,
    Spender,
    TheService,
    of_a_population,
)
from accountant.api.answers import previews_view, respond_to_batch
from accountant.api.models import deciding
from accountant.api.models import spending as models
from accountant.api.polling import (
    POLLS,
    Patience,
)
from accountant.api.requests import (
    narrowed_to,
    only_own,
    read_batch,
)
from accountant.api.views import grant_view, listed, preview_view
from accountant.budget import commands as ask
from accountant.budget.errors import Problem

router = of_a_population("spending")
sessions = of_a_population("sparse vector")


@router.post("/grants", status_code=201)
@Call(models.Reservation, ask.AskGrant, topics="data asking refusal", waits=True)
def ask_grant(posted: Posted) -> JSONResponse:
    """Ask for budget before anything runs: 201 reserved, or 403 with the decision and what fits.

    A request that a person has to approve, and with `wait` one that limits alone hold up, is
    answered by 202 and waits, without holding budget, until it is admitted, declined or released,
    or times out. Send it again under the same key, or
    poll `grants/{id}?wait=30s`: it is admitted as a grant with an id of its own.
    """
    return posted(ask.AskGrant)


@router.get("/grants")
@Call(models.OpenGrants, topics="data own")
def list_grants(
    population: Name,
    key: Reader,
    service: TheService,
    state: Annotated[
        Literal["open", "waiting"],
        Query(description="those that are not settled yet, or requests that wait for budget"),
    ] = "open",
    client: Annotated[
        str | None, Query(max_length=64, description="only those of this client; me: your own")
    ] = None,
    dataset: Annotated[str | None, Query(description="only those on this dataset")] = None,
    after: Annotated[
        int, Query(ge=-1, le=2**53, description="only grants reserved after this sequence")
    ] = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JSONResponse:
    """List open grants in the order in which they were reserved, or the requests that wait in the
    order in which they came. A pipeline sees its own.

    A page holds at most `limit`; the last page has fewer. An `expired` grant has passed its time
    and will be charged.
    """
    wanted = key.name if client == "me" else narrowed_to(key) if client is None else client
    if wanted is not None:
        only_own(key, wanted, f"a grant of {wanted!r}")
    listing = service.waiting_grants if state == "waiting" else service.open_grants
    found, now = listing(population, wanted, dataset, after, limit)
    page: models.OpenGrants = {
        "grants": [listed(grant, now) for grant in found],
        "last": found[-1].sequence if found else after,
    }
    return JSONResponse(page)


@router.get("/grants/{grant}")
@Call(models.Grant, topics="grant own")
async def show_grant(
    population: Name,
    grant: GrantId,
    key: Reader,
    service: TheService,
    request: Request,
    wait: Patience = 0,
) -> JSONResponse:
    """Show a grant as it is now; with `wait`, once it does not wait for budget any more, or after
    that time. A pipeline sees its own.
    """
    first, _ = await run_in_threadpool(service.grant, population, grant)
    only_own(key, first.by, grant)  # the fields read below never change, so no lock is held
    gone = getattr(request.state, "gone", lambda: False)
    found, now = await POLLS.grant(service, population, grant, wait, gone)
    view = await run_in_threadpool(grant_view, service, population, found, now)
    return JSONResponse(view)


@router.post("/grants/{grant}/commit")
@Call(
    models.Settlement,
    ask.CommitGrant,
    within="grant",
    topics="grant own settling returning",
    proposes=True,
)
def commit_grant(grant: GrantId, posted: Posted) -> JSONResponse:
    """Commit what was run: all (empty body), or the listed part; the rest is given back."""
    return posted(ask.CommitGrant, grant=grant)


@router.post("/grants/{grant}/release")
@Call(
    models.Settlement,
    ask.ReleaseGrant,
    within="grant",
    topics="grant own settling returning",
    proposes=True,
)
def release_grant(grant: GrantId, posted: Posted) -> JSONResponse:
    """Release a grant: attest, with a reason, that nothing of it was executed on the data."""
    return posted(ask.ReleaseGrant, grant=grant)


@router.post("/grants/{grant}/republications", status_code=201)
@Call(models.Republished, ask.RepublishAnswer, within="grant", topics="grant own again")
def republish_answer(grant: GrantId, posted: Posted) -> JSONResponse:
    """Record that an answer of a committed grant is published again, unchanged. It costs nothing.

    Whether the bytes are those that were published before is the pipeline's word.
    """
    return posted(ask.RepublishAnswer, grant=grant)


@router.post("/invocations", status_code=201)
@Call(models.Record, ask.RecordInvocations, topics="data asking")
def record_invocations(posted: Posted) -> JSONResponse:
    """Record what has already run. It is always recorded, and flagged where it is over budget."""
    return posted(ask.RecordInvocations)


@router.post("/batch", status_code=201)
@Call(
    models.BatchAnswer,
    ask.BatchRequest,
    topics="data asking refusal grant own settling batch returning",
)
def batch(
    population: Name,
    key: Spender,
    body: Raw,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Answer many commands at once: commits, releases and grants, all or nothing; or invocations.

    If a rule blocks an item nothing of the batch happens: 403 with that item's decision, for good.
    If an item cannot be answered nothing happens either, and the key is not used up. `item` is its
    place. Items that give budget back count before those that ask for it, in whatever order they
    are listed.
    """
    parts, order = read_batch(key, body)
    try:
        asked = ask.Envelope.together(key.name, parts, idempotency)
        answer = service.execute(population, asked)
    except Problem as problem:
        if (item := problem.numbers.get("item")) is not None:
            problem.numbers["item"] = order[item]
            problem.detail = f"item {order[item]}: {problem.detail}"
        raise
    return respond_to_batch(service, answer, order)


@router.post("/preview")
@Call(deciding.Preview, ask.AskGrant, topics="data asking")
def preview(population: Name, key: Asker, body: Body, service: TheService) -> JSONResponse:
    """Show the decision that a request would get, and how many like it fit. Nothing is recorded."""
    command = ask.AskGrant.model_validate(body)
    return JSONResponse(preview_view(service.preview(population, key.name, command)))


@router.post("/preview/batch")
@Call(deciding.Previews, ask.PreviewRequest, topics="data asking batch")
def preview_batch(population: Name, key: Asker, body: Body, service: TheService) -> JSONResponse:
    """Show what each of several requests would get, after those before it that would be granted.

    Nothing is recorded, and no other request waits. Another request may come in between.
    """
    items = ask.PreviewRequest.model_validate(body).items
    return JSONResponse(previews_view(*service.preview_all(population, key.name, items)))


@sessions.post("/sparse-vector", status_code=201)
@Call(models.Reservation, ask.OpenSparseVector, topics="data asking refusal session")
def open_sparse_vector(posted: Posted) -> JSONResponse:
    """Open a sparse vector session: its whole cost is reserved."""
    return posted(ask.OpenSparseVector)


@sessions.post("/sparse-vector/{grant}/answers")
@Call(models.Counted, ask.CountAnswers, within="grant", topics="grant own settling session")
def count_answers(grant: GrantId, posted: Posted) -> JSONResponse:
    """Count answers given since the last count. Negatives are free."""
    return posted(ask.CountAnswers, grant=grant)


@sessions.post("/sparse-vector/{grant}/close")
@Call(
    models.Settlement,
    ask.CloseSparseVector,
    within="grant",
    topics="grant own settling session returning",
    proposes=True,
)
def close_sparse_vector(grant: GrantId, posted: Posted) -> JSONResponse:
    """Close a session: epsilon for positives that were not used is given back."""
    return posted(ask.CloseSparseVector, grant=grant)
