"""What can be asked of the service, once for both clients."""

from __future__ import annotations

import json
from collections.abc import (
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import (
    replace,
)
from hashlib import (
    sha256,
)
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    TypedDict,
    Unpack,
)
from urllib.parse import quote, urlencode

from accountant.client import results
from accountant.client.errors import Body
from accountant.client.files import Bundle
from accountant.client.mechanisms import Mechanism
from accountant.client.transport import (
    Call,
    booked,
    document,
    fetch,
    get,
    post,
    present,
    put,
    repeated,
)

if TYPE_CHECKING:
    import httpx2

PART: Final = 200_000  # Bytes of names in one request; a service takes 1,000,000 unless told less
WAITS: Final = "waiting"
"""The state of a request that waits."""
_POLL: Final = 30
PAGE: Final = 500  # The most grants or events in one page
_MINUTES: Final = 900.0  # Seconds in which the service reads a long ledger from its beginning

Datasets = str | Sequence[str]
"""A dataset by its id, or all datasets that one query reads."""
Group = Mapping[str, Sequence[str] | Mapping[str, str]]
Subjects = Group | Sequence[Group]
"""A subject group: ``{"age": ["20-24"]}``, a range with from and to, or a list of these."""


class About(TypedDict, total=False):
    """The optional fields of every request. None is not sent."""

    subjects: Subjects | None
    purpose: str | None
    justification: str | None
    allotment: str | None


class Asked(About, total=False):
    """Also of a request for a reservation: the seconds until it expires; how long it may wait for
    budget or a person (seconds, or ``7d``), the least count that is accepted then, and an address
    to which is told what became of it; its key if no item.
    """

    ttl_seconds: int | None
    wait: int | str | None
    at_least: int | None
    callback: str | None
    idempotency_key: str | None


class Ran(About, total=False):
    """Also of a record of a past run: its time (RFC 3339); its key if it is no item."""

    ran_at: str | None
    idempotency_key: str | None


class Reserved(NamedTuple):
    """The answer to a request for a reservation. ``earlier``: an earlier run may have got it."""

    body: Body
    repeated: bool
    earlier: bool


class Settles(TypedDict, total=False):
    """What may come with the end of a reservation."""

    idempotency_key: str | None


def reserve(path: str, idempotency_key: str | None = None, **asked: Any) -> Call[Reserved]:
    """Ask for a grant (``/grants``) or a session (``/sparse-vector``)."""
    return reserve_as(path, asked, idempotency_key)


def reserve_as(path: str, asked: Body, idempotency_key: str | None = None) -> Call[Reserved]:
    """Ask for what a document says."""
    named = idempotency_key is not None  # only a key that the caller chose can be an earlier run's

    def read(response: Any) -> Reserved:
        again = repeated(response)
        return Reserved(document(response), again, again and named)

    return post(path, read, asked, idempotency_key=idempotency_key)


def commit(
    grant: str, mechanisms: Sequence[Mechanism] | None = None, **more: Unpack[Settles]
) -> Call[results.Settlement]:
    """Report what was executed: everything, or only the listed mechanisms."""
    return post(f"/grants/{grant}/commit", _settlement, {"mechanisms": mechanisms}, **more)


def release(grant: str, reason: str, **more: Unpack[Settles]) -> Call[results.Settlement]:
    """Attest that nothing was executed on the data."""
    return post(f"/grants/{grant}/release", _settlement, {"reason": reason}, **more)


def republish(
    grant: str, dataset: Datasets, answer: bytes | str, idempotency_key: str | None
) -> Call[results.Republished]:
    """Report that an answer of a committed grant, by its bytes or its SHA-256 in hex, is published
    again.
    """
    digest = answer if isinstance(answer, str) else sha256(answer).hexdigest()
    body = {"dataset": dataset if isinstance(dataset, str) else list(dataset), "answer": digest}

    def read(response: httpx2.Response) -> results.Republished:
        return results.Republished(document(response))

    path = f"/grants/{grant}/republications"
    return post(path, read, body, idempotency_key=idempotency_key)


def count(grant: str, positives: int, negatives: int) -> Call[results.Counted]:
    """Count the answers of a session."""
    body = {"positives": positives, "negatives": negatives}
    path = f"/sparse-vector/{grant}/answers"
    return post(path, lambda r: results.Counted(document(r)), body)


def close(grant: str, **more: Unpack[Settles]) -> Call[results.Settlement]:
    """End a session."""
    return post(f"/sparse-vector/{grant}/close", _settlement, {}, **more)


def record(
    dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Ran]
) -> Call[results.Recorded]:
    """Record what already ran."""
    key = more.pop("idempotency_key", None)
    return record_as({"dataset": dataset, "mechanisms": mechanisms, **more}, key)


def record_as(ran: Body, idempotency_key: str | None = None) -> Call[results.Recorded]:
    """Record what a document says."""
    return post("/invocations", _recorded, ran, idempotency_key=idempotency_key)


def batch(items: Sequence[Body], idempotency_key: str | None = None) -> Call[list[Body]]:
    """Send many items in one commit."""

    def read(response: Any) -> list[Body]:
        return list(document(response)["items"])

    return post("/batch", read, {"items": items}, idempotency_key=idempotency_key)


def preview(
    dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[About]
) -> Call[results.Preview]:
    """Ask for the decision that a grant would get."""
    return preview_of({"dataset": dataset, "mechanisms": mechanisms, **more})


def preview_of(asked: Body) -> Call[results.Preview]:
    """Ask for the decision on what a document says."""
    return post("/preview", lambda r: results.Preview(document(r)), asked)


def preview_batch(items: Sequence[Body]) -> Call[results.Previews]:
    """Ask for the decisions that several grants would get, one after another."""
    asked = [{name: value for name, value in item.items() if name != "type"} for item in items]
    return post("/preview/batch", lambda r: results.Previews(document(r)), {"items": asked})


def open_grants(
    client: str | None, dataset: str | None, after: int
) -> Call[tuple[list[results.GrantState], int]]:
    """Read a page of open grants."""

    def read(body: Body) -> tuple[list[results.GrantState], int]:
        return list(map(results.GrantState, body["grants"])), body["last"]

    query = {"client": client, "dataset": dataset, "after": after}
    return get("/grants", read, state="open", limit=PAGE, **query)


def events(after: int) -> Call[tuple[list[Body], int]]:
    """Read a page of the ledger."""
    return get("/events", lambda body: (body["events"], body["last"]), after=after, limit=PAGE)


def grant_state(grant: str) -> Call[results.GrantState]:
    """Read a grant as it is now."""
    return get(f"/grants/{quote(grant)}", results.GrantState)


def polled(grant: str) -> Call[results.GrantState]:
    """Read a grant once it does not wait any more, or in half a minute."""
    call = get(f"/grants/{quote(grant)}", results.GrantState, wait=_POLL)
    return replace(call, patience=_POLL + 10.0)


def decision(decision: str) -> Call[results.Decision]:
    """Read a decision in full."""
    return get(f"/decisions/{quote(decision)}", results.Decision)


def accounts(dataset: str | None, by: str | None) -> Call[results.Accounts]:
    """Read all accounts."""
    return get("/accounts", results.Accounts, dataset=dataset, by=by)


def population() -> Call[Body]:
    """Read the population with its datasets and its policy."""
    return get("", dict)


def receipt(sequence: int) -> Call[bytes]:
    """Read the proof that an event is in the ledger."""
    return fetch(f"/receipts/{sequence}")


def event(sequence: int) -> Call[bytes]:
    """Read the canonical bytes of an event."""
    return fetch(f"/events/{sequence}")


def report(form: str, period: Mapping[str, str | None]) -> Call[bytes]:
    """Read the report; of a ``period`` by the names of its parameters."""
    return fetch("/report", patience=_MINUTES, format=form, **period)


def evidence(into: Bundle, first: int | None, last: int | None, *, texts: bool) -> Call[Body]:
    """Read the ledger as a bundle."""

    def read(response: Any) -> Body:
        return into.manifest() if response.is_success else document(response)

    query = {"from": first, "to": last, "texts": None if texts else "no"}
    return Call("GET", "/evidence", read, query=present(query), into=into, patience=_MINUTES)


def checkpoint() -> Call[bytes]:
    """Read the last published checkpoint."""
    return fetch("/log/checkpoint")


def register_population(
    privacy_unit: str,
    neighbouring: str,
    membership: str,
    dimensions: Mapping[str, Sequence[str]],
    fixed: Mapping[str, str] | None,
    units: Mapping[str, Mapping[str, str | int]] | None = None,
) -> Call[Body]:
    """Register the population, append values to its dimensions, or state further units."""
    body: dict[str, Any] = {"privacy_unit": privacy_unit, "neighbouring": neighbouring}
    body |= {"membership": membership, "dimensions": dimensions} | present(
        {"fixed": fixed, "units": units}
    )
    return put("", _json(body), "application/json")


def append_values(
    dimension: str, first: int, values: Sequence[str], fixed: Mapping[str, str] | None = None
) -> Call[Body]:
    """Append values to a dimension, the first of which stands at place ``first``."""
    body = {"first": first, "values": list(values)} | present({"fixed": fixed})
    headers = {"Content-Type": "application/json"}
    path = f"/dimensions/{quote(dimension, safe='')}/values"
    return Call("POST", path, document, _json(body), headers)


def cut(values: Sequence[str], most: int, first: int = 0) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the values from place ``first`` on in parts of some ``most`` bytes, at least one value
    each, with the place of each part.
    """
    start = first
    while start < len(values):
        size, end = 0, start
        while end < len(values) and size < most:
            size += len(json.dumps(values[end])) + 2
            end += 1
        yield start, values[start:end]
        start = end


def register_dataset(dataset: str, **fields: Any) -> Call[Body]:
    """Register a dataset."""
    return put(f"/datasets/{quote(dataset)}", _json(present(fields)), "application/json")


def adopt_policy(text: str, closes: Sequence[str], proposal_days: int | None = None) -> Call[Body]:
    """Adopt a policy file."""
    given = present({"closes": closes or None, "proposal_days": proposal_days})
    query = f"?{urlencode(given, doseq=True)}" if given else ""
    return put(f"/policy{query}", text.encode(), "application/yaml")


def proposals(state: str = "any", *, of_keys: bool = False) -> Call[list[Body]]:
    """Read the proposals, of the population or of keys, those that can be confirmed first."""
    call = get("/proposals", lambda body: list(body["proposals"]), state=state, limit=PAGE)
    return replace(call, of_keys=of_keys)


def proposal(number: int, *, of_keys: bool = False) -> Call[Body]:
    """Read a proposal."""
    return replace(get(f"/proposals/{number}", dict), of_keys=of_keys)


def confirm(
    number: int,
    digest: str,
    reason: str | None = None,
    idempotency_key: str | None = None,
    *,
    of_keys: bool = False,
) -> Call[Body]:
    """Confirm a proposal of another person."""
    path, body = f"/proposals/{number}/confirm", present({"digest": digest, "reason": reason})
    call = post(path, document, body, idempotency_key=idempotency_key)
    return replace(call, of_keys=of_keys)


def decline(
    number: int, reason: str, idempotency_key: str | None = None, *, of_keys: bool = False
) -> Call[Body]:
    """Decline a proposal, or withdraw one's own."""
    path = f"/proposals/{number}/decline"
    call = post(path, document, {"reason": reason}, idempotency_key=idempotency_key)
    return replace(call, of_keys=of_keys)


def state_verification(
    size: int, root: str, findings: int, *, decided: bool, reason: str | None = None
) -> Call[Body]:
    """Record the result of a verification."""
    said = {"size": size, "root": root, "findings": findings, "decided": decided, "reason": reason}
    return post("/verifications", document, present(said))


def approvals() -> Call[list[Body]]:
    """Read the requests that wait for a person."""
    return get("/approvals", lambda body: list(body["approvals"]), limit=PAGE)


def approve(
    grant: str, digest: str, reason: str | None = None, idempotency_key: str | None = None
) -> Call[Body]:
    """Approve a request of another person."""
    body = present({"digest": digest, "reason": reason})
    path = f"/approvals/{quote(grant)}/approve"
    return post(path, document, body, idempotency_key=idempotency_key)


def decline_grant(
    grant: str, digest: str, reason: str, idempotency_key: str | None = None
) -> Call[Body]:
    """Decline a request of another person."""
    body = {"digest": digest, "reason": reason}
    path = f"/approvals/{quote(grant)}/decline"
    return post(path, document, body, idempotency_key=idempotency_key)


def grant_item(dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Asked]) -> Body:
    """Return the request for a grant as an item of a batch."""
    return _item("ask_grant", dataset=dataset, mechanisms=mechanisms, **more)


def commit_item(grant: str, mechanisms: Sequence[Mechanism] | None = None) -> Body:
    """Return the commit of a grant, whole or of the listed mechanisms, as an item of a batch."""
    return _item("commit_grant", grant=grant, mechanisms=mechanisms)


def release_item(grant: str, reason: str) -> Body:
    """Return the release of a grant as an item of a batch."""
    return _item("release_grant", grant=grant, reason=reason)


def record_item(dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Ran]) -> Body:
    """Return the record of what already ran as an item of a batch."""
    return _item("record_invocations", dataset=dataset, mechanisms=mechanisms, **more)


def _item(kind: str, **fields: Any) -> Body:
    return present({"type": kind, **fields})


def _settlement(response: Any) -> results.Settlement:
    return results.Settlement(booked(response))


def _recorded(response: Any) -> results.Recorded:
    return results.Recorded(booked(response))


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()
