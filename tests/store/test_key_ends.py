"""The end and the scope of a key follow from the ledger of keys, for every process alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Clock, migrate

from accountant.auth.keys import Credentials, key_digest
from accountant.budget.commands import DAY
from accountant.budget.errors import Conflict, Invalid, Problem
from accountant.ledger.events import Event
from accountant.store.opening import open_ledgers


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Credentials, Credentials, Clock]]:
    """The keys as two processes see them, which have a clock."""
    url = f"sqlite:///{tmp_path}/a.db"
    migrate(url)
    one, other, clock = open_ledgers(url), open_ledgers(url), Clock()
    yield Credentials(one, clock), Credentials(other, clock), clock
    one.close(), other.close()


def test_every_process_knows_the_bounds_of_a_key(
    made: tuple[Credentials, Credentials, Clock],
) -> None:
    """From the event alone; from the end on it is valid in none, and its name is free again."""
    one, other, clock = made
    secret = one.create("pipe", "pipeline", "ann", days=90, populations=["b", "a", "b"])
    found = other.find(secret)
    assert found is not None
    assert found.until == clock() + 90 * DAY * 1_000_000
    assert found.populations == {"a", "b"}
    assert [found.reaches(name) for name in ("a", "b", "c")] == [True, True, False]
    with pytest.raises(Conflict):
        other.create("pipe", "pipeline", "ann")
    clock.forward(90 * DAY)
    for keys in (one, other):
        assert keys.find(secret) is None
        assert keys.named("pipe") is None
        with pytest.raises(Problem, match=r"the key of pipe expired at .*keys create"):
            keys.valid(key_digest(secret))
        assert [key.name for key in keys.held()] == ["pipe"]
    again = other.create("pipe", "pipeline", "bob")
    assert one.find(again) is not None
    assert one.find(secret) is None
    last = one.last_named("pipe", since=clock())
    assert last is not None
    assert last.makers == ("bob",)


def test_the_life_of_a_proposed_key_begins_when_it_is_made(
    made: tuple[Credentials, Credentials, Clock],
) -> None:
    """Whoever confirms it reads its end and scope."""
    one, other, clock = made
    for name in ("ann", "bob"):
        one.create(name, "admin", f"operator:{name}")
    clock.forward(30 * DAY)
    secret = one.create("carol", "officer", "ann", days=2, populations=["a"])
    [proposal], _ = other.proposals()
    assert proposal.command["days"] == 2
    assert proposal.command["populations"] == ["a"]
    clock.forward(DAY)
    other.confirm(proposal.sequence, proposal.digest, "bob", other.named("bob"))
    clock.forward(2 * DAY - 1)
    assert one.find(secret) is not None
    clock.forward(1)
    assert one.find(secret) is None


def test_a_clock_that_goes_back_brings_no_key_back(
    made: tuple[Credentials, Credentials, Clock],
) -> None:
    """Behind no stamp of the ledger of keys, and behind none by which anything was decided."""
    one, other, clock = made
    secret = one.create("pipe", "pipeline", "ann", days=1)
    clock.forward(DAY)
    assert other.find(secret) is None
    clock.jump(-3_600)
    assert other.find(secret) is not None  # nothing was decided in between
    latest = Credentials(other.ledgers, clock, latest=lambda: clock() + 3_600 * 1_000_000)
    assert latest.find(secret) is None
    clock.jump(3_600)
    one.create("next", "pipeline", "ann")
    clock.jump(-3_600)
    assert other.find(secret) is None


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        ({"days": 0}, "key-days"),
        ({"days": 31}, "key-days"),
        ({"populations": ["*"]}, "key-population"),
        ({"populations": [f"p{n}" for n in range(1_001)]}, "key-population"),
    ],
)
def test_bounds_that_cannot_be_are_refused(
    made: tuple[Credentials, Credentials, Clock], bounds: Any, code: str
) -> None:
    """By the longest life that is set, too, which a key has that is made without one."""
    one, _, clock = made
    keys = Credentials(one.ledgers, clock, longest=30)
    with pytest.raises(Invalid) as refused:
        keys.create("pipe", "pipeline", "ann", **bounds)
    assert refused.value.code == code
    found = keys.find(keys.create("pipe", "pipeline", "ann"))
    assert found is not None
    assert found.until == clock() + 30 * DAY * 1_000_000


def test_a_key_without_bounds_is_recorded_as_ever(
    made: tuple[Credentials, Credentials, Clock],
) -> None:
    """Its event says neither, and such an event of before means for ever, and everywhere."""
    one, other, clock = made
    secret = one.create("pipe", "pipeline", "ann")
    [row] = one.ledgers.read("_service", 0, 10)
    assert Event.from_bytes(row.body).body.keys() == {"name", "role", "digest"}
    clock.forward(10_000 * DAY)
    found = other.find(secret)
    assert found is not None
    assert found.reaches("any")
