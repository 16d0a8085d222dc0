"""A refused batch of 4,000 requests: recorded, answered again, proved, and its texts erased."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from forger import Forger
from house import House, audit, reasons, resident
from support import Clock, ask, laplace

from accountant import verify_minimal

pytestmark = pytest.mark.xdist_group("parts")
REFUSED_AT = 2_500


class Parted(House):
    """A house that keeps how the batch was first answered."""

    first: httpx2.Response


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parted]:
    """A ledger whose last event is such a refusal, asked for over the door."""
    made = resident(Parted(tmp_path_factory.mktemp("parts") / "home", Clock()))
    first = made.post("/batch", BODY, key="k")
    assert (first.status_code, first.json()["item"]) == (403, REFUSED_AT)
    made.first = first
    yield made
    made.close()


def _asked(number: int) -> dict[str, Any]:
    body = ask(laplace("999" if number == REFUSED_AT else "0.001"), purpose=f"study {number}")
    return {"type": "ask_grant"} | body


BODY = {"items": [_asked(number) for number in range(4_000)]}


def events_of(house: House) -> list[dict[str, Any]]:
    """All events of the ledger."""
    return [json.loads(body) for body in house.stored()]


def refusal(house: House) -> dict[str, Any]:
    """The event of the refusal."""
    [found] = [event for event in events_of(house) if event["type"] == "batch.refused.v1"]
    return found


def test_it_is_an_event_in_full(house: Parted) -> None:
    """The refusal says which item did not go, and why; its parts, in the same commit, hold all
    others; each text stands beside the event that holds its item.
    """
    refused = refusal(house)
    parts = events_of(house)[refused["sequence"] - refused["parts"] : refused["sequence"]]
    assert {part["type"] for part in parts} == {"batch.part.v1"}
    assert sum(len(part["items"]) for part in parts) == 3_999
    decision = house.first.json()["decision"]
    assert decision["id"] == f"d{refused['sequence']}"
    shown = house.get(f"/decisions/{decision['id']}").json()
    assert shown["request"]["purpose"] == f"study {REFUSED_AT}"
    kept = {(text.sequence, text.field): text.text for text in _texts(house)}
    for part in parts:
        for place in range(len(part["items"])):
            text = kept.pop((part["sequence"], f"items.{place}.purpose"))
            assert text == f"study {part['command']['first'] + place}"
    assert kept == {(refused["sequence"], "items.0.purpose"): f"study {REFUSED_AT}"}


def _texts(house: House) -> list[Any]:
    with house.service.ledgers.writing("fair") as writing:
        return list(writing.texts("fair", 0, 10**6))


def test_a_retry_gets_the_same_answer(house: Parted) -> None:
    """Byte for byte, from this service and the next; another batch under the key is told so."""
    size = len(house.stored())
    other = house.again()
    other.secrets = house.secrets
    for service in (house, other):
        again = service.post("/batch", BODY, key="k")
        assert again.content == house.first.content
        assert again.headers["Idempotent-Replay"] == "true"
    other.close()
    another = house.post("/batch", {"items": BODY["items"][1:]}, key="k")
    assert another.json()["type"].endswith("idempotency-key-reused")
    assert len(house.stored()) == size


def test_both_verifiers_accept_it(house: House) -> None:
    """With its texts, and with one erased from a part."""
    refused = refusal(house)
    bundle = house.bundle()
    assert reasons(audit(bundle)) == []
    assert verify_minimal.verify(io.BytesIO(bundle))["findings"] == []
    part = refused["sequence"] - 1
    body = {"reason": "a name was in it", "fields": ["items.0.purpose"]}
    assert house.call("POST", f"/events/{part}/erase", body, who="officer").status_code == 200
    assert (part, "items.0.purpose") not in {(text.sequence, text.field) for text in _texts(house)}
    assert reasons(audit(house.bundle())) == []


FORGERIES: dict[str, Any] = {
    "a part removed": lambda f: f.events.pop(f.of("batch.part.v1")),
    "parts exchanged": lambda f: f.events.insert(
        f.of("batch.part.v1"), f.events.pop(f.of("batch.part.v1", 1))
    ),
    "another number of parts": lambda f: f.events[f.of("batch.refused.v1")].update(parts=2),
    "an item removed": lambda f: f.events[f.of("batch.part.v1")]["items"].pop(),
}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A ledger with the refusal of a few requests that are large, in three parts."""
    made = resident(House(tmp_path_factory.mktemp("few") / "home", Clock()))
    noise = {"kind": "laplace", "sensitivity": "1", "scale": "1000." + "3" * 35}
    large = [
        {"type": "ask_grant"} | ask(noise | {"count": n + 1}, *[noise] * 169) for n in range(8)
    ]
    items = [*large, {"type": "ask_grant"} | ask(laplace("999"))]
    assert made.post("/batch", {"items": items}).status_code == 403
    yield made
    made.close()


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_forged_parts_are_found_by_both(few: House, forge: Any) -> None:
    """Also where everything is hashed and signed anew."""
    forger = Forger(few)
    assert reasons(audit(forger.bundle())) == []
    assert forger.events[forger.of("batch.refused.v1")]["parts"] == 3
    forge(forger)
    forger.renumbered()
    bundle = forger.bundle()
    assert audit(bundle).count
    assert verify_minimal.verify(io.BytesIO(bundle))["findings"]
