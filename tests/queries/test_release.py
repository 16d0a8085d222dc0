"""Queries against the real service: what is previewed is charged, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import CASES, COLOURS, WITH_RHO, dataset, people
from opening import Network

from accountant.client import Client, Refused, Unreachable
from accountant.queries import Query, Step
from accountant.queries.steps import Draw, Laplace

ROWS = people(60)
TIGHT = """
policy: tight
rules:
  - {id: lifetime, limit: {epsilon: "1"}}
"""
Ledgers = Callable[..., Client]


@pytest.fixture(scope="module")
def ledgers(opened: Ledgers) -> list[Client]:
    """One ledger of each kind that there is."""
    kinds = [
        ("add_or_remove_one", "public"),
        ("replace_one", "public"),
        ("replace_one", "private"),
        ("zero_out", "public"),
    ]
    return [opened(*kind) for kind in kinds]


def spent(ledger: Client, country: str | None = None) -> Decimal:
    """The epsilon that is spent, in all or of a group."""
    account = ledger.accounts("visits", by="country")["lifetime"]
    groups = {group.group: group.spent for group in account.groups}
    return account.total.spent if country is None else groups[country]


@pytest.mark.parametrize("name", CASES)
def test_what_is_previewed_is_charged(name: str, ledgers: list[Client]) -> None:
    """In every relation, for everyone and for a group, the answer costs what the preview says: the
    epsilon that was asked for or hardly less, and never more.
    """
    for ledger in ledgers:
        for data in (dataset(ledger, ROWS), dataset(ledger, ROWS).where(country="JP")):
            if name == "count" and data.unit(always=True).fixed:
                continue
            query = CASES[name].make(data, epsilon="0.1")
            preview = query.cost(purpose="test")
            answer = query.release(purpose="test")
            charge = answer.receipt.charge
            assert charge == preview.charge
            assert Decimal("0.09999999") < charge["epsilon"] <= Decimal("0.1")
            assert answer.mechanisms == query.mechanisms
            state = ledger.grant_state(answer.receipt.grant)
            assert (state.state, state.charged) == ("committed", charge)
            assert answer.error.confidence == 0.95
            assert answer.error.amount >= 0


@pytest.mark.parametrize("name", WITH_RHO)
def test_rho_is_charged(name: str, ledgers: list[Client]) -> None:
    """With normal noise the charge is the rho that was asked for, or hardly less."""
    for ledger in ledgers:
        data = dataset(ledger, ROWS).where(country=["JP", "KR"])
        if name == "count" and data.unit(always=True).fixed:
            continue
        charge = CASES[name].make(data, rho="0.001").release(purpose="test").receipt.charge
        assert Decimal("0.00099999") < charge["rho"] <= Decimal("0.001")


def test_only_the_group_is_charged(opened: Ledgers) -> None:
    """A selection by a dimension is charged to its cells; one by another column to everyone, and
    the query says so.
    """
    ledger = opened()
    data = dataset(ledger, ROWS)
    query = data.where(country="JP").mean("x", epsilon="0.25")
    assert query.notes == ()
    query.release(purpose="test")
    assert [spent(ledger, each) for each in ("CH", "JP", "KR")] == [0, Decimal("0.25"), 0]
    both = data.where(colour="red", country=["JP", "CH"]).count(epsilon="0.5")
    assert "charged to the whole group" in both.notes[0]
    both.release(purpose="test")
    assert [spent(ledger, each) for each in ("CH", "JP", "KR")] == [
        Decimal("0.5"), Decimal("0.75"), 0,
    ]  # fmt: skip
    red = data.where(colour="red").count(epsilon="1")
    assert "'colour' is no registered dimension" in red.notes[0]
    assert "charged to everyone" in red.notes[0]
    red.release(purpose="test")
    assert spent(ledger, "KR") == 1


def test_a_group_with_private_members_costs_what_was_asked(opened: Ledgers) -> None:
    """Where a person may leave a group unseen, the service books a narrow charge twice; the query
    buys half, and says so.
    """
    ledger = opened("replace_one", "private")
    query = dataset(ledger, ROWS).where(country="JP").sum("x", epsilon="0.5")
    assert "one person may leave it and another come" in query.notes[0]
    [mechanism] = query.mechanisms
    assert mechanism["neighbouring"] == "add_or_remove_one"
    assert Decimal(mechanism["scale"]) == 40
    assert query.release(purpose="test").receipt.charge["epsilon"] == Decimal("0.5")


def test_a_refusal_comes_before_any_draw(opened: Ledgers) -> None:
    """What the ledger refuses is not drawn, and costs nothing; a preview says so before."""
    ledger = opened(policy=TIGHT)
    query = dataset(ledger, ROWS).mean("x", epsilon=2)
    assert query.cost().outcome == "block"
    with pytest.raises(Refused, match="lifetime"):
        query.release()
    assert spent(ledger) == 0
    small = dataset(ledger, ROWS).mean("x", epsilon="0.5")
    assert small.cost().fits == 2
    small.release()
    small.release()
    with pytest.raises(Refused):
        small.release()
    assert spent(ledger) == 1


def test_inspecting_spends_nothing(opened: Ledgers) -> None:
    """Mechanisms, errors and notes can be looked at without an event."""
    ledger = opened()
    before = ledger.accounts().sequence
    query = dataset(ledger, ROWS).where(colour="red").mean("x", epsilon=1)
    assert len(query.mechanisms) == 2
    assert query.error(0.9, records=50).amount < query.error(0.99, records=50).amount
    assert query.error(records=500).amount < query.error(records=50).amount
    assert "mean" in repr(query)
    assert str(ROWS["x"][1]) not in repr(query)
    assert ledger.accounts().sequence == before


def test_a_receipt_proves_the_charge(comes_and_goes: Client) -> None:
    """The receipt leads to the event, and to a proof that it is in the ledger."""
    answer = dataset(comes_and_goes, ROWS).count(epsilon=1).release(purpose="test")
    event = comes_and_goes.event(answer.receipt.sequence)
    assert b"discrete_laplace" in event
    assert answer.receipt.proof().startswith(b"c2sp.org/tlog-proof@v1")
    assert answer.receipt.flags == ()


def test_each_release_draws_anew_and_pays_anew(opened: Ledgers) -> None:
    """A query that is released twice is two answers and two charges."""
    ledger = opened()
    query = dataset(ledger, ROWS).sum("x", epsilon=1)
    assert query.release(purpose="test").value != query.release(purpose="test").value
    assert spent(ledger) == 2


@dataclass(frozen=True)
class Failing(Laplace):
    """A step whose draw fails after it was announced, or that cannot be made ready."""

    early: bool = False

    def ready(self, value: Any) -> Draw:
        """Fail now, or when it is drawn."""
        if self.early:
            raise ZeroDivisionError

        def draw() -> Any:
            raise ZeroDivisionError

        return draw


def failing(query: Query, step: Step, *, first: bool) -> Query:
    """The query with a further step, which fails."""
    [value] = query.values()
    steps = (step, *query.steps) if first else (*query.steps, step)
    return replace(query, steps=steps, values=lambda: [value, value])


def test_what_was_drawn_before_a_failure_is_charged(opened: Ledgers) -> None:
    """A draw that fails is charged with those before it; what comes after it comes back."""
    ledger = opened()
    query = dataset(ledger, ROWS).sum("x", epsilon=1)
    broken = Failing(Fraction(1), Fraction(4))
    for first, cost in ((True, Decimal("0.25")), (False, Decimal("1.25"))):
        before = spent(ledger)
        with pytest.raises(ZeroDivisionError):
            failing(query, broken, first=first).release(purpose="test")
        assert spent(ledger) - before == cost
    assert list(ledger.open_grants()) == []


def test_a_failure_before_the_grant_costs_nothing(opened: Ledgers) -> None:
    """What cannot be made ready is found out before anything is asked for."""
    ledger = opened()
    before = ledger.accounts().sequence
    query = dataset(ledger, ROWS).sum("x", epsilon=1)
    early = Failing(Fraction(1), Fraction(4), early=True)
    with pytest.raises(ZeroDivisionError):
        failing(query, early, first=False).release(purpose="test")
    with pytest.raises(ValueError, match="not a finite number"):
        dataset(ledger, ROWS).choose(
            COLOURS, lambda *_: float("nan"), sensitivity=1, epsilon=1
        ).release(purpose="test")
    assert ledger.accounts().sequence == before


@dataclass(frozen=True)
class Unplugged(Laplace):
    """A step that draws, after which the service cannot be reached."""

    network: Network | None = None

    def ready(self, value: Any) -> Draw:
        """Draw, and cut the way."""
        draw = super().ready(value)

        def unplugged() -> Any:
            assert self.network is not None
            self.network.cut = True
            return draw()

        return unplugged


def test_an_uncommitted_answer_is_not_shown(opened: Ledgers) -> None:
    """Where the commit does not arrive there is no answer, and the grant stays open until it
    expires and is charged.
    """
    ledger = opened(attempts=1)
    network = Network.of(ledger)
    query = dataset(ledger, ROWS).sum("x", epsilon=1)
    step = Unplugged(Fraction(1), Fraction(4), network=network)
    with pytest.raises(Unreachable):
        failing(query, step, first=False).release(purpose="test")
    network.cut = False
    [grant] = ledger.open_grants()
    assert grant.reserved["epsilon"] == Decimal("1.25")


def test_the_group_of_a_query_cannot_be_changed(comes_and_goes: Client) -> None:
    """Who is charged follows from the data, and is no argument of a release."""
    query = dataset(comes_and_goes, ROWS).count(epsilon=1)
    with pytest.raises(TypeError, match="subjects"):
        query.release(purpose="test", subjects={"country": ["JP"]})  # type: ignore[call-arg]


def test_answers_look_as_the_data_do(comes_and_goes: Client) -> None:
    """Counts and medians of whole numbers are whole; histograms are by category, sums by column."""
    data = dataset(comes_and_goes, ROWS)
    release = {name: CASES[name].make(data, epsilon=50).release(purpose="test") for name in CASES}
    assert isinstance(release["count"].value, int)
    assert isinstance(release["median"].value, int)
    assert isinstance(release["mean"].value, float)
    assert list(release["histogram"].value) == COLOURS
    assert list(release["sums"].value) == ["x", "y"]
    assert release["choice"].value in COLOURS
    assert float(release["mean"].error) == release["mean"].error.amount
    by_country = data.histogram("country", epsilon=50).release(purpose="test").value
    assert by_country == {
        name: pytest.approx(int(np.sum(ROWS["country"] == name)), abs=2)
        for name in ("CH", "JP", "KR")
    }
