"""Answers are made from the event alone, and are short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st
from support import Book, World, ask, declared, gaussian, hospital, laplace, make, sparse_vector

from accountant.api.answers import amounts, respond, respond_to_batch
from accountant.budget.facts import grant_in
from accountant.ledger.events import Entry, Event, rfc3339
from accountant.runtime.service import Answer

POLICY = """\
  - {id: a, limit: {epsilon: 1000, delta: 1e-3}, gate: renyi}
  - {id: b, per: client, limit: {epsilon: 1000}, action: flag}
  - {id: c, purposes: [ops], action: flag}
"""
MARKS = [
    ',"decision":{"id":"d4","rules":[]}',
    '","decision":{"id":"d4",',
    '"charges":[',
    ',"command":{"type":"',
    ',"expires":"',
    ',"grant":"g10"',
    ',"total":{}',
    ',"type":"',
    "\\",
    '\\"',
    "«ü»\u2028\U0001f9ee",
]
NOWHERE: Any = None
"""In place of the service, which answers to admitted requests do not read."""
TEXTS = st.lists(st.sampled_from(MARKS) | st.text(max_size=5), min_size=1, max_size=4).map("".join)
MECHANISMS = st.lists(
    st.sampled_from(
        [
            laplace("0.01"),
            laplace("0.01", count=3, claimed={"epsilon": "0.5"}),
            gaussian("0.1"),
            gaussian("0.1", "1e-6"),
            declared("0.1", "1e-9"),
        ]
    ),
    min_size=1,
    max_size=3,
)


def book() -> Book:
    """A ledger whose dimensions have the names of events' fields."""
    return hospital(POLICY, {"decision": ["id", "x"], "expires": ["type"], "total": ["grant"]})


def expected(event: Event) -> dict[str, Any]:
    """The answer to a reserved grant, made from the parsed event."""
    body = event.body
    return {
        "id": grant_in(event),
        "state": "reserved",
        "expires": rfc3339(event.time + body["command"].get("ttl_seconds", 3_600) * 10**6),
        "charge": amounts(body["total"]),
        "flags": [{"rule": rule, "code": code} for rule, code in body.get("fired", ())],
        "decision": f"d{event.sequence}",
        "sequence": event.sequence,
        "time": rfc3339(event.time),
    }


def answered(*events: Event) -> Answer:
    """The answer that these events are."""
    return Answer(tuple(map(Entry.of, events)))


@given(
    mechanisms=MECHANISMS,
    purpose=TEXTS,
    key=TEXTS,
    by=st.sampled_from(["pipe", "charges", "total", "type"]),
    group=st.sampled_from([None, {"decision": ["id"]}, {"decision": ["x"], "total": ["grant"]}]),
)
@example([laplace("0.01")], ",".join(MARKS), "".join(MARKS), "charges", {"decision": ["id"]})
def test_a_grant_is_answered_by_what_its_event_says(
    mechanisms: list[dict[str, Any]], purpose: str, key: str, by: str, group: Any
) -> None:
    """To the byte, whatever stands in the texts and keys, whatever dimensions are called, and
    whoever asks.
    """
    more = {"subjects": group} if group else {}
    asked = {"dataset": "d", "mechanisms": mechanisms, "purpose": purpose or "x"} | more
    event = book().do("ask_grant", by, key, **asked)
    assert event.type == "grant.reserved.v1"
    response = respond(NOWHERE, answered(event))
    assert response.body == orjson.dumps(expected(event))
    assert response.status_code == 201


def test_a_session_is_answered_by_what_its_event_says() -> None:
    """A sparse vector session is reserved like any grant."""
    event = book().do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    assert respond(NOWHERE, answered(event)).body == orjson.dumps(expected(event))


def test_items_are_answered_in_the_order_asked() -> None:
    """A batch's answer lists the answer that each item would get alone, in its place."""
    some = [make("ask_grant", dataset="d", mechanisms=[laplace(f"0.{n}")]) for n in (1, 2, 3)]
    header, *items = book().batch(*some)
    response = respond_to_batch(NOWHERE, answered(header, *items), [2, 0, 1])
    listed = [expected(items[1]), expected(items[2]), expected(items[0])]
    assert response.body == orjson.dumps({"sequence": header.sequence, "items": listed})


def test_a_refusal_is_answered_while_its_ledger_is_not_in_memory(
    world: Callable[..., World],
) -> None:
    """Where the next commit fails while a refusal is explained, it is told without advice, which is
    of the moment; no dataset is unknown by that.
    """
    made = world().hospital()
    assert made.post("/grants", ask(laplace(2))).json()["would_fit"] == {"scale": "2"}
    event = Event.from_bytes(made.stored()[-1])
    assert made.service.would_fit(event)
    made.service._projections.of("fair").drop()
    assert made.service.would_fit(event) == {}
    made.service.state("fair")  # which reads it back
    assert made.service.would_fit(event)
