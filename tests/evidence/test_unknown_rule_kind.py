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
from house import ORIGIN, House, audit
from pydantic import Field
from support import SECOND, Clock, ask, laplace, last_replay, logged, make, snapshot

from accountant.auditing.verify import AuditResult
from accountant.budget.commands import Envelope
from accountant.budget.rules import KINDS
from accountant.budget.rules.base import Compared, Finding, Rule, Told, View
from accountant.ledger.events import Event
from accountant.privacy.units import Currency, show
from accountant.publishing.publisher import Publisher
from accountant.runtime import projections
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots

ASKED, GRANTED = 200, 50
"""Requests of 0.01 each, and how many of them a quota of 0.5 admits."""
RULES = "  - {id: wide, limit: {epsilon: 1000}}\n  - {id: quota, quota: 500000000, seconds: 3600}\n"


class Quota(Rule):
    """At most ``quota`` units of epsilon may be granted within ``seconds``, on whatever data."""

    field: ClassVar[str] = "quota"
    code: ClassVar[str] = "quota-passed"
    reads: ClassVar[frozenset[str]] = frozenset({"memory", "now", "total"})
    remembers: ClassVar[bool] = True

    quota: Annotated[int, Field(ge=0)]
    seconds: Annotated[int, Field(ge=1)]

    def compare(self, view: View) -> Compared | None:
        """What was granted lately leaves no room for the request."""
        first = view.now - self.seconds * SECOND
        lately = sum(units for at, units in view.memory(self.id) or () if at > first)
        asked = view.total.units(Currency.EPSILON)
        fired = asked is None or lately + asked > self.quota
        return self.compared(fired, {"lately": lately})

    def words(self, compared: Compared, told: Told) -> Finding:
        """Both sides of the comparison."""
        lately = show(compared.seen["lately"], Currency.EPSILON)
        asked, most = told.total.amount(Currency.EPSILON), show(self.quota, Currency.EPSILON)
        return self.finding(compared, f"{lately} granted lately, {asked} more, of {most}")

    def remember(self, memory: Any, event: Event) -> Any:
        """When how much was granted."""
        if event.type != "grant.reserved.v1":
            return memory
        return [*(memory or ()), [event.time, int(event.body["total"]["epsilon"])]]


@pytest.fixture(autouse=True)
def quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule kind, for as long as a test runs."""
    monkeypatch.setitem(KINDS, Quota.field, Quota)


class Kept(House):
    """A house that keeps snapshots."""

    def open(self) -> None:
        """A service on the home as it is now."""
        assert self.clock is not None
        self.service = Service(
            open_ledgers(self.url),
            self.clock,
            self.vault,
            Snapshots(self.settings.home),
            self.clock.ticks,
        )
        self._publisher = Publisher(self.service, self.vault, ORIGIN)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A ledger under a quota."""
    made = Kept(tmp_path / "house", Clock())
    made.hospital(RULES)
    yield made
    made.close()


def request(number: int) -> Envelope:
    """One more request of 0.01."""
    return Envelope(
        "pipe", make("ask_grant", dataset="d", mechanisms=[laplace("0.01")]), f"k{number}"
    )


def granted(house: House) -> int:
    """How many grants the ledger has."""
    return sum(b'"type":"grant.reserved.v1"' in body for body in house.stored())


def tried_again(house: House, grants: int = GRANTED) -> AuditResult:
    """The ledger has so many ``grants``; whoever takes its decisions again comes to the same."""
    assert granted(house) == grants
    replayed = last_replay("fair", house.stored())
    assert replayed.findings == []
    state = house.service.state("fair")
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
        parts = [Envelope("pipe", request(n).command) for n in range(first, first + size)]
        house.service.execute("fair", Envelope.together("pipe", parts, f"batch-{first}"))
    tried_again(house, GRANTED // size * size)


def test_after_a_restart(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot holds what the rule remembers: after a restart it goes on from there."""
    monkeypatch.setattr(projections, "_WORTH", 1)
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
        patch.setattr(Quota, "compare", lambda *_: None)
        for number in range(ASKED):
            house.service.execute("fair", request(number))
    assert granted(house) == ASKED
    replayed = last_replay("fair", house.stored())
    assert len(replayed.findings) >= ASKED - GRANTED
    assert audit(house.bundle()).count >= ASKED - GRANTED


def test_what_the_rule_says_can_be_read(house: House) -> None:
    """A refusal, and a grant, tell what the rule has compared, in its words."""
    for number in range(GRANTED + 1):
        house.service.execute("fair", request(number))
    refused = house.post("/grants", ask(laplace("0.01")))
    assert refused.status_code == 403
    assert refused.json()["type"].endswith("quota-passed"), refused.json()
    assert "0.5 granted lately, 0.01 more, of 0.5" in refused.text
    first = next(n for n, body in enumerate(house.stored()) if b'"grant.reserved.v1"' in body)
    told = house.get(f"/decisions/d{first}").json()
    texts = {rule["rule"]: rule["text"] for rule in told["rules"]}
    assert texts["quota"] == "0 granted lately, 0.01 more, of 0.5"
