"""Events: canonical bytes, and the form of times."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from accountant.ledger.events import (
    MAX_BYTES,
    Event,
    EventTooLarge,
    canonical,
    digest,
    microseconds,
    rfc3339,
)

LATEST = microseconds("9999-12-31T23:59:59.999999Z")
EARLIEST = microseconds("1000-01-01T00:00:00.000000Z")

# Everything that JSON text can be, control characters and astral planes included.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = st.text(st.characters(max_codepoint=127), max_size=8)
integers = st.integers(-(2**53) + 1, 2**53 - 1)
documents = st.recursive(
    st.none() | st.booleans() | integers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)
OWN_FIELDS = {"ledger", "sequence", "type", "time", "by"}
bodies = st.dictionaries(keys.filter(lambda key: key not in OWN_FIELDS), documents, max_size=4)
names = st.text(string.ascii_lowercase, min_size=1, max_size=8)
events = st.builds(
    Event,
    ledger=names,
    sequence=st.integers(0, 2**53 - 1),
    type=names,
    time=st.integers(EARLIEST, LATEST),
    by=text,
    body=bodies,
)


@given(documents)
def test_bytes_are_rfc_8785(document: Any) -> None:
    """For every document that an event may hold, the bytes are what RFC 8785 prescribes."""
    assert canonical(document) == rfc8785.dumps(document)
    assert json.loads(canonical(document)) == document


@given(bodies)
def test_bytes_do_not_depend_on_the_order_of_keys(body: dict[str, Any]) -> None:
    """The same document, built in another order, has the same bytes and the same digest."""
    turned = dict(reversed(body.items()))
    assert canonical(turned) == canonical(body)
    assert digest(turned) == digest(body)


FORBIDDEN = {
    "a float": 1.5,
    "a float that is whole": 1.0,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "2**53": 2**53,
    "-2**53": -(2**53),
    "a decimal": Decimal("0.1"),
    "bytes": b"x",
    "a moment": datetime(2026, 1, 1, tzinfo=UTC),
    "a set": {1},
    "a key that is not ASCII": {"é": 1},
    "a key that is no text": {1: 1},
    "half of a surrogate pair": "\ud800",
    "half of a pair as a key": {"\udfff": 1},
}


@pytest.mark.parametrize("value", FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": {"b": [v]}}])
def test_forbidden_values_are_refused(value: Any, wrap: Any) -> None:
    """What has no single canonical form, or is a float, never gets into an event."""
    with pytest.raises(ValueError, match=r".+"):
        canonical(wrap(value))


@pytest.mark.parametrize("depth", [70, 300, 2_000, 100_000])
def test_absurd_nesting_is_refused(depth: int) -> None:
    """Deep nesting is refused like any other forbidden value, in both directions."""
    nested: Any = []
    for _ in range(min(depth, 5_000)):
        nested = [nested]
    with pytest.raises(ValueError, match=r".+"):
        canonical(nested)
    fields = b'"by":"x","ledger":"x","sequence":0,"time":"2026-11-21T11:38:28.500000Z","type":"t"'
    with pytest.raises(ValueError, match=r".+"):
        Event.from_bytes(b'{"a":' + b"[" * depth + b"]" * depth + b"," + fields + b"}")


@given(events)
def test_an_event_survives_its_bytes(event: Event) -> None:
    """What is read back from an event's bytes is the event."""
    assert Event.from_bytes(event.to_bytes()) == event
    assert Event.from_bytes(event.to_bytes()).to_bytes() == event.to_bytes()


UNSOUND = {
    "a float": 1.5,
    "a whole float": 1.0,
    "a large float": 1e300,
    "2**53": 2**53,
    "-2**53": -(2**53),
    "2**64": 2**64 - 1,
    "a key that is not ASCII": {"é": 1},
    "a deep list": json.loads("[" * 65 + "]" * 65),
}


@pytest.mark.parametrize("value", UNSOUND.values(), ids=UNSOUND.keys())
def test_no_forbidden_value_is_read(value: Any) -> None:
    """What may not be written is not read either, though orjson writes and reads it."""
    event = Event("x", 0, "t", EARLIEST, "x", {"a": "b"})
    sound = orjson.dumps(event.to_json(), option=orjson.OPT_SORT_KEYS)
    assert Event.from_bytes(sound) == event
    unsound = orjson.dumps(event.to_json() | {"a": value}, option=orjson.OPT_SORT_KEYS)
    with pytest.raises(ValueError, match=r".+"):
        Event.from_bytes(unsound)


@pytest.mark.parametrize(
    "time",
    [
        "0999-01-01T00:00:00.000000Z",
        "2026-02-29T00:00:00.000000Z",
        "2026-01-01T24:00:00.000000Z",
        "2026-01-01T00:60:00.000000Z",
        "2026-01-01T00:00:60.000000Z",
        "2026-W01-1T00:00:00.000000Z",
    ],
)
def test_no_other_moment_is_read(time: str) -> None:
    """A stamp is a moment that exists, in the one form that is written."""
    with pytest.raises(ValueError, match=r".+"):
        microseconds(time)


@given(events, st.data())
def test_no_byte_can_be_changed_unnoticed(event: Event, data: st.DataObject) -> None:
    """Any change of a byte is no event any more, or another event."""
    before = event.to_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != before[at]))
    after = before[:at] + bytes([byte]) + before[at + 1 :]
    try:
        read = Event.from_bytes(after)
    except ValueError:
        return
    assert read != event
    assert read.to_bytes() == after


@given(events, st.sampled_from(["space", "cut", "double", "unsorted", "escaped", "bom"]))
def test_only_one_spelling_is_an_event(event: Event, how: str) -> None:
    """Other JSON spellings of the same document are refused: its bytes are its identity."""
    data = event.to_bytes()
    document = json.loads(data)
    turned = dict(sorted(document.items(), reverse=True))
    other = {
        "space": data + b" ",
        "cut": data[:-1],
        "double": data[:-1] + b',"type":"x"}',
        "unsorted": json.dumps(turned, ensure_ascii=False, separators=(",", ":")).encode(),
        "escaped": data.replace(b'"type"', b'"\\u0074ype"', 1),
        "bom": b"\xef\xbb\xbf" + data,
    }[how]
    with pytest.raises(ValueError, match=r".+"):
        Event.from_bytes(other)


@given(st.binary(max_size=60) | documents.map(lambda d: json.dumps(d).encode()))
def test_garbage_is_a_value_error(data: bytes) -> None:
    """Whatever the bytes are, reading them never fails in any other way than by ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        Event.from_bytes(data)


WRONG_FIELDS = [
    ("time", 5),
    ("time", "2026-11-21T11:38:28Z"),
    ("time", "2026-11-21T11:38:28.5Z"),
    ("time", "2026-11-21T11:38:28.500000+00:00"),
    ("time", "2026-02-30T11:38:28.500000Z"),
    ("time", "0999-11-21T11:38:28.500000Z"),
    ("time", None),
    ("sequence", 1.0),
]


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS, ids=str)
def test_wrong_fields_are_refused(field: str, value: Any) -> None:
    """An event's time has one form and its sequence is an integer."""
    document = Event("x", 0, "t", 0, "me", {}).to_json() | {field: value}
    with pytest.raises(ValueError, match=r".+"):
        Event.from_bytes(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


@pytest.mark.parametrize("field", sorted(OWN_FIELDS))
def test_no_field_may_be_missing(field: str) -> None:
    """An event without one of its own fields is none."""
    document = Event("x", 0, "t", 0, "me", {}).to_json()
    del document[field]
    with pytest.raises(ValueError, match=r".+"):
        Event.from_bytes(canonical(document))


def test_an_event_has_at_most_65535_bytes() -> None:
    """The largest event that the evidence formats can hold is accepted, one byte more is not."""
    room = MAX_BYTES - len(Event("x", 0, "t", 0, "me", {"a": ""}).to_bytes())
    assert len(Event("x", 0, "t", 0, "me", {"a": "." * room}).to_bytes()) == MAX_BYTES
    with pytest.raises(EventTooLarge):
        Event("x", 0, "t", 0, "me", {"a": "." * (room + 1)}).to_bytes()


@given(st.integers(EARLIEST, LATEST))
def test_times_survive_their_text(time: int) -> None:
    """A stamp in microseconds comes back from RFC 3339 exactly."""
    assert microseconds(rfc3339(time)) == time


@given(st.integers(EARLIEST, LATEST), st.integers(EARLIEST, LATEST))
def test_times_sort_as_text(one: int, other: int) -> None:
    """Stamps compare as text as they compare as numbers."""
    assert (rfc3339(one) < rfc3339(other)) == (one < other)
