"""The log and receipts over HTTP: roles, and headers for caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import World, ask, laplace, make, proven

from accountant.budget.commands import Envelope
from accountant.ledger.checkpoints import Checkpoint, Receipt
from accountant.ledger.notes import Verifier, parse

FULL = 256


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with an event of each of two pipelines, 3 and 4."""
    made = world().hospital()
    made.secrets["other"] = made.service.credentials.create("other", "pipeline", "test")
    for who in ("pipeline", "other"):
        assert made.post("/invocations", ask(laplace("0.1"), purpose="ops"), who=who).is_success
    return made


def many(made: World) -> None:
    """More events than a tile holds."""
    command = make("record_invocations", dataset="d", mechanisms=[laplace("0.001")])
    asked = [Envelope("pipeline", command, f"many-{i}") for i in range(FULL)]
    made.service.execute_all("fair", asked)


def code(answer: Any) -> str:
    """The problem's code."""
    return str(answer.json()["type"]).rpartition(":")[2]


def key_of(made: World) -> Verifier:
    """The ledger's key."""
    state = made.service.state("fair")
    assert state.custody.key is not None
    return Verifier.from_text(state.custody.key.text)


def test_a_pipeline_gets_receipts_of_its_own_events(made: World) -> None:
    """A receipt proves its event under a signed checkpoint; others' events are not its business."""
    answer = made.get("/receipts/4", who="pipeline")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "private, no-cache"
    entry = made.get("/events/4").content
    head = proven(answer.content, entry, [key_of(made)])
    assert (head.origin, head.size) == ("localhost/fair", made.head().size)
    for path, who in (("/receipts/5", "pipeline"), ("/receipts/0", "other")):
        refused = made.get(path, who=who)
        assert (refused.status_code, code(refused)) == (403, "not-your-grant")
    for who in ("admin", "officer", "auditor"):
        assert made.get("/receipts/5", who=who).is_success


def test_a_receipt_is_given_at_once(made: World) -> None:
    """An event that no published checkpoint covers has one signed for it; one that is covered
    costs no signature.
    """
    made.publisher.publish("fair")
    before = made.publisher.published("fair").size
    event = made.post("/invocations", ask(laplace("0.1"))).json()["sequence"]
    assert event >= before
    first = made.get(f"/receipts/{event}", who="pipeline").content
    assert Receipt.from_bytes(first).index == event
    signed = made.service.ledgers.last_signed("fair")
    assert made.get("/receipts/4", who="pipeline").is_success
    assert made.get(f"/receipts/{event}", who="pipeline").content == first
    assert made.service.ledgers.last_signed("fair") == signed


def test_there_is_no_receipt_of_what_is_not_there(made: World) -> None:
    """An event beyond the end, an unknown population, a sequence that is no number."""
    for path, wanted in (("/receipts/99", 404), ("/receipts/x", 422), ("/receipts/-1", 422)):
        assert made.get(path).status_code == wanted
    headers = made.auth("auditor")
    for call in ("receipts/0", "log/checkpoint", "log/tile/0/000"):
        answer = made.http.get(f"/v1/populations/nobody/{call}", headers=headers)
        assert (answer.status_code, code(answer)) == (404, "unknown-population")


def test_before_the_first_checkpoint_nothing_is_published(made: World) -> None:
    """Neither checkpoint nor tile is there until a head is published."""
    for path in ("/log/checkpoint", "/log/tile/0/000.p/1"):
        answer = made.get(path)
        assert (answer.status_code, code(answer)) == (404, "nothing-published")


def test_the_checkpoint_is_never_kept_by_caches(made: World) -> None:
    """It changes; it is the note that was signed, to the byte."""
    made.publisher.publish("fair")
    answer = made.get("/log/checkpoint", who="auditor")
    assert answer.content == made.publisher.published("fair").full
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    head = Checkpoint.from_text(parse(answer.content).text)
    assert (head.size, head.root) == (made.head().size, made.head().root)


@pytest.mark.parametrize("public", [True, False])
def test_full_tiles_may_be_kept_for_ever(world: Callable[..., World], *, public: bool) -> None:
    """A full tile never changes; shared caches may keep it only if the log is everybody's."""
    made = world(public_log=public).hospital()
    many(made)
    size = made.publisher.sign("fair").size
    made.publisher.publish("fair")
    shared = "public" if public else "private"
    for path in ("0/000", "entries/000"):
        answer = made.get(f"/log/tile/{path}")
        assert answer.headers["cache-control"] == f"{shared}, max-age=31536000, immutable"
        assert answer.headers["content-type"] == "application/octet-stream"
    for path in (f"0/001.p/{size - FULL}", f"entries/001.p/{size - FULL}", "1/000.p/1"):
        assert made.get(f"/log/tile/{path}").headers["cache-control"] == "no-cache"
    for path in ("0/001", f"0/001.p/{size - FULL + 1}", "2/000.p/1", "1/000", "0/0", "../events"):
        answer = made.get(f"/log/tile/{path}")
        assert answer.status_code == 404, path


def test_a_public_log_needs_no_key_and_nothing_else_is_public(
    world: Callable[..., World], made: World
) -> None:
    """The setting opens checkpoint and tiles; events, receipts and reports stay behind keys."""
    made.publisher.publish("fair")
    base = "/v1/populations/fair"
    log = ("/log/checkpoint", "/log/tile/0/000.p/6", "/log/tile/entries/000.p/6")
    for path in log:
        assert made.http.get(base + path).status_code == 401
        assert made.get(path, who="pipeline").status_code == 403
    opened = world(public_log=True)
    for path in log:
        assert opened.http.get(base + path).status_code == 200
        assert opened.get(path, who="pipeline").status_code == 200
    for path in ("", "/events", "/events/4", "/receipts/4", "/report", "/accounts"):
        assert opened.http.get(base + path).status_code == 401, path


def test_what_the_log_serves_holds_no_free_text(made: World) -> None:
    """Entries are the events as they are stored: texts are sealed in them."""
    made.publisher.publish("fair")
    data = made.get("/log/tile/entries/000.p/6").content
    for body in made.stored()[:5]:
        assert len(body).to_bytes(2, "big") + body in data
    assert b'"purpose":"ops"' not in data
