"""dp_accounting's events are asked as they are, before they are composed."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

dp_accounting = pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
pytest.importorskip("hypothesis", reason="hypothesis is not installed")

from dp_accounting import dp_event  # noqa: E402
from dp_accounting.pld import PLDAccountant  # noqa: E402
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError  # noqa: E402
from dp_accounting.rdp import RdpAccountant  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from ledger import charge, counts, events  # noqa: E402

from accountant.adapters.dp_accounting import LedgerAccountant, grant_for  # noqa: E402
from accountant.client import Client, Refused, Unreachable, from_dp_event  # noqa: E402

if TYPE_CHECKING:
    from service import Running

ADDED, REPLACED = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
HALF = dp_event.LaplaceDpEvent(2.0)
TRAINING = """
policy: training
rules:
  - {id: lifetime, limit: {epsilon: 3, delta: 1e-5}, gate: renyi}
"""
STEP = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.1))


@pytest.fixture
def ledger(served: Running) -> Any:
    """A client of a population with a limit of 1, in which units are there or not."""
    with served.client(served.population(neighbouring="add_or_remove_one")) as client:
        yield client


def test_a_tree_is_asked_as_it_is(served: Running) -> None:
    """The ledger holds the event's own classes and fields, and the grant is a grant."""
    population = served.population(TRAINING, "add_or_remove_one")
    with (
        served.client(population) as client,
        grant_for(STEP, client, "visits", count=1000, ttl_seconds=600) as grant,
    ):
        assert grant.outcome == "allow"
    [reserved] = events(served, population, "grant.reserved")
    [stated] = reserved["command"]["mechanisms"]
    assert (stated["kind"], stated["scale"], stated["count"]) == ("gaussian", "1.1", 1000)
    assert stated["sampling"] == {"poisson": "0.01"}
    assert reserved["command"]["ttl_seconds"] == 600
    assert counts(served, population) == (1, 1, 0, 0)


@pytest.mark.parametrize("field", [{"tracked": True}, {"idempotency_key": "one"}], ids=str)
def test_a_field_by_which_an_event_would_be_free_is_refused(
    ledger: Client, field: dict[str, Any]
) -> None:
    """Nobody says of a composed event what was used of its grant, and two events are two grants."""
    with pytest.raises(TypeError, match=next(iter(field))):
        LedgerAccountant(PLDAccountant(), ledger, "visits", purpose="test", **field)


def test_composing_asks_first(served: Running, ledger: Client) -> None:
    """Each event has a grant, which is committed once the inner accountant has composed it."""
    accountant = LedgerAccountant(PLDAccountant(ADDED), ledger, "visits", purpose="test")
    noise = dp_event.LaplaceDpEvent(4.0)
    assert accountant.compose(noise).compose(noise, 2) is accountant
    assert counts(served, ledger.population) == (2, 2, 0, 0)
    booked = [
        each["charge"]["epsilon"] for each in events(served, ledger.population, "grant.committed")
    ]
    assert booked == ["250000000", "500000000"]
    assert accountant.get_epsilon(1e-9) == pytest.approx(0.75, rel=1e-3)
    assert accountant.get_delta(0.75) == pytest.approx(0, abs=1e-6)
    assert accountant.ledger == dp_event.SelfComposedDpEvent(noise, 3)
    assert accountant.neighboring_relation is ADDED


def test_a_refusal_leaves_both_accountants_as_they_were(served: Running, ledger: Client) -> None:
    """What was refused is in no ledger but as a refusal."""
    inner = PLDAccountant(ADDED)
    accountant = LedgerAccountant(inner, ledger, "visits", purpose="test")
    accountant.compose(HALF)
    with pytest.raises(Refused, match="lifetime"):
        accountant.compose(HALF, 2)
    assert accountant.ledger == HALF
    assert inner.get_epsilon(1e-9) == pytest.approx(0.5, rel=1e-3)
    accountant.compose(HALF)
    assert counts(served, ledger.population) == (2, 2, 0, 1)


def test_what_cannot_be_composed_is_not_asked(served: Running, ledger: Client) -> None:
    """The inner accountant's own refusals come first, and what costs nothing is not asked for."""
    accountant = LedgerAccountant(RdpAccountant(), ledger, "visits", purpose="test")
    assert accountant.supports(STEP)
    with pytest.raises(UnsupportedEventError):
        accountant.compose(dp_event.UnsupportedDpEvent())
    with pytest.raises(TypeError, match="not a DpEvent"):
        accountant.compose("gaussian")
    accountant.compose(dp_event.NoOpDpEvent())
    assert counts(served, ledger.population) == (0, 0, 0, 0)


def test_without_an_answer_nothing_is_composed() -> None:
    """A service that cannot be reached stops it as a refusal does."""
    away = Client("http://127.0.0.1:9", "acct_none", "nowhere", attempts=1)
    accountant = LedgerAccountant(PLDAccountant(ADDED), away, "visits")
    with away, pytest.raises(Unreachable):
        accountant.compose(HALF)
    assert accountant.ledger == dp_event.NoOpDpEvent()


def test_an_exception_while_composing_is_charged(served: Running, ledger: Client) -> None:
    """Noise may have been drawn by then."""

    class Failing(PLDAccountant):  # type: ignore[misc]
        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            if do_compose:
                raise ZeroDivisionError
            return super()._maybe_compose(event, count, do_compose)

    accountant = LedgerAccountant(Failing(ADDED), ledger, "visits", purpose="test")
    with pytest.raises(ZeroDivisionError):
        accountant.compose(HALF)
    assert counts(served, ledger.population) == (1, 1, 0, 0)


def test_an_event_in_another_relation_is_refused(served: Running) -> None:
    """An event that does not say what it is relative to is taken in the population's relation:
    where another one is meant nothing is asked. Noise says it, and costs twice for a replaced unit.
    """
    policy = (
        "policy: p\nrules:\n  - {id: lifetime, limit: {epsilon: 99, delta: 1e-5}, gate: zcdp}\n"
    )
    concentrated = dp_event.ZCDpEvent(0.5)
    with served.client(served.population(policy, "replace_one")) as client:
        added = LedgerAccountant(RdpAccountant(neighboring_relation=ADDED), client, "visits")
        for event in (concentrated, dp_event.ComposedDpEvent([HALF, concentrated])):
            with pytest.raises(ValueError, match="ZCDpEvent is meant in add_or_remove_one"):
                added.compose(event)
        assert counts(served, client.population) == (0, 0, 0, 0)
        added.compose(dp_event.GaussianDpEvent(1.0))
        replaced = LedgerAccountant(RdpAccountant(neighboring_relation=REPLACED), client, "visits")
        replaced.compose(concentrated)
    first, second = events(served, client.population, "grant.committed")
    assert (first["charge"]["rho"], second["charge"]["rho"]) == (str(2 * 10**15), str(5 * 10**14))


@settings(max_examples=20, deadline=None)
@given(st.floats(min_value=0.5, max_value=20), st.integers(min_value=1, max_value=5))
def test_noise_never_costs_less_than_by_pld(served: Running, multiplier: float, times: int) -> None:
    """The epsilons of Laplace noise add up to no less than dp_accounting's own, and the mu of
    Gaussian noise gives no smaller epsilon.
    """
    with served.client(served.population(neighbouring="add_or_remove_one")) as client:
        laplace = dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(multiplier), times)
        booked = charge(client, [from_dp_event(laplace)])
        step = 1e-3  # to which it rounds up the loss of each
        own = PLDAccountant(ADDED, step).compose(laplace).get_epsilon(1e-9)
        assert booked["epsilon"] >= Decimal(own - times * step)
        gaussian = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(multiplier), times)
        rho = charge(client, [from_dp_event(gaussian)])["rho"]
        own = RdpAccountant([2, 8, 32]).compose(gaussian)._rdp[1]
        assert rho * 8 >= Decimal(own) * (1 - Decimal("1e-9"))
