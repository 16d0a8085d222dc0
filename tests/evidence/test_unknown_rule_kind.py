"""A rule kind that only this test knows, with a memory of its own: every way asks it.

It must hold however a request comes: alone, in a crowd, in a batch, after a restart from a
snapshot, in ``replay`` and in ``verify``. Whatever answers without asking it fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from house import House, audit
from pydantic import Field
from support import SECOND, Clock, ask, laplace, last_replay, logged, make, snapshot

from accountant.auditing.verify import Verdict
from accountant.budget.commands import Asked
from accountant.budget.decision import Finding
from accountant.budget.policy import OTHER_KINDS, OtherRule
from accountant.budget.request import Request
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.units import Currency
from accountant.runtime import projections as shelf
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers
from accountant.store.snapshots import snapshots_of

ASKED, GRANTED = 200, 50
"""Requests of 0.01 each, and how many of them a quota of 0.5 admits."""
RULES = "  - {id: wide, limit: {epsilon: 1000}}\n  - {id: quota, quota: 500000000, seconds: 3600}\n"


class Quota(OtherRule):
    """At most ``quota`` units of epsilon may be granted within ``seconds``, on whatever data."""

    field: ClassVar[str] = "quota"
    quota: Annotated[int, Field(ge=0)]
    seconds: Annotated[int, Field(ge=1)]

    def findings(self, state: State, request: Request, memory: Any) -> list[Finding]:
        """Fires when what was granted lately leaves no room for the request."""
        first = request.now - self.seconds * SECOND
        lately = sum(units for at, units in memory or () if at > first)
        asked = request.total.units(Currency.EPSILON) or 0
        fired = lately + asked > self.quota
        return [Finding(self.id, self.action, fired, "quota-passed", f"{lately} + {asked}", {})]

    def remember(self, memory: Any, event: Event) -> Any:
        """When how much was granted."""
        if event.type != "grant.reserved.v1":
            return memory
        return [*(memory or ()), [event.time, int(event.body["total"]["epsilon"])]]


@pytest.fixture(autouse=True)
def quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule kind, for as long as a test runs."""
    monkeypatch.setitem(OTHER_KINDS, Quota.field, Quota)


class Kept(House):
    """A house that keeps snapshots."""

    def open(self) -> None:
        """A service on the home as it is now."""
        super().open()
        assert self.clock is not None
        self.service = Service(
            Ledgers(self.url),
            self.clock,
            self.vault,
            snapshots_of(self.settings.home),
            self.clock.ticks,
        )


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A ledger under a quota."""
    made = Kept(tmp_path / "house", Clock())
    made.hospital(RULES)
    yield made
    made.close()


def request(number: int) -> Asked:
    """One more request of 0.01."""
    return Asked("pipe", make("ask_grant", dataset="d", mechanisms=[laplace("0.01")]), f"k{number}")


def granted(house: House) -> int:
    """How many grants the ledger has."""
    return sum(b'"type":"grant.reserved.v1"' in body for body in house.stored())


def tried_again(house: House, grants: int = GRANTED) -> Verdict:
    """The ledger has so many ``grants``; whoever takes its decisions again comes to the same."""
    assert granted(house) == grants
    replayed = last_replay("fair", house.stored())
    assert replayed.findings == []
    with house.service.state("fair") as state:
        assert snapshot(replayed.state) == snapshot(state)
        assert replayed.state.memories == state.memories
    verdict = audit(house.bundle())
    assert verdict.findings == []
    return verdict


def test_one_after_another(house: House) -> None:
    """Requests that come one by one are each held against the quota."""
    for number in range(ASKED):
        house.service.execute("fair", request(number))
    tried_again(house)


def test_in_one_transaction(house: House) -> None:
    """Requests that are decided together are each held against the quota."""
    house.service.execute_all("fair", [request(number) for number in range(ASKED)])
    tried_again(house)


def test_in_crowds_over_http(house: House) -> None:
    """Clients that ask at once by HTTP, with bodies that repeat, pass the quota by nothing."""

    def post(number: int) -> int:
        return house.post("/grants", ask(laplace("0.01")), key=f"k{number}").status_code

    with ThreadPoolExecutor(16) as crowd:
        statuses = list(crowd.map(post, range(ASKED)))
    assert sorted(set(statuses)) == [201, 403]
    assert statuses.count(201) == GRANTED
    tried_again(house)


@pytest.mark.parametrize("size", [10, 30])
def test_in_batches(house: House, size: int) -> None:
    """A batch is admitted as long as all of it fits into the quota; no item passes it."""
    for first in range(0, ASKED, size):
        parts = [Asked("pipe", request(n).command) for n in range(first, first + size)]
        house.service.execute("fair", Asked.together("pipe", parts, f"batch-{first}"))
    tried_again(house, GRANTED // size * size)


def test_after_a_restart(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot holds what the rule remembers: after a restart it goes on from there."""
    monkeypatch.setattr(shelf, "_WORTH", 1)
    for number in range(ASKED // 5):
        house.service.execute("fair", request(number))
    house.close()
    with logged() as lines:
        again = Kept(house.home, Clock())
        for number in range(ASKED // 5, ASKED):
            again.service.execute("fair", request(number))
    tried_again(again)
    again.close()
    assert [line["event"] for line in lines].count("begun from a snapshot") == 1


def test_the_quota_frees_with_time(house: House) -> None:
    """What was granted longer ago than the window counts no more, in replay too."""
    for turn in range(3):
        for number in range(ASKED // 2):
            house.service.execute("fair", request(turn * ASKED + number))
        assert house.clock is not None
        house.clock.forward(3_600)
    tried_again(house, 3 * GRANTED)


def test_what_one_says_who_does_not_ask_the_rule_is_found(house: House) -> None:
    """A ledger that granted without asking the rule is not believed by replay or verify."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Quota, "findings", lambda *_: [])
        for number in range(ASKED):
            house.service.execute("fair", request(number))
    assert granted(house) == ASKED
    replayed = last_replay("fair", house.stored())
    assert len(replayed.findings) >= ASKED - GRANTED
    assert audit(house.bundle()).count >= ASKED - GRANTED
