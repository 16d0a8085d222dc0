"""A clock that jumps charges nobody, stops what asks for budget, and is accepted by an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support import (
    START,
    Clock,
    World,
    ask,
    by_two,
    clean,
    confirming,
    laplace,
    last_replay,
    make,
    snapshot,
    sparse_vector,
)

from accountant.budget.commands import AcceptTime, Envelope
from accountant.budget.decide import decide
from accountant.budget.errors import Invalid
from accountant.ledger.events import Event, rfc3339

HOUR = 3600
DAY = 24 * HOUR
YEAR = 365 * DAY
GRANT = ask(laplace("0.01"), ttl_seconds=HOUR)


@pytest.fixture
def clock() -> Clock:
    """The clock of every service of a test that has no other."""
    return Clock()


@pytest.fixture
def made(world: Callable[..., World], clock: Clock) -> World:
    """A population with a limit of 1."""
    return world(clock).hospital()


def beside(make: Callable[..., World], made: World, clock: Clock) -> World:
    """Another service on the same database, with the same keys."""
    other = make(clock)
    made.secrets = other.secrets
    made.keys += 1_000
    other.keys = made.keys + 500
    return other


def accept(world: World, clock: Clock) -> Event:
    """What ``accountant accept-time`` does on a machine with this clock."""
    command = AcceptTime(clock=rfc3339(clock.now), reason="looked at it")
    asked = Envelope("operator:ann", command)
    return by_two(world.service, "fair", asked, "operator:bob").events[0]


def refused(answer: Any) -> bool:
    """The clock is in doubt, and the answer says so; nothing else may be said."""
    if answer.status_code == 201:
        return False
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:accountant:problem:clock-jumped"
    assert answer.headers["Retry-After"]
    return True


def test_a_year_forward_charges_nothing_until_it_is_accepted(made: World, clock: Clock) -> None:
    """Open grants stay open, and their commits are in time; after the event they are due."""
    one, two = (made.post("/grants", GRANT).json()["id"] for _ in range(2))
    last = Event.from_bytes(made.stored()[-1]).time
    clock.jump(YEAR)
    assert made.service.expire_due() == 0
    assert made.get(f"/grants/{one}").json()["state"] == "reserved"
    settled = made.post(f"/grants/{one}/commit", {}).json()
    assert (settled["state"], settled["time"]) == ("committed", rfc3339(last))
    answer = made.post("/grants", GRANT)
    assert refused(answer)
    numbers = {name: answer.json()[name] for name in ("clock", "expected", "last")}
    moments = clock.now, clock.now - YEAR * 10**6, last
    assert numbers == dict(zip(numbers, map(rfc3339, moments), strict=True))
    assert accept(made, clock).time == clock.now
    assert made.service.expire_due() == 1
    assert made.get(f"/grants/{two}").json()["state"] == "expired"
    assert not refused(made.post("/grants", GRANT))
    clean(made)


def test_what_asks_is_refused_and_what_happened_is_taken(made: World, clock: Clock) -> None:
    """Grants, sessions and batches that ask get 503; releases, counts, closes, invocations and
    batches of what happened are recorded, at the last stamp; a retry gets its first answer.
    """
    session = {"dataset": "d", "mechanism": sparse_vector()}
    opened = made.post("/sparse-vector", session).json()["id"]
    held = [made.post("/grants", GRANT, key=f"k{number}").json()["id"] for number in range(2)]
    size, last = len(made.stored()), Event.from_bytes(made.stored()[-1]).time
    clock.jump(-HOUR)
    wish = {"type": "ask_grant"} | GRANT
    settle = {"type": "commit_grant", "grant": held[0]}
    assert refused(made.post("/grants", GRANT))
    assert refused(made.post("/sparse-vector", session))
    assert refused(made.post("/batch", {"items": [settle, wish]}))
    assert len(made.stored()) == size
    assert made.post("/grants", GRANT, key="k1").headers["Idempotent-Replay"] == "true"
    for path, body in (
        ("/batch", {"items": [settle]}),
        (f"/grants/{held[1]}/release", {"reason": "never ran"}),
        (f"/sparse-vector/{opened}/answers", {"positives": 1, "negatives": 0}),
        (f"/sparse-vector/{opened}/close", {}),
        ("/invocations", ask(laplace("0.01"))),
        ("/batch", {"items": [{"type": "record_invocations"} | ask(laplace("0.01"))]}),
    ):
        assert made.post(path, body).is_success, path
    new = [Event.from_bytes(body) for body in made.stored()[size:]]
    assert {event.time for event in new} == {last}
    clean(made)


def test_an_hour_back_is_noticed_and_accepted(made: World, clock: Clock) -> None:
    """Stamps stand where they were until the clock has caught up, and go on from there; services
    that start meanwhile believe it too.
    """
    held = made.post("/grants", GRANT).json()["id"]
    clock.forward(1)
    made.post("/grants", GRANT)
    last = Event.from_bytes(made.stored()[-1]).time
    clock.jump(-HOUR)
    assert refused(made.post("/grants", GRANT))
    assert accept(made, clock).time == last
    for seconds in (0, 120, HOUR - 200):
        clock.forward(seconds)
        assert not refused(made.post("/grants", GRANT))
        assert Event.from_bytes(made.stored()[-1]).time == last
    clock.forward(HOUR + 200)
    assert made.service.expire_due() > 0
    assert made.get(f"/grants/{held}").json()["state"] == "expired"
    clean(made)


def test_a_start_in_an_hour_that_was_accepted(
    world: Callable[..., World], made: World, clock: Clock
) -> None:
    """Who reads of an accepted clock that is behind the last stamp believes it as well."""
    clock.jump(-HOUR)
    accept(made, clock)
    clock.forward(1)
    assert not refused(beside(world, made, clock).post("/grants", GRANT))
    assert refused(beside(world, made, Clock(START - 2 * HOUR * 10**6)).post("/grants", GRANT))


@pytest.mark.parametrize(
    ("seconds", "doubted"),
    [(-61, True), (-59, False), (30 * DAY - 1, False), (30 * DAY + 1, True)],
)
def test_at_a_start_only_the_last_stamp_is_known(
    world: Callable[..., World], made: World, clock: Clock, seconds: int, doubted: bool
) -> None:
    """A minute before it or the longest life of a grant after it are too far."""
    late = Clock(clock.now + seconds * 10**6)
    other = beside(world, made, late)
    assert refused(other.post("/grants", GRANT)) == doubted
    if doubted:
        late.jump(-seconds)
        assert not refused(other.post("/grants", GRANT))


@pytest.mark.parametrize("seconds", [-61, 61])
def test_a_jump_that_is_taken_back_was_nothing(made: World, clock: Clock, seconds: int) -> None:
    """A clock that is right again needs nobody's word; less than a minute is no jump."""
    clock.forward(10 * DAY)
    assert not refused(made.post("/grants", GRANT))
    clock.jump(seconds)
    assert refused(made.post("/grants", GRANT))
    clock.forward(120)
    assert refused(made.post("/grants", GRANT))  # time alone heals nothing
    clock.jump(-seconds)
    assert not refused(made.post("/grants", GRANT))
    clock.jump(59 * seconds / 61)
    assert not refused(made.post("/grants", GRANT))
    clean(made)


def test_a_long_sleep_is_no_jump(made: World, clock: Clock) -> None:
    """While the machine sleeps both clocks go on: grants are due when it wakes."""
    held = made.post("/grants", GRANT).json()["id"]
    clock.forward(YEAR)
    assert made.service.expire_due() == 1
    assert made.get(f"/grants/{held}").json()["state"] == "expired"


def test_another_service_that_is_ahead_is_noticed(
    world: Callable[..., World], made: World, clock: Clock
) -> None:
    """Stamps of a service whose clock is an hour ahead put ours in doubt; the event that accepts
    our clock puts the other in doubt, until that is right too.
    """
    ahead = Clock(clock.now + HOUR * 10**6)
    other = beside(world, made, ahead)
    assert not refused(other.post("/grants", GRANT))
    assert refused(made.post("/grants", GRANT))
    accept(made, clock)
    assert refused(other.post("/grants", GRANT))
    assert not refused(made.post("/grants", GRANT))
    ahead.jump(-HOUR)
    assert not refused(other.post("/grants", GRANT))
    assert not refused(made.post("/grants", GRANT))
    clean(made)


def test_one_event_is_enough_for_all_services(
    world: Callable[..., World], made: World, clock: Clock
) -> None:
    """Two whose clock has jumped alike go on by the same event, even if one reads it late."""
    other = beside(world, made, clock)
    assert not refused(other.post("/grants", GRANT))
    clock.jump(YEAR)
    assert refused(made.post("/grants", GRANT))
    assert refused(other.post("/grants", GRANT))
    accept(made, clock)
    clock.forward(300)
    for each in (made, other):
        assert not refused(each.post("/grants", GRANT))


def test_each_ledger_is_accepted_for_itself(made: World, clock: Clock) -> None:
    """The event of one ledger says nothing to another."""
    population = {"privacy_unit": "p", "neighbouring": "replace_one", "membership": "public"}
    command = make("register_population", **population)
    made.service.execute("other", Envelope("admin", command))
    state = made.service.state("other")
    made.service.now(state)
    clock.jump(YEAR)
    accept(made, clock)
    state = made.service.state("other")
    assert made.service.now(state) == state.time
    state = made.service.state("fair")
    assert made.service.now(state) == clock.now


def test_what_is_accepted_is_the_stamp(made: World, clock: Clock) -> None:
    """The event's stamp is the clock that it names, so a forged one does not replay."""
    clock.jump(YEAR)
    event = accept(made, clock)
    stored = made.stored()
    wrong = replace(event, time=event.time + 1)
    assert last_replay("fair", stored).findings == []
    assert last_replay("fair", [*stored[:-1], wrong.to_bytes()]).findings != []
    with pytest.raises(ValueError, match="no stamp"):
        AcceptTime(clock="today", reason="x")
    other = Envelope("o", AcceptTime(clock=rfc3339(clock.now), reason="x"))
    proposed = made.service.execute("fair", other).events[-1]
    state = made.service.state("fair")
    with pytest.raises(Invalid):
        decide(state, Envelope("p", confirming(proposed)), clock.now + 5)


def test_a_restart_remembers_what_was_accepted(
    world: Callable[..., World], made: World, clock: Clock
) -> None:
    """It is folded from the event, and kept in snapshots with everything else."""
    clock.jump(-HOUR)
    accept(made, clock)
    state = made.service.state("fair")
    before = snapshot(state), state.custody
    state = world(clock).service.state("fair")
    assert (snapshot(state), state.custody) == before
