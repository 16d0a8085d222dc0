"""Time that is in doubt goes on when two people have read the same clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import SECOND, START, Book, audited, confirming, hospital, laplace, last_replay

from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.ledger.events import Event, rfc3339

DAY = 86_400 * SECOND
LATER = START + 11 * DAY
WINDOW = "  - {id: a, window: 10d, limit: {epsilon: 1}}\n"


def full() -> Book:
    """A ledger whose window is full, and in which somebody waits for it to pass."""
    book = hospital(WINDOW)
    book.record(laplace("1"))
    book.grant(laplace("0.5"), wait=20 * 86_400)
    return book


def propose(book: Book) -> Event:
    """One person says that the clock, which shows days later, is right."""
    return book.do("accept_time", "operator:ann", clock=rfc3339(LATER), reason="looked at it")


def confirm(book: Book, proposed: Event, shown: int, by: str = "operator:bob") -> list[Event]:
    """Another person confirms it, to whom the clock shows another time."""
    command = confirming(proposed).model_copy(update={"clock": rfc3339(shown)})
    book.now = max(shown, book.state.time)  # as the service stamps it
    found: list[Event] = book.ask(command, by)
    return found


def test_no_time_passes_before_a_second_person_has_read_the_clock() -> None:
    """A proposal has the stamp at which time stands still, and lets nothing pass. What the accepted
    time lets in is admitted after it. Replay and both verifiers agree.
    """
    book = full()
    proposed = propose(book)
    assert proposed.time == START
    assert book.grant(laplace("0.5")).type == "grant.refused.v1"
    [accepted] = confirm(book, proposed, LATER + 90 * SECOND)
    assert (accepted.type, accepted.time) == ("clock.accepted.v1", LATER + 90 * SECOND)
    kinds = [Event.from_bytes(entry).type for entry in book.stored[-2:]]
    assert kinds == ["clock.accepted.v1", "grant.admitted.v1"]
    assert book.replayed().findings == []
    assert audited(book).findings == []


@pytest.mark.parametrize("apart", [-61 * SECOND, DAY + SECOND, 300 * DAY])
def test_both_have_read_the_same_clock(apart: int) -> None:
    """It shows at most a day more to the second person, and not less but for what corrects it."""
    book = full()
    proposed = propose(book)
    with pytest.raises(Invalid) as found:
        confirm(book, proposed, LATER + apart)
    assert found.value.code == "clock-differs"
    assert book.state.time == START


def test_one_person_does_not_do_it_alone() -> None:
    """Not under another spelling, and not without saying what the clock shows."""
    book = full()
    proposed = propose(book)
    with pytest.raises(Conflict) as found:
        book.ask(confirming(proposed).model_copy(update={"clock": None}), "operator:bob")
    assert found.value.code == "clock-beside-database"
    for by in ("operator:ann", "Ann"):
        with pytest.raises(Forbidden):
            confirm(book, proposed, LATER, by)


def test_a_proposal_does_not_end_by_the_time_that_it_is_about() -> None:
    """Its days are of the time that stands still: a clock a year ahead can be confirmed."""
    book = full()
    clock = START + 365 * DAY
    proposed = book.do("accept_time", "operator:ann", clock=rfc3339(clock), reason="it was off")
    [accepted] = confirm(book, proposed, clock)
    assert accepted.time == clock
    assert book.state.proposals[proposed.sequence].status == "confirmed"
    assert audited(book).findings == []


def test_no_change_but_a_clock_is_confirmed_with_a_clock() -> None:
    """A stated time stamps nothing else."""
    book = full()
    wider = "  - {id: a, window: 10d, limit: {epsilon: 2}}\n"
    [proposed] = book.policy(wider)
    with pytest.raises(Conflict):
        confirm(book, proposed, LATER)


def test_a_forged_acceptance_is_found() -> None:
    """By one person alone, or at another time than was confirmed, it replays in no verifier."""
    book = full()
    confirm(book, propose(book), LATER)
    at = next(n for n, one in enumerate(book.stored) if b"clock.accepted" in one)
    event = Event.from_bytes(book.stored[at])
    command = {name: value for name, value in event.body["command"].items() if name != "confirms"}
    alone = replace(event, body=event.body | {"command": command})
    later = replace(event, time=event.time + SECOND)
    for forged in (alone, later):
        book.stored[at] = forged.to_bytes()
        assert last_replay(book.name, book.stored[: at + 1]).findings
        assert audited(book).findings
