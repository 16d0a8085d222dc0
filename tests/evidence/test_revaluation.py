"""A bound that was wrong: history stays as it was booked, the difference is booked beside it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support import World, ask, gaussian, laplace, mechanism, migrate

from accountant.auditing.verify import AuditResult, verify
from accountant.budget.commands import AdoptEngine, Envelope
from accountant.budget.custody.revaluation import Corrections
from accountant.budget.errors import Conflict
from accountant.budget.replay import replay
from accountant.ledger.events import Event
from accountant.privacy import engine
from accountant.privacy.losses import Loss, pure
from accountant.privacy.mechanisms import pricing
from accountant.publishing.export import covering, write_bundle
from accountant.publishing.publisher import Publisher
from accountant.store.vault import Vault


def half(mechanism: Any, _: Any) -> Loss:
    """A wrong bound of Laplace noise: half of what it costs."""
    return pure(Fraction(mechanism.sensitivity) / Fraction(mechanism.scale) / 2)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Version 1 of the bounds believed ``half``; calling it goes over to version 2. Prices are
    remembered for as long as a process lives, in which no bound changes but here.
    """

    def corrected(version: int = 2) -> None:
        monkeypatch.setattr(engine, "CURRENT", version)

    monkeypatch.setitem(engine.FORMER, "laplace", {1: half})
    forget()
    yield corrected
    forget()


def forget() -> None:
    """Forgets all prices."""
    pricing._price_sampled.cache_clear()
    pricing._price_compound.cache_clear()


@pytest.fixture
def world(tmp_path: Path, wrong: Any) -> Iterator[World]:
    """A ledger whose Laplace charges were all booked at half."""
    url = f"sqlite:///{tmp_path}/a.db"
    migrate(url)
    made = World(url)
    made.service.vault = Vault(tmp_path)
    made.hospital("  - {id: a, limit: {epsilon: 1000, delta: 0.1}}\n", {"country": ["KR", "JP"]})
    yield made
    made.close()


def spend(world: World) -> None:
    """Every way in which Laplace noise is booked: 13 units by half the bound, 26 by the whole."""
    world.post("/invocations", ask(laplace(2)))  # everyone: 2
    world.post("/invocations", ask(laplace(4), subjects={"country": ["KR"]}))  # KR: 4
    whole = world.post("/grants", ask(laplace(6))).json()["id"]
    world.post(f"/grants/{whole}/commit", {})
    part = world.post("/grants", ask(laplace(2, count=5))).json()["id"]
    world.post(f"/grants/{part}/commit", {"mechanisms": [laplace(2, count=4)]})  # 8
    none = world.post("/grants", ask(laplace(10))).json()["id"]
    world.post(f"/grants/{none}/release", {"reason": "not run"})
    inner = {"kind": "composed", "mechanisms": [laplace(6), gaussian("1", "0.00001")]}
    world.post("/invocations", ask(inner))
    world.post("/invocations", ask(gaussian("1", "0.00001")))


def revalue(world: World) -> int:
    """What ``accountant revalue --kind laplace`` does; how many charges it corrects."""
    size = world.service.adopt_engine("fair", by="operator:me")
    corrections = Corrections(frozenset(["laplace"]))
    for row in world.service.stream("fair"):
        if row.sequence < size:
            corrections.take(Event.from_bytes(row.body))
    state = world.service.state("fair")
    due = corrections.due(state)
    for booked in due:
        world.service.execute("fair", Envelope("operator:me", booked.command("half was booked")))
    return len(due)


def audited(world: World) -> AuditResult:
    """The verdict on a bundle of the ledger."""
    assert world.service.vault is not None
    signed = Publisher(world.service, world.service.vault, "example.org").sign("fair")
    out = io.BytesIO()
    entries = covering(0, None, signed.size)
    state = world.service.state("fair")
    write_bundle(out, world.service.ledgers, "fair", signed, state, entries)
    return verify([io.BytesIO(out.getvalue())])


def epsilon(world: World) -> list[int]:
    """Whole epsilons used by rule a, in each cell, of Laplace noise alone."""
    gauss = next(
        int(Event.from_bytes(body).body["total"]["epsilon"])
        for body in reversed(world.stored())
        if b'"invocation.recorded.v1"' in body and b'"composed"' not in body
    )
    return [(cell[0] - 2 * gauss) // 10**9 for cell in world.used()]


def test_the_difference_is_booked_once(world: World, wrong: Any) -> None:
    """After a correction every past charge costs what it should, each event being booked once."""
    spend(world)
    assert epsilon(world) == [13, 11]
    wrong()
    before = world.stored()
    assert revalue(world) == 5
    assert epsilon(world) == [26, 22]
    assert world.stored()[: len(before)] == before
    assert revalue(world) == 0


def test_what_is_asked_after_the_correction_costs_the_right_amount(
    world: World, wrong: Any
) -> None:
    """The first event after a correction says which version decides, and is priced by it."""
    wrong()
    world.post("/invocations", ask(laplace(2)))
    events = [Event.from_bytes(body) for body in world.stored()[-2:]]
    assert [event.type for event in events] == ["engine.adopted.v1", "invocation.recorded.v1"]
    assert events[1].body["total"]["epsilon"] == str(2 * 10**9)


def test_what_was_reserved_comes_back_as_it_was_reserved(world: World, wrong: Any) -> None:
    """A part that is committed after the correction is priced as when it was reserved."""
    grant = world.post("/grants", ask(laplace(2, count=5))).json()["id"]
    wrong()
    answer = world.post(f"/grants/{grant}/commit", {"mechanisms": [laplace(2, count=4)]}).json()
    assert answer["charged"]["epsilon"] == "4"
    assert revalue(world) == 1
    assert [cell[0] for cell in world.used()] == [8 * 10**9] * 2


def test_a_ledger_with_a_correction_verifies(world: World, wrong: Any) -> None:
    """Each event is decided again by the version that decided it, and no difference is owed."""
    spend(world)
    spend(world)
    wrong()
    revalue(world)
    spend(world)
    verdict = audited(world)
    assert (verdict.findings, verdict.decided) == ([], True)


def test_a_difference_that_nobody_booked_is_a_finding(world: World, wrong: Any) -> None:
    """Whoever verifies with the corrected bounds is told which events cost more than was booked."""
    spend(world)
    wrong()
    world.service.adopt_engine("fair", by="operator:me")
    found = [finding.sequence for finding in audited(world).findings]
    kinds = [Event.from_bytes(world.stored()[number or 0]).type for number in found]
    assert kinds == ["invocation.recorded.v1"] * 2 + ["grant.reserved.v1"] * 2 + [
        "invocation.recorded.v1"
    ]


def test_a_revaluation_by_other_facts_is_a_finding(world: World, wrong: Any) -> None:
    """Claiming that more had been booked than was, or another mechanism, is found."""
    world.post("/invocations", ask(laplace(2)))
    wrong()
    size = world.service.adopt_engine("fair", by="operator:me")
    corrections = Corrections()
    for row in world.service.stream("fair"):
        if row.sequence < size:
            corrections.take(Event.from_bytes(row.body))
    [booked] = corrections.booked.values()
    less = booked.command("cheap").model_copy(update={"mechanisms": [mechanism(laplace("1.5"))]})
    world.service.execute("fair", Envelope("operator:me", less))
    assert [f.sequence for f in audited(world).findings] == [size]


def test_an_older_program_does_not_read_on(world: World, wrong: Any) -> None:
    """A program that does not know the version that decides says so, and folds nothing more."""
    wrong()
    world.post("/invocations", ask(laplace(2)))
    wrong(1)
    last = list(replay("fair", world.stored()))[-1]
    assert any("take a later one" in finding.reason for finding in last.findings)


def test_versions_only_go_forward(world: World, wrong: Any) -> None:
    """The version that decides is never an earlier one, nor one that this program does not have."""
    wrong()
    world.service.adopt_engine("fair", by="me")
    for version in (1, 2, 3):
        with pytest.raises(Conflict):
            world.service.execute("fair", Envelope("me", AdoptEngine(version=version)))
