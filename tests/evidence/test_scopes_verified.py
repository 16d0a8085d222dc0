"""Both verifiers and the tables follow datasets that come into scopes and go out of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from house import House, adopt, audit, reasons, resident
from support import ask, by_two, declared, gaussian, laplace, make

from accountant import verify_minimal
from accountant.budget.commands import Envelope
from accountant.budget.facts import grant_in
from accountant.publishing.fleet.export import write_fleet

RULES = """
  - {id: wide, limit: {epsilon: 1000, delta: 1e-5}}
  - {id: own, limit: {epsilon: 3, delta: 1e-6}, labels: {risk: [high, odd]}}
  - {id: sum, across: datasets, limit: {epsilon: 4, delta: 1e-6}, labels: {risk: high}, gate: zcdp}
  - {id: week, window: 7d, across: datasets, limit: {epsilon: 4}, owners: [team-*], per: client}
  - {id: etl, limit: {epsilon: 1}, clients: [etl-*], datasets: [d, e-*]}
  - {id: near, of: sum, at: 50%}
  - {id: cap, at_most: {epsilon: 2}, purposes: [study], labels: {risk: high}}
  - {id: raw, mechanisms: [declared], owners: [team-b]}
  - {id: why, require: [justification], labels: {risk: high}, action: flag}
  - {id: what, purposes: [study, audit], labels: {risk: high}, action: flag}
"""


def describe(house: House, name: str, **about: Any) -> None:
    """Registers a dataset, or what has changed of it, by two names."""
    command = make("register_dataset", **({"id": name, "namespace": "n", "name": name} | about))
    by_two(house.service, "fair", Envelope("admin", command))


def lived(house: House) -> House:
    """A ledger on which datasets move while budget is spent and reserved."""
    resident(house, {"sex": ["f", "m"], "age": ["17", "22"]})
    describe(house, "e-1", owner="team-b", labels={"risk": "high"})
    house.do("record_invocations", **ask(laplace("0.5"), subjects={"sex": ["f"]}))
    adopt(house, RULES, confirmed_by="officer")
    held = house.grant("0.25", dataset="d", subjects={"age": ["22"]}, purpose="study")
    for number, name in enumerate(("d", "e-1", ["d", "e-1"]) * 2):
        more = {"dataset": name, "purpose": ("study", "x")[number % 2]}
        by = ("pipe", "etl-1")[number % 2]
        house.do("ask_grant", by, **ask(gaussian("0.01", "1e-9"), laplace("0.1"), **more))
        house.do("record_invocations", by, **ask(declared("0.1", "1e-9"), **more))
        if number:  # d is in scope of a limit
            house.do("ask_grant", by, **ask(laplace("9"), **more))
        if number == 0:
            describe(house, "d", owner="team-a", labels={"risk": "high"})
        if number == 2:
            describe(house, "d", labels={"risk": "odd"})
            house.commit(held)
        if number == 3:
            kept = house.grant("0.3", dataset="d")
            describe(house, "d", owner="team-c", labels={"risk": "high"})
            house.do("release_grant", grant=grant_in(kept), reason="not run")
    describe(house, "e-1", owner="team-b", labels={})
    adopt(house, RULES.replace("epsilon: 4,", "epsilon: 5,"), confirmed_by="officer")
    adopt(house, RULES.replace("gate: zcdp", "gate: renyi"), confirmed_by="officer")
    adopt(house, RULES.replace("datasets: [d, e-*]", "datasets: d"), confirmed_by="officer")
    house.grant("0.1", dataset="e-1")
    return house


def test_nothing_is_found_in_a_ledger_that_is_sound(house: Callable[..., House]) -> None:
    """``accountant verify`` decides all again, and the verifier for auditors adds all up."""
    bundle = lived(house()).bundle()
    assert reasons(audit(bundle)) == []
    report = verify_minimal.verify(io.BytesIO(bundle), None)
    assert report["findings"] == []
    assert report["believed"] == ["what", "why"]
    assert {one["rule"] for one in report["totals"]} >= {"own", "sum", "week"}


def test_the_tables_add_up(house: Callable[..., House], tmp_path: Path) -> None:
    """Nothing is exported otherwise; scopes and labels stand in them."""
    made = lived(house())
    signed = made.sign()
    write_fleet(tmp_path / "fleet", made.service.ledgers, {"fair": signed})
    rules = pq.read_table(tmp_path / "fleet" / "rule").to_pylist()
    of = {row["rule"]: row for row in rules}
    assert of["own"]["labels"] == "risk=high|odd"
    assert (of["week"]["owners"], of["etl"]["clients"]) == ("team-*", "etl-*")
    data = pq.read_table(tmp_path / "fleet" / "dataset").to_pylist()
    assert [row["labels"] for row in data if row["dataset"] == "d"] == ["risk=high"]
