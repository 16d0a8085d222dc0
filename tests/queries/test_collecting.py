"""Collections of reports against the real service, and beside the central model's histogram."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from catalogue import COLOURS, Rows, dataset, people

from accountant import queries
from accountant.client import Client, Refused
from accountant.queries import Dataset, Query
from accountant.queries.collecting import both_ways, response, unary

ROWS = people(900) | {"unit": np.arange(900)}
TRUE = {colour: int(np.sum(ROWS["colour"] == colour)) for colour in COLOURS}
Opens = Callable[..., Client]

WAYS: dict[str, Callable[[Dataset], Query]] = {
    "two coins": lambda data: response(
        with_smoking(data), "smokes", ["yes", "no"], truth_probability="0.5"
    ),
    "theta": lambda data: response(data, "colour", COLOURS, theta="0.6"),
    "response": lambda data: response(data, "colour", COLOURS, epsilon="1.25"),
    "unary": lambda data: unary(data, "colour", COLOURS, epsilon="1.25"),
    "bits": lambda data: unary(data, "colour", COLOURS, p="0.7", q="0.3"),
    "dimension": lambda data: unary(data, "country", epsilon="0.5"),
}
COSTS = {
    "two coins": math.log(3), "theta": math.log(3), "response": 1.25, "unary": 1.25,
    "bits": 2 * math.log(7 / 3), "dimension": 0.5,
}  # fmt: skip


def with_smoking(data: Dataset) -> Dataset:
    """The same people, with a column of yes and no."""
    rows: Rows = ROWS | {"smokes": np.where(ROWS["x"] > 6, "yes", "no")}
    return dataset(data.ledger, rows)


def spent(ledger: Client) -> dict[str, Decimal]:
    """The epsilon that each country has spent."""
    account = ledger.accounts("visits", by="country")["lifetime"]
    return {group.group: group.spent for group in account.groups}


@pytest.mark.parametrize("name", WAYS)
def test_one_report_of_everybody_is_one_grant(name: str, opened: Opens) -> None:
    """A collection costs each person one report, as previewed: its epsilon, once, whatever the
    number of people. Its answer has an estimate a category, within its bound.
    """
    ledger = opened("replace_one")
    query = WAYS[name](dataset(ledger, ROWS))
    preview = query.cost(purpose="test")
    answer = query.release(purpose="test")
    assert "count" not in answer.mechanisms[0]
    assert answer.receipt.charge == preview.charge
    assert COSTS[name] - 2e-9 < float(preview.charge["epsilon"]) < COSTS[name] + 2e-9
    assert {*spent(ledger).values()} == {preview.charge["epsilon"]}
    assert answer.error.amount <= query.error().amount
    assert answer.error.confidence == 0.95
    if name in {"theta", "response", "unary", "bits"}:
        off = [abs(answer.value[colour].count - TRUE[colour]) for colour in COLOURS]
        assert max(off) < query.error(1 - 1e-6).amount
        assert all(each.standard_error < answer.error.amount for each in answer.value.values())


@pytest.mark.parametrize("name", ["response", "unary"])
def test_an_epsilon_is_not_exceeded(name: str, replaces: Client) -> None:
    """What is charged for an epsilon is at most that, to the ledger's last digit."""
    for epsilon in ("0.1", "0.333333333", "2"):
        ask = {"response": response, "unary": unary}[name]
        query = ask(dataset(replaces, ROWS), "colour", COLOURS, epsilon=epsilon)
        charge = query.cost(purpose="test").charge["epsilon"]
        assert Decimal(epsilon) - Decimal("2e-9") <= charge <= Decimal(epsilon)


def test_a_group_pays_for_its_own_reports(opened: Opens) -> None:
    """Reports of a public group are charged to it alone."""
    ledger = opened("replace_one")
    data = dataset(ledger, ROWS).where(country=["CH", "KR"])
    answer = unary(data, "colour", COLOURS, epsilon="0.5").release(purpose="test")
    found = spent(ledger)
    assert found["JP"] == 0
    assert found["CH"] == found["KR"] == answer.receipt.charge["epsilon"]
    assert answer.value["red"].people == data.rows()


def test_the_service_refuses_local_reports_where_people_come_and_go(
    comes_and_goes: Client, replaces: Client
) -> None:
    """The service has no finite epsilon for a report under add or remove one; the query says why
    before it asks.
    """
    query = unary(dataset(replaces, ROWS), "colour", COLOURS, epsilon=1)
    with pytest.raises(Refused):
        comes_and_goes.grant("visits", query.mechanisms, purpose="test")
    for ask in (response, unary, both_ways):
        with pytest.raises(ValueError, match="registered under replace_one"):
            ask(dataset(comes_and_goes, ROWS), "colour", COLOURS, epsilon=1)  # type: ignore[operator]


def plain(ledger: Client) -> Dataset:
    """Everybody has one row."""
    return dataset(ledger, ROWS)


def several(ledger: Client) -> Dataset:
    """People with up to three rows each."""
    return dataset(ledger, ROWS, unit="unit", records_per_unit=3)


def broken(ledger: Client) -> Dataset:
    """People of whom one has said no colour."""
    colours = ROWS["colour"].astype(object)
    colours[7] = None
    return dataset(ledger, ROWS | {"colour": colours})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ledger: unary(several(ledger), "colour", COLOURS, epsilon=1), "exactly one report"),
        (lambda ledger: unary(broken(ledger), "colour", COLOURS, epsilon=1), "1 of 900 values"),
        (lambda ledger: unary(dataset(ledger, ROWS, missing="drop"), "colour", COLOURS, epsilon=1),
         "sends no report"),
        (lambda ledger: unary(dataset(ledger, ROWS).where(age=3), "colour", COLOURS, epsilon=1),
         "would show their age"),
        (lambda ledger: unary(plain(ledger), "colour", epsilon=1), "never learnt"),
        (lambda ledger: unary(plain(ledger), "colour", [], epsilon=1), "at least one"),
        (lambda ledger: unary(plain(ledger), "colour", ["red", "red"], epsilon=1), "different"),
        (lambda ledger: response(plain(ledger), "colour", ["red", "blue"], epsilon=1),
         "none of the categories"),
        (lambda ledger: response(plain(ledger), "colour", ["red"], epsilon=1), "at least two"),
        (lambda ledger: response(plain(ledger), "colour", COLOURS), "give one of"),
        (lambda ledger: response(plain(ledger), "colour", COLOURS, epsilon=0), "more than 0"),
        (lambda ledger: unary(plain(ledger), "colour", COLOURS, epsilon=-1), "more than 0"),
        (lambda ledger: queries.dataset(ledger, "visits", {"colour": []}), "no rows"),
        (lambda ledger: both_ways(plain(ledger), "colour", COLOURS, epsilon=1)
         .release(purpose="test", idempotency_key="k"), "two grants"),
    ],
)  # fmt: skip
def test_what_cannot_be_collected_is_refused(
    make: Callable[[Client], Any], words: str, opened: Opens
) -> None:
    """What would show who reports, or is no design, is refused with the reason, unpaid."""
    ledger = opened("replace_one")
    with pytest.raises(ValueError, match=words):
        make(ledger)
    assert {*spent(ledger).values()} <= {Decimal(0)}


def test_a_private_group_is_refused(opened: Opens) -> None:
    """Where it is private who is in a group, a report from it would show that."""
    data = dataset(opened("replace_one", "private"), ROWS)
    with pytest.raises(ValueError, match="a report would show it"):
        unary(data.where(country="JP"), "colour", COLOURS, epsilon=1)
    assert unary(data, "colour", COLOURS, epsilon=1).cost(purpose="test").outcome == "allow"


def test_who_has_none_of_the_categories_is_counted_nowhere(replaces: Client) -> None:
    """In unary encoding people of other colours report too, and are in no estimate."""
    query = unary(dataset(replaces, ROWS), "colour", ["red", "mauve"], epsilon=3)
    [step], [places] = query.steps, query.values()
    found = query.finish([step.ready(places)()])
    bound = step.within(1e-6)
    assert abs(found["red"].count - TRUE["red"]) < bound
    assert abs(found["mauve"].count) < bound
    assert found["red"].people == 900


def test_the_same_histogram_both_ways(opened: Opens) -> None:
    """At one epsilon both ways cost the same, and the local error is larger by the root of the
    number of people: four times as many people leave the central error of a count as it is, and
    double the local one.
    """
    ledger = opened("replace_one")
    few, many = dataset(ledger, people(2500)), dataset(ledger, people(10_000))
    both = both_ways(few, "colour", COLOURS, epsilon="0.5")
    more = both_ways(many, "colour", COLOURS, epsilon="0.5")
    (local, central), (wider, same) = both.errors(), more.errors()
    assert same == central
    assert wider.amount / local.amount == pytest.approx(2, rel=0.03)
    assert local.amount / central.amount > math.sqrt(2500) / 4
    for number in (f"{local.amount:.4g}", f"{central.amount:.4g}", "2500", "1 / root(n)"):
        assert number in both.why
    answers = both.release(purpose="test")
    charges = [float(answer.receipt.charge["epsilon"]) for answer in answers]
    assert charges == pytest.approx([0.5, 0.5], abs=3e-9)
    assert max(spent(ledger).values()) == sum(
        answer.receipt.charge["epsilon"] for answer in answers
    )


def test_the_better_local_design_is_taken(replaces: Client) -> None:
    """A response where there are fewer than 3 e^epsilon + 2 categories, else bits: whichever has
    the smaller bound; which one never depends on the data.
    """
    data = dataset(replaces, ROWS | {"day": ROWS["age"] % 14})
    for epsilon in ("0.5", "3"):
        local = both_ways(data, "day", range(14), epsilon=epsilon).local
        rest = [ask(data, "day", range(14), epsilon=epsilon) for ask in (response, unary)]
        deviations = []
        for query in rest:
            [step] = query.steps
            deviations.append(step.variance(900 / 14) / (step.hit - step.miss) ** 2)  # type: ignore[attr-defined]
        assert local.kind == rest[int(np.argmin(deviations))].kind
