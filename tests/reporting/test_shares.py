"""What used a budget up, in the currency that decides what is spent."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from report_desk import Desk, data_of, limit_of
from support import NON_PRIVATE, declared, gaussian, hospital, laplace

from accountant.reporting.checklist import checklist
from accountant.reporting.model import build_report
from accountant.reporting.page import to_html
from accountant.reporting.schema import Usage
from accountant.store.ledgers import Stored

STEP = {
    "kind": "gaussian",
    "sensitivity": "1",
    "scale": "1.1",
    "sampling": {"poisson": "0.01"},
}
"""A step of DP-SGD, which has no epsilon of its own."""


def limited(desk: Desk, gate: str = "renyi", **more: Any) -> Desk:
    """A dataset under a limit of this gate."""
    rule = f"  - {{id: a, gate: {gate}, limit: {{epsilon: 4, delta: 1e-6}}}}\n"
    return desk.hospital(rule, neighbouring="add_or_remove_one", **more)


def shares(rows: tuple[Usage, ...]) -> dict[str, str | None]:
    """The share of each name."""
    return {row.name: row.share for row in rows}


def test_training_is_a_share_of_what_is_spent(desk: Desk) -> None:
    """Steps without an epsilon of their own use up what the line shows; none of it is without a
    bound.
    """
    limited(desk)
    for client, steps in (("ann", 300), ("bob", 100)):
        asked = {"dataset": "d", "mechanisms": [STEP | {"count": steps}], "purpose": client}
        desk.do("record_invocations", client, **asked)
    report = desk.report()
    data, spent = data_of(report), Decimal(limit_of(report).total.spent)
    assert data.basis.currency.startswith("tau_")
    assert data.basis.rule == "a"
    assert shares(data.by_client) == shares(data.by_purpose) == {"ann": "75.0", "bob": "25.0"}
    assert shares(data.by_kind) == {"gaussian": "100.0"}
    start = Decimal(data.basis.starts_at or "")
    assert abs(start + Decimal(data.booked.adds or "") - spent) <= Decimal("2e-9")
    assert abs(Decimal(data.by_client[0].adds or "") - (spent - start) * 3 / 4) <= Decimal("2e-9")
    page = to_html(report)
    assert "Rényi divergences of order" in page
    assert "no bound" not in page.split("What used it up")[1].split("<h2")[0]


def answer(desk: Desk, question: str) -> str:
    """What the checklist answers."""
    [found] = [
        row[1]
        for section in checklist(desk.report()).sections
        for one in section.tables
        for row in one.rows
        if row[0] == question
    ]
    return found


def test_the_checklist_tells_one_as_one(desk: Desk) -> None:
    """What there is one of is told in the singular."""
    limited(desk)
    grant = desk.grant(laplace("0.1"))
    desk.do("release_grant", grant=f"g{grant.sequence}", reason="nothing ran")
    desk.record(declared("0.1"))
    trusted = answer(desk, "What rests on the word of a client?")
    assert trusted == "1 grant was given back as never run, whole or in part."
    claims = answer(desk, "Is each loss derived rather than claimed?")
    assert claims.startswith("Claims that nothing verifies: 1 request; ")
    changes = answer(desk, "Who may ask, decide and change the rules?")
    assert changes == "Keys have roles; 1 policy of the latest 1 took two people."


def test_training_was_not_released_without_noise(desk: Desk) -> None:
    """The checklist counts as without a bound what nothing bounds, and no step of training."""
    limited(desk)
    desk.record(STEP | {"count": 100})
    desk.record(STEP | {"count": 50})

    def said() -> str:
        return answer(desk, "Was anything released without noise?")

    assert said().startswith("No charge is without a bound. 2 have no epsilon by themselves")
    desk.record(NON_PRIVATE)
    assert said().startswith("1 charge has no bound. 2 have no epsilon by themselves")


def test_open_training_holds_what_it_adds(desk: Desk) -> None:
    """A reservation without an epsilon of its own is shown by what it adds under the limit: all of
    them by what the limit has reserved. A flagged request is not said to have no bound.
    """
    limited(desk)
    desk.policy("  - {id: a, limit: {epsilon: 4, delta: 1e-6}}\n  - {id: half, of: a, at: 50%}\n")
    desk.record(STEP | {"count": 100})
    for _ in range(3):
        desk.grant(STEP | {"count": 500})
    report = desk.report()
    held, reserved = data_of(report).reservations, Decimal(limit_of(report).total.reserved)
    assert held.epsilon == "infinite"
    assert abs(Decimal(held.adds or "") - reserved) <= Decimal("3e-9")
    assert sum(Decimal(one.adds or "") for one in held.listed) == Decimal(held.adds or "")
    page = to_html(report)
    assert "no bound" not in page.split("Open reservations</h3>")[1].split("<h3")[0]
    assert "none by itself" in page.split("What stood out")[1]


@pytest.mark.parametrize("gate", ["basic", "advanced", "zcdp", "renyi", "gdp"])
def test_shares_are_of_the_sum_that_decides(desk: Desk, gate: str) -> None:
    """The parts of each table add up to the sum of the dataset, whatever decides; several kinds in
    one request, and what was given back, count in it too.
    """
    limited(desk, gate)
    desk.record(laplace("0.02", 40), gaussian("0.05", "1e-9"), purpose="p")
    grant = desk.grant(laplace("0.02", 40), gaussian("0.05", "1e-9", count=3))
    part = [laplace("0.02", 10)]
    desk.do("commit_grant", grant=f"g{grant.sequence}", mechanisms=part)
    data = data_of(desk.report())
    assert (
        data.basis.currency
        == {
            "basic": "epsilon",
            "advanced": "epsilon_squared",
            "zcdp": "rho",
            "renyi": data.basis.currency,
            "gdp": "mu_squared",
        }[gate]
        or data.basis.currency == "epsilon"
    )
    for rows in (data.by_client, data.by_purpose, data.by_kind):
        assert sum(Decimal(row.counted) for row in rows) == Decimal(data.booked.counted)
        assert abs(sum(Decimal(row.share or "") for row in rows) - 100) <= Decimal("0.2")
    if data.booked.adds is not None:
        assert Decimal(data.booked.took_back or "") > 0


def test_gaussian_privacy_at_its_limit_has_no_epsilon_of_its_own(desk: Desk) -> None:
    """Where the limit itself is what is spent, shares are all that is true."""
    limited(desk, "gdp")
    desk.record(gaussian("0.82"))
    report = desk.report()
    data = data_of(report)
    assert limit_of(report).total.spent == "4"
    assert (data.by_client[0].share, data.by_client[0].adds) == ("100.0", None)
    assert data.basis.starts_at is None
    assert "no request has an epsilon of its own" in to_html(report)


def test_what_has_no_bound_in_any_currency_says_so(desk: Desk) -> None:
    """Nothing is a share of a sum without a bound."""
    limited(desk)
    desk.record(NON_PRIVATE)
    desk.do("record_invocations", "ann", dataset="d", mechanisms=[laplace("0.5")])
    data = data_of(desk.report())
    assert data.basis.currency == "epsilon"
    assert [(row.name, row.share, row.adds) for row in data.by_client] == [
        ("pipe", None, "infinite"),
        ("ann", None, "0.5"),
    ]


def test_what_came_before_a_gate_counts_as_the_limit_counts_it(desk: Desk) -> None:
    """Under a new gate earlier use is a sure sum of epsilons; after a reset it is nothing."""
    limited(desk, "basic")
    desk.do("record_invocations", "ann", dataset="d", mechanisms=[laplace("0.5")])
    rule = "  - {{id: a, gate: {}, limit: {{epsilon: 4, delta: 1e-6}}{}}}\n"
    desk.policy(rule.format("zcdp", ""), confirmed_by="officer")
    desk.do("record_invocations", "bob", dataset="d", mechanisms=[gaussian("0.3")])
    report = desk.report()
    data, spent = data_of(report), Decimal(limit_of(report).total.spent)
    assert data.basis.currency == "rho"
    ann, bob = sorted(data.by_client, key=lambda row: row.name)
    assert Decimal("0.5") <= Decimal(ann.adds or "") <= Decimal("0.500000001")
    start = Decimal(data.basis.starts_at or "")
    assert abs(start + Decimal("0.5") + Decimal(bob.adds or "") - spent) <= Decimal("3e-9")
    desk.policy(rule.format("zcdp", ", carry: none"), confirmed_by="officer")
    desk.do("record_invocations", "eve", dataset="d", mechanisms=[laplace("0.25")])
    data = data_of(desk.report())
    assert {row.name: row.adds for row in data.by_client} == {
        "ann": "0",
        "bob": "0",
        "eve": "0.25",
    }


def test_a_report_of_one_cell_adds_up_under_every_order_of_gates() -> None:
    """Whatever gates follow each other: what each client adds, and the start of the line, are what
    is spent.
    """
    gates = ("zcdp", "renyi", "advanced", "renyi", "zcdp")
    rule = "  - {{id: a, gate: {}, limit: {{epsilon: {}, delta: 1e-6}}}}\n"
    book = hospital(rule.format("basic", 9))
    for n, gate in enumerate(gates, start=10):
        book.record(laplace("0.03", 20), declared("0.05", "1e-10"), by=f"c{n}")
        book.policy(rule.format(gate, n), confirmed_by="officer")
        book.record(gaussian("0.2", "1e-9"), laplace("0.02", 7), by=f"d{n}")
        stored = [Stored(i, body, b"") for i, body in enumerate(book.stored)]
        report = build_report("fair", stored)
        data, limit = data_of(report), limit_of(report)
        start = Decimal(data.basis.starts_at or "0")
        whole = start + sum(Decimal(row.adds or "") for row in data.by_client)
        assert abs(whole - Decimal(limit.total.spent)) <= Decimal("2e-8"), gate


def test_a_decision_tells_shares_too(world: Any) -> None:
    """The charges behind a refusal are the largest in what decides, with their shares."""
    rules = "  - {id: a, limit: {epsilon: 3, delta: 1e-6}}\n"
    made = world().hospital(rules, neighbouring="add_or_remove_one")
    for steps in (100, 300):
        asked = {"dataset": "d", "mechanisms": [STEP | {"count": steps}]}
        assert made.post("/invocations", asked).status_code == 201
    made.post("/invocations", {"dataset": "d", "mechanisms": [laplace("0.01")]})
    refused = made.post("/grants", {"dataset": "d", "mechanisms": [laplace("9")]}).json()
    [found] = made.get(f"/decisions/{refused['decision']['id']}", who="officer").json()[
        "used_up_by"
    ]
    assert found["currency"].startswith("tau_")
    first, second, third = found["events"]
    assert [row["epsilon"] for row in (first, second, third)] == ["infinite", "infinite", "0.01"]
    assert Decimal(first["share"]) == pytest.approx(
        3 * Decimal(second["share"]), rel=Decimal("0.01")
    )
    assert Decimal(first["counted"]) == 3 * Decimal(second["counted"])
    total = sum(Decimal(row["counted"]) for row in found["events"])
    assert total == Decimal(found["sum"])


def test_a_refusal_by_own_delta_tells_who_used_the_delta(world: Any) -> None:
    """Where epsilon has room the shares are of the sum of own deltas."""
    made = world().hospital("  - {id: a, limit: {epsilon: 3, delta: 1e-6}}\n")
    for mechanism in (laplace("0.5"), declared("0.1", "6e-8")):
        made.post("/invocations", {"dataset": "d", "mechanisms": [mechanism]})
    asked = {"dataset": "d", "mechanisms": [declared("0.1", "6e-8")]}
    refused = made.post("/grants", asked).json()
    [found] = made.get(f"/decisions/{refused['decision']['id']}", who="officer").json()[
        "used_up_by"
    ]
    assert (found["currency"], len(found["events"])) == ("delta", 1)
    assert (found["events"][0]["counted"], found["events"][0]["share"]) == ("0.00000006", "100.0")


def test_a_late_ancestor_shows_who_used_the_data_made_from_it(desk: Desk) -> None:
    """What it was charged with is told as theirs who used it, and so are their open grants."""
    desk.hospital("  - {id: a, limit: {epsilon: 4}}\n")
    desk.dataset("e", parents=["n/x"])
    desk.do("record_invocations", "ann", dataset="e", mechanisms=[laplace("0.5")], purpose="p")
    grant = desk.grant(laplace("0.25", 2), dataset="e")
    desk.dataset("x")
    data, limit = data_of(desk.report(), "x"), limit_of(desk.report(), dataset="x")
    assert (limit.total.spent, limit.total.reserved) == ("0.5", "0.5")
    assert [(row.name, row.epsilon) for row in data.by_client] == [("ann", "0.5"), ("pipe", "0.5")]
    assert (data.reservations.open, data.reservations.epsilon) == (1, "0.5")
    desk.do("commit_grant", grant=f"g{grant.sequence}", mechanisms=[laplace("0.25")])
    data, limit = data_of(desk.report(), "x"), limit_of(desk.report(), dataset="x")
    assert (limit.total.spent, limit.total.reserved) == ("0.75", "0")
    assert data.by_client == data_of(desk.report(), "e").by_client
    assert (data.booked.epsilon, data.reservations.open) == ("0.75", 0)


def test_a_refusal_tells_who_used_a_late_ancestor_up(world: Any) -> None:
    """The charges behind it are those on data made from it, also through a second one."""
    made = world().hospital("  - {id: a, limit: {epsilon: 1}}\n")

    def register(name: str, *parents: str) -> list[str]:
        body = {"namespace": "n", "name": name, "parents": list(parents)}
        answer = made.put(f"/datasets/{name}", body)
        assert answer.status_code == 200
        return list(answer.json().get("charged_with", []))

    assert register("e", "n/x") == []
    made.post("/invocations", {"dataset": "e", "mechanisms": [laplace("0.7")]})
    assert register("x", "n/y") == ["e"]
    made.post("/invocations", {"dataset": "x", "mechanisms": [laplace("0.2")]})
    assert register("y") == ["x"]
    refused = made.post("/grants", {"dataset": "y", "mechanisms": [laplace("0.2")]}).json()
    [found] = made.get(f"/decisions/{refused['decision']['id']}", who="officer").json()[
        "used_up_by"
    ]
    assert found["sum"] == "0.9"
    assert [(row["dataset"], row["epsilon"]) for row in found["events"]] == [
        ("e", "0.7"),
        ("x", "0.2"),
    ]
