"""Both verifiers and the tables follow what further units of privacy are charged."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from house import House, adopt, audit, reasons
from support import Book, ask, gaussian, hospital, laplace, make, sparse_vector

from accountant import verify_minimal
from accountant.budget.facts import grant_in
from accountant.ledger.events import canonical
from accountant.publishing.fleet.export import write_fleet

RULES = """
  - {id: ever, limit: {epsilon: 3, delta: 1e-5}}
  - {id: day, limit: {epsilon: 0.8, delta: 1e-6}, unit: person-day}
  - {id: home, limit: {epsilon: 5, delta: 1e-5}, unit: household, gate: zcdp}
  - {id: week, window: 7d, limit: {epsilon: 2}, unit: household, across: datasets}
  - {id: near, of: day, at: 50%}
"""
UNITS = {
    "person-day": {"part_of": "person", "at_most": 31, "called": "one person on one day"},
    "household": {"group_of": "person", "at_most": 3},
}


def lived(house: House) -> House:
    """A ledger of persons, their days and their households."""
    ages = ["17", "22"]
    about: dict[str, Any] = {"privacy_unit": "person", "neighbouring": "replace_one"}
    about |= {"membership": "public", "units": UNITS}

    def register(**more: Any) -> None:
        dimensions = {"age": ages, "sex": ["f", "m"]}
        house.do("register_population", "admin", dimensions=dimensions, **about, **more)

    register()
    house.do("register_dataset", "admin", id="d", namespace="n", name="d")
    adopt(house, RULES)
    stated = laplace("0.3", sensitivity_per={"person-day": "0.05"})
    first = house.do("ask_grant", **ask(stated, laplace("0.1"), subjects={"sex": ["f"]}))
    house.do("ask_grant", **ask(gaussian("0.05", "1e-9"), subjects={"age": ["22"]}))
    ages.append("27")
    register(attested_new=True)
    house.do("commit_grant", grant=grant_in(first), mechanisms=[stated])
    house.do("record_invocations", **ask(laplace("0.2", sensitivity_per={"household": "0.4"})))
    ages.append("35")
    register()
    opened = house.ask(make("open_sparse_vector", dataset="d", mechanism=sparse_vector()), "pipe")
    house.do("count_answers", grant=grant_in(opened), positives=2, negatives=1)
    house.do("close_sparse_vector", grant=grant_in(opened))
    house.do("ask_grant", **ask(laplace("0.5"), subjects={"sex": ["m"]}))
    house.do("ask_grant", **ask(laplace("2")))
    adopt(house, RULES.replace("epsilon: 5,", "epsilon: 6,"), confirmed_by="officer")
    adopt(house, RULES.replace("unit: person-day", "datasets: d"), confirmed_by="officer")
    held = house.do("ask_grant", **ask(laplace("0.01")))
    house.do("release_grant", grant=grant_in(held), reason="not run")
    return house


def test_nothing_is_found_in_a_ledger_that_is_sound(house: Callable[..., House]) -> None:
    """``accountant verify`` decides all again, and the verifier for auditors adds all up."""
    bundle = lived(house()).bundle()
    assert reasons(audit(bundle)) == []
    report = verify_minimal.verify(io.BytesIO(bundle), None)
    assert report["findings"] == []
    assert {one.get("unit") for one in report["totals"]} == {None, "person-day", "household"}


def test_the_tables_add_up(house: Callable[..., House], tmp_path: Path) -> None:
    """Nothing is exported otherwise; the unit of each account and limit stands in them."""
    made = lived(house())
    write_fleet(tmp_path / "fleet", made.service.ledgers, {"fair": made.sign()})
    rules = pq.read_table(tmp_path / "fleet" / "rule").to_pylist()
    assert {row["rule"]: row["unit"] for row in rules} == {
        "ever": "",
        "day": "",
        "home": "household",
        "week": "household",
    }
    charges = pq.read_table(tmp_path / "fleet" / "charge").to_pylist()
    assert {row["unit"] for row in charges} == {"", "person-day", "household"}
    homes = [row for row in charges if row["unit"] == "household"]
    assert {row["selection"] for row in homes if row["rule"] == ""} == {0}


def forged(book: Book, change: Callable[[dict[str, Any]], Any]) -> list[str]:
    """What the second verifier finds where the last event of a ledger is changed."""
    last = json.loads(book.stored[-1])
    change(last)
    audit = verify_minimal.Audit()
    audit.manifest = {"ledger": book.name}
    for entry in [*book.stored[:-1], canonical(last)]:
        audit.entry(entry)
    return [each["reason"] for each in audit.findings]


def test_what_a_unit_is_charged_is_checked() -> None:
    """A limit compares what its unit is charged; no grant ends with more than it held of any; and
    a limit for a part leaves a dataset without one for the person.
    """
    book = hospital(RULES, units=UNITS)
    stated = laplace("0.3", sensitivity_per={"person-day": "0.05"})
    grant = book.grant(stated)
    assert forged(book, lambda event: None) == []

    def costly(event: dict[str, Any]) -> None:
        part = event["per"]["person-day"]
        event["per"]["person-day"] = dict.fromkeys(part, "900000000000000") | {"delta": "0"}

    assert "does not fit" in " ".join(forged(book, costly))
    book.do("commit_grant", grant=f"g{grant.sequence}")
    assert "it reserved" in " ".join(forged(book, costly))
    loose = book.grant(laplace("0.32", sensitivity_per={"person-day": "0.005"}))
    assert loose.type == "grant.reserved.v1"
    assert forged(book, lambda event: None) == []  # what is only flagged refuses nothing
    book.policy("  - {id: day, limit: {epsilon: 0.8}, unit: person-day}\n", "officer")
    refused = book.grant(stated)
    assert ["built-in:no-limit", "no-limit"] in refused.body["fired"]
    assert forged(book, lambda event: event["fired"].pop(0))
