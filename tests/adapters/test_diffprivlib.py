"""diffprivlib asks before its tools draw, and what they spend is what the ledger holds."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

diffprivlib = pytest.importorskip("diffprivlib", reason="diffprivlib is not installed")
numpy = pytest.importorskip("numpy")

from diffprivlib.mechanisms import LaplaceTruncated  # noqa: E402
from diffprivlib.models import GaussianNB  # noqa: E402
from diffprivlib.utils import BudgetError  # noqa: E402
from ledger import asked, counts, events  # noqa: E402

from accountant.adapters.diffprivlib import LedgerAccountant  # noqa: E402
from accountant.client import Client, Refused, Unreachable  # noqa: E402

if TYPE_CHECKING:
    from service import Running

AGES = numpy.array([20.0, 30.0, 40.0, 50.0])


def mean(accountant: Any, epsilon: float = 0.25) -> float:
    """A noisy mean."""
    return float(
        diffprivlib.tools.mean(AGES, epsilon=epsilon, bounds=(0, 120), accountant=accountant)
    )


@pytest.fixture
def ledger(served: Running) -> Any:
    """A client of a population with a limit of 1, in which units are there or not."""
    with served.client(served.population(neighbouring="add_or_remove_one")) as client:
        yield client


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The values to which diffprivlib has added noise."""
    found: list[float] = []
    randomise = LaplaceTruncated.randomise

    def counted(self: Any, value: float) -> float:
        found.append(value)
        return float(randomise(self, value))

    monkeypatch.setattr(LaplaceTruncated, "randomise", counted)
    return found


@pytest.mark.parametrize("field", [{"tracked": True}, {"idempotency_key": "one"}], ids=str)
def test_a_field_by_which_a_tool_would_be_free_is_refused(
    ledger: Client, field: dict[str, Any]
) -> None:
    """Nobody says of a tool what was used of its grant, and two tools are two grants."""
    with pytest.raises(TypeError, match=next(iter(field))):
        LedgerAccountant(ledger, "visits", purpose="test", **field)


def test_a_tool_asks_draws_and_commits(served: Running, ledger: Client, draws: list[float]) -> None:
    """Each is declared with its own epsilon and committed; diffprivlib has spent as much."""
    accountant = LedgerAccountant(ledger, "visits", purpose="test")
    assert 0 <= mean(accountant) <= 120
    mean(accountant, 0.5)
    declared = {"kind": "declared", "neighbouring": "add_or_remove_one"}
    assert asked(served, ledger.population) == [
        [declared | {"epsilon": "0.25"}],
        [declared | {"epsilon": "0.5"}],
    ]
    assert counts(served, ledger.population) == (2, 2, 0, 0)
    assert accountant.spent_budget == [(0.25, 0), (0.5, 0)]
    assert len(draws) == 2
    [found, _] = events(served, ledger.population, "grant.reserved")
    sampler = found["command"]["mechanisms"][0]["sampler"]
    assert sampler == {"library": "diffprivlib", "version": diffprivlib.__version__}


def test_a_refusal_comes_before_noise_and_spends_nothing(
    served: Running, ledger: Client, draws: list[float]
) -> None:
    """The tool raises what the service said; diffprivlib's own budget is as it was, and goes on."""
    accountant = LedgerAccountant(ledger, "visits", epsilon=2.0, purpose="test")
    mean(accountant, 0.5)
    with pytest.raises(Refused, match="lifetime"):
        mean(accountant, 0.75)
    assert len(draws) == 1
    assert accountant.spent_budget == [(0.5, 0)]
    mean(accountant, 0.5)
    assert counts(served, ledger.population) == (2, 2, 0, 1)


def test_the_ceiling_of_the_process_comes_first(
    served: Running, ledger: Client, draws: list[float]
) -> None:
    """What diffprivlib refuses by itself is not asked."""
    accountant = LedgerAccountant(ledger, "visits", epsilon=0.25, purpose="test")
    with pytest.raises(BudgetError):
        mean(accountant, 0.5)
    assert (draws, counts(served, ledger.population)) == ([], (0, 0, 0, 0))


def test_without_an_answer_nothing_is_drawn(served: Running, draws: list[float]) -> None:
    """A service that cannot be reached stops a tool as a refusal does."""
    away = Client("http://127.0.0.1:9", "acct_none", "nowhere", attempts=1)
    with away, pytest.raises(Unreachable):
        mean(LedgerAccountant(away, "visits"))
    assert draws == []


def test_an_exception_after_noise_is_charged(
    served: Running, ledger: Client, draws: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that fails between its check and its spending leaves a grant that is committed with
    the next check, or at the end of the block.
    """
    counted = LaplaceTruncated.randomise

    def failing(self: Any, value: float) -> float:
        counted(self, value)
        raise ZeroDivisionError

    monkeypatch.setattr(LaplaceTruncated, "randomise", failing)
    with LedgerAccountant(ledger, "visits", purpose="test") as accountant:
        with pytest.raises(ZeroDivisionError):
            mean(None)
        assert counts(served, ledger.population) == (1, 0, 0, 0)
        with pytest.raises(ZeroDivisionError):
            mean(None)
        assert counts(served, ledger.population) == (2, 1, 0, 0)
    assert counts(served, ledger.population) == (2, 2, 0, 0)
    assert (len(draws), accountant.spent_budget) == (2, [])


def test_a_commit_that_fails_keeps_the_answer_back(
    served: Running, ledger: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the service has not recorded is not published; the grant is settled before the next is
    asked.
    """
    accountant = LedgerAccountant(ledger, "visits", purpose="test")
    randomise = LaplaceTruncated.randomise

    def cut_off(self: Any, value: float) -> float:
        monkeypatch.setattr(ledger, "url", "http://127.0.0.1:9")
        ledger.close()
        ledger._options["base_url"] = ledger.url
        return float(randomise(self, value))

    monkeypatch.setattr(LaplaceTruncated, "randomise", cut_off)
    with pytest.raises(Unreachable):
        mean(accountant)
    monkeypatch.undo()
    ledger.close()
    ledger._options["base_url"] = ledger.url
    assert counts(served, ledger.population) == (1, 0, 0, 0)
    mean(accountant)
    assert counts(served, ledger.population) == (2, 2, 0, 0)


def test_the_block_has_a_default_accountant(served: Running, ledger: Client) -> None:
    """Within it tools that name no accountant ask; outside they do not, as before."""
    with LedgerAccountant(ledger, "visits", purpose="test"):
        mean(None)
    mean(None)
    assert counts(served, ledger.population) == (1, 1, 0, 0)


def test_what_is_spent_without_a_check_is_recorded(served: Running, ledger: Client) -> None:
    """A tool that only spends has drawn already: it is booked as a past run, within limits or
    not.
    """
    accountant = LedgerAccountant(ledger, "visits", purpose="test", ttl_seconds=60)
    accountant.spend(3.0, 0)
    assert counts(served, ledger.population) == (0, 0, 0, 0)
    [recorded] = events(served, ledger.population, "invocation.recorded")
    assert recorded["command"]["mechanisms"][0]["epsilon"] == "3"
    assert accountant.total() == (3.0, 0)


def test_what_was_spent_before_is_not_reported_again(served: Running, ledger: Client) -> None:
    """A list of earlier spendings counts in diffprivlib only."""
    accountant = LedgerAccountant(
        ledger, "visits", epsilon=1.0, delta=0.0, spent_budget=[(0.5, 0.0)], purpose="test"
    )
    assert accountant.spent_budget == [(0.5, 0.0)]
    assert counts(served, ledger.population) == (0, 0, 0, 0)
    with pytest.raises(BudgetError):
        mean(accountant, 0.75)


def test_a_check_by_hand_is_charged(served: Running, ledger: Client) -> None:
    """It cannot be told from a tool that fails; a delta is passed on."""
    with LedgerAccountant(ledger, "visits", purpose="test") as accountant:
        with pytest.raises(Refused, match="delta"):
            accountant.check(0.25, 1e-6)
        assert accountant.check(0.25, 0)
    assert counts(served, ledger.population) == (1, 1, 0, 1)


def test_a_model_asks_once_for_its_training(served: Running, ledger: Client) -> None:
    """Fitting checks and spends its epsilon, also in copies of the model."""
    labels = numpy.array([0, 1, 0, 1])
    accountant = LedgerAccountant(ledger, "visits", purpose="test")
    model = GaussianNB(epsilon=0.25, bounds=(0, 120), accountant=accountant)
    model.fit(AGES.reshape(-1, 1), labels)
    twin = copy.deepcopy(model)
    assert twin.accountant is accountant
    assert copy.copy(accountant) is accountant
    twin.fit(AGES.reshape(-1, 1), labels)
    assert counts(served, ledger.population) == (2, 2, 0, 0)
    assert accountant.total()[0] == 0.5


def test_what_is_charged_is_never_below_the_librarys_total(served: Running, ledger: Client) -> None:
    """A histogram is stated for a unit that is there or not: where units are replaced, two of its
    bins change, and twice the epsilon is charged. For a mean one may say so.
    """
    population = served.population(neighbouring="replace_one")
    with served.client(population) as client:
        histogram = LedgerAccountant(client, "visits", purpose="test")
        diffprivlib.tools.histogram(
            AGES, epsilon=0.25, bins=2, range=(0, 120), accountant=histogram
        )
        mean(LedgerAccountant(client, "visits", neighbouring="replace_one", purpose="test"))
    first, second = events(served, population, "grant.committed")
    assert (first["charge"]["epsilon"], second["charge"]["epsilon"]) == ("500000000", "250000000")
