"""Free texts: never in an event, and gone without a trace once they are erased."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from forger import members_of
from forked import SERVICE, ran
from house import House, audit, many, reasons, resident
from support import ask, cells_of, laplace, snapshot

from accountant.budget.errors import Conflict, NotFound
from accountant.publishing.export import covering, write_bundle
from accountant.store import StoreError
from accountant.store.sqlite import Sqlite

SECRET = "Marigold-Featherstonehaugh"
REASON = f"because {SECRET} said so"
BODY = ask(laplace("0.001"), purpose=f"a table of {SECRET}", justification=REASON)


def files_of(house: House) -> bytes:
    """Every byte of every file in the home."""
    return b"".join(path.read_bytes() for path in house.home.rglob("*") if path.is_file())


def events_of(house: House) -> bytes:
    """Every byte of every event."""
    return b"\n".join(house.stored())


def reserved(house: House, key: str | None = None) -> dict[str, object]:
    """A grant with two free texts, over the door."""
    answer = house.post("/grants", BODY, key=key)
    assert answer.status_code == 201, answer.text
    found: dict[str, object] = answer.json()
    return found


def erase(house: House, sequence: int, who: str = "officer", **body: object) -> object:
    """The status of asking for an erasure."""
    body = {"reason": "asked for by the person"} | body
    return house.call("POST", f"/events/{sequence}/erase", body, who=who).status_code


def test_texts_are_in_no_event(house: Callable[..., House]) -> None:
    """Purposes, justifications and reasons, of whatever request, stand beside the events; the log
    that others read, receipts and logs do not have them.
    """
    made = resident(house())
    with structlog.testing.capture_logs() as logs:
        grant = reserved(made)
        path = f"/grants/{grant['id']}/release"
        assert made.post(path, {"reason": REASON}).status_code == 200
        made.post("/invocations", BODY)
        made.post("/grants", BODY | {"mechanisms": [laplace("1000")]})
        made.post("/grants", BODY | {"mechanisms": [laplace("-1")]})
        made.post("/grants", BODY | {"justification": REASON * 100})
        made.publisher.publish("fair")
    assert SECRET not in repr(logs)
    assert SECRET.encode() not in events_of(made)
    assert len(made.raw("SELECT * FROM text WHERE text LIKE '%Marigold%'")) == 7
    size = made.head().size
    for path in (f"/log/tile/entries/000.p/{size}", f"/receipts/{size - 1}", "/events?limit=1000"):
        answer = made.get(path)
        assert answer.status_code == 200
        assert SECRET not in answer.text
    assert SECRET.encode() in made.bundle()
    assert SECRET.encode() not in made.bundle(texts=False)


def test_what_the_rules_compare_stays_in_clear(house: Callable[..., House]) -> None:
    """A purpose that the policy lists is a term of its own; a blank text says nothing; digests of
    the same text differ, for each has its own salt.
    """
    made = resident(house())
    rules = "  - {id: p, purposes: [teaching], action: flag}\n"
    policy = f"policy: p\nrules:\n  - {{id: a, limit: {{epsilon: 100, delta: 1e-6}}}}\n{rules}"
    assert made.policy(policy).status_code == 200
    for purpose in ("teaching", "   ", SECRET, SECRET):
        assert made.post("/grants", ask(laplace("0.001"), purpose=purpose)).status_code == 201
    commands = [json.loads(body)["command"]["purpose"] for body in made.stored()[-4:]]
    assert commands[:2] == ["teaching", "   "]
    first, second = (command["sealed"] for command in commands[2:])
    assert first != second
    assert len(first) == 64
    assert reasons(audit(made.bundle())) == []


def test_nobody_sends_a_digest(house: Callable[..., House]) -> None:
    """Who asks sends text: a digest in its place is refused, for nobody could show its text."""
    made = resident(house())
    sealed = {"sealed": "0" * 64}
    for name in ("purpose", "justification"):
        assert made.post("/grants", ask(laplace("0.001"), **{name: sealed})).status_code == 422
    grant = reserved(made)
    path = f"/grants/{grant['id']}/release"
    assert made.post(path, {"reason": sealed}).status_code == 422


def test_an_erased_text_is_gone_from_every_file(house: Callable[..., House]) -> None:
    """After an erasure no file of the home, database and write-ahead log included, has the text;
    also among many others, on pages of its own, and while the service runs.
    """
    made = many(resident(house()), 50)
    long = f"{SECRET} " * 70
    grant = made.grant(purpose=f"a table of {SECRET}", justification=long)
    for number in range(30):
        made.grant(purpose=f"other purpose {number}", justification="y" * 1_500)
    assert SECRET.encode() in files_of(made)
    assert erase(made, grant.sequence) == 200
    assert SECRET.encode() not in files_of(made)
    assert b"other purpose 17" in files_of(made)
    assert (made.home / "accountant.db-wal").stat().st_size == 0
    assert made.raw(f"SELECT count(*) FROM text WHERE sequence = {grant.sequence}") == [(0,)]


def test_a_reader_in_the_way_does_not_keep_the_text(house: Callable[..., House]) -> None:
    """Somebody who reads the database while a text is erased may delay that it leaves the log file,
    not the erasure; with the next one both are gone.
    """
    made = resident(house())
    first, second = made.grant(purpose=SECRET), made.grant(purpose=f"{SECRET} 2")
    with made.service.ledgers._reader.begin() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM text").fetchall()
        assert erase(made, first.sequence) == 200
        assert made.raw(f"SELECT count(*) FROM text WHERE sequence = {first.sequence}") == [(0,)]
    assert erase(made, second.sequence) == 200
    assert SECRET.encode() not in files_of(made)


def test_nothing_else_changes(house: Callable[..., House]) -> None:
    """An erasure is an event; the state, all accounts and the events before it stay as they were,
    and the bundle has no finding.
    """
    made = resident(house())
    grant = reserved(made)
    before = made.stored()
    state = made.service.state("fair")
    state_before = snapshot(state)
    used = {key: cells_of(account.used) for key, account in state.accounts.items()}
    assert erase(made, 4) == 200
    assert made.stored()[:-1] == before
    event = json.loads(made.stored()[-1])
    assert event["type"] == "text.erased.v1"
    assert event["command"]["event"] == 4
    assert sorted(event["command"]["fields"]) == ["justification", "purpose"]
    assert event["by"].startswith("officer")
    state = made.service.state("fair")
    assert {key: cells_of(account.used) for key, account in state.accounts.items()} == used
    after = snapshot(state)
    changing = {"sequence", "time", "answers"}
    assert {k: v for k, v in after.items() if k not in changing} == {
        k: v for k, v in state_before.items() if k not in changing
    }
    assert made.post(f"/grants/{grant['id']}/commit", {}).status_code == 200
    verdict = audit(made.bundle())
    assert reasons(verdict) == []
    assert SECRET.encode() not in made.bundle()
    again = made.again()
    assert reasons(audit(again.bundle())) == []
    again.close()


def test_retries_before_and_after(house: Callable[..., House]) -> None:
    """A retry with the same key and texts gets the same answer, before and after the erasure, and
    after a restart, and brings no text back; before it, one with another text is refused.
    """
    made = resident(house())
    first = made.post("/grants", BODY, key="k")
    again = made.again()
    again.secrets = made.secrets
    for door in (made, again):
        retry = door.post("/grants", BODY, key="k")
        assert (retry.status_code, retry.content) == (first.status_code, first.content)
        for other in (
            BODY | {"purpose": "another"},
            BODY | {"justification": REASON + " "},
            {name: value for name, value in BODY.items() if name != "purpose"},
            BODY | {"purpose": "  "},
        ):
            answer = door.post("/grants", other, key="k")
            assert answer.json()["type"].endswith("idempotency-key-reused"), other
    assert erase(made, 4) == 200
    size = made.head().size
    for door in (made, again, made):
        retry = door.post("/grants", BODY, key="k")
        assert (retry.status_code, retry.content) == (first.status_code, first.content)
        other = BODY | {"mechanisms": [laplace("0.002")]}
        assert door.post("/grants", other, key="k").status_code == 422
    assert made.head().size == size
    assert SECRET.encode() not in files_of(made)
    again.close()


def test_one_text_goes_the_other_stays(house: Callable[..., House]) -> None:
    """Fields are erased one by one; a text is erased once, and what is not there is not found."""
    made = resident(house())
    grant = made.grant(purpose="P-text", justification="J-text")
    plain = made.grant()
    number = grant.sequence
    assert erase(made, number, fields=["purpose"]) == 200
    assert b"P-text" not in files_of(made)
    assert b"J-text" in files_of(made)
    assert reasons(audit(made.bundle())) == []
    size = made.head().size
    for sequence, body in (
        (number, {"fields": ["purpose"]}),
        (number, {"fields": ["purpose", "justification"]}),
        (number, {"fields": ["reason"]}),
        (plain.sequence, {}),
        (0, {}),
        (size, {}),
        (10**14, {}),
    ):
        assert erase(made, sequence, **body) == 404, (sequence, body)
    for body in ({"fields": []}, {"fields": ["salt"]}, {"fields": "purpose"}, {"reason": ""}):
        assert erase(made, number, **body) == 422, body
    assert made.head().size == size
    assert b"J-text" in files_of(made)
    assert erase(made, number, fields=["justification", "justification"]) == 200
    assert erase(made, number) == 404
    assert reasons(audit(made.bundle())) == []


def test_the_reason_of_an_erasure_can_be_erased(house: Callable[..., House]) -> None:
    """Why something was erased is free text as well."""
    made = resident(house())
    grant = made.grant(purpose="P-text")
    assert erase(made, grant.sequence, reason=f"{SECRET} asked") == 200
    assert SECRET.encode() not in events_of(made)
    assert erase(made, grant.sequence + 1, reason="again") == 200
    assert SECRET.encode() not in files_of(made)
    assert reasons(audit(made.bundle())) == []


@pytest.mark.parametrize(
    ("who", "status"), [("admin", 200), ("officer", 200), ("auditor", 403), ("pipeline", 403)]
)
def test_who_may_erase(house: Callable[..., House], who: str, status: int) -> None:
    """Officers and administrators erase; those who ask and those who check do not."""
    made = resident(house())
    made.grant(purpose="P-text")
    size = made.head().size
    assert erase(made, 4, who=who) == status
    assert made.head().size == size + (status == 200)
    path = "/v1/populations/fair/events/4/erase"
    assert made.http.post(path, json={"reason": "x"}).status_code == 401


def test_erase_from_the_command_line(house: Callable[..., House], tmp_path: Path) -> None:
    """`accountant erase` does the same beside a running service, which then knows of it."""
    made = resident(house())
    grant = made.grant(purpose=SECRET)
    environment = os.environ | {"ACCOUNTANT_HOME": str(made.home)}
    command = [SERVICE, "erase", "-p", "fair", "--reason", "law", "--event", grant.sequence]
    assert ran(*command, environment=environment).code == 0
    with pytest.raises(NotFound):
        made.service.erase("fair", "officer", grant.sequence, None, "again")
    failed = ran(*command, environment=environment)
    assert failed.code == 2
    assert "no free text" in failed.err
    assert SECRET.encode() not in files_of(made)
    assert reasons(audit(made.bundle())) == []


def test_an_erasure_during_an_export(house: Callable[..., House]) -> None:
    """A bundle that is written while a text is erased says so, and is not written: it would lack a
    text that nothing in it says was erased.
    """
    made = many(resident(house()), 300)
    grant = made.grant(purpose=SECRET)
    many(made, 300)
    signed = made.sign()
    erased = []

    def progress(_: int) -> None:
        if not erased:
            erased.append(made.service.erase("fair", "officer", grant.sequence, None, "x"))

    out = io.BytesIO()
    entries = covering(0, None, signed.size)
    ledgers = made.service.ledgers
    state = made.service.state("fair")
    with pytest.raises(Conflict, match="erased"):
        write_bundle(out, ledgers, "fair", signed, state, entries, progress=progress)
    assert [name for name, _ in members_of(made.bundle()) if name.startswith("texts/")] == [
        "texts/002"
    ]
    assert reasons(audit(made.bundle())) == []


def test_an_erasure_that_is_recorded_has_not_failed(
    house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others write all the time the log is not emptied just then: the erasure is committed
    and answered all the same, and the rest is done by the next round of the service's job.
    """

    def busy(_: Sqlite) -> bool:
        raise StoreError("too many requests wait to write")

    made = resident(house())
    grant = made.grant(purpose=SECRET)
    with monkeypatch.context() as patch:
        patch.setattr(Sqlite, "finish_erasing", busy)
        assert erase(made, grant.sequence) == 200
    assert made.service.ledgers.finish_erasing()
    assert SECRET.encode() not in files_of(made)


def test_an_erasure_that_somebody_reads_on_is_finished_later(house: Callable[..., House]) -> None:
    """While somebody reads what was, the text may still lie in the write-ahead log: nobody waits
    for that reader, and the next round of the service's job removes it.
    """
    made = resident(house())
    grant = made.grant(purpose=SECRET)
    with closing(sqlite3.connect(made.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM text").fetchone()
        started = time.monotonic()
        made.service.erase("fair", "officer", grant.sequence, None, "law")
        made.grant()
        assert time.monotonic() - started < 5
        assert not made.service.ledgers.finish_erasing()
    assert made.service.ledgers.finish_erasing()
    assert SECRET.encode() not in files_of(made)
