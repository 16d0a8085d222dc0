"""Further units of privacy over HTTP, in the client and in reports."""

from __future__ import annotations

from collections.abc import Callable

from support import World, ask, laplace

from accountant import client, testing

UNITS = {
    "person-day": {"part_of": "person", "at_most": 31, "called": "one person on one day"},
    "household": {"group_of": "person", "at_most": 6},
}
RULES = (
    "  - {id: a, limit: {epsilon: 3}}\n"
    "  - {id: day, limit: {epsilon: 0.2}, unit: person-day}\n"
    "  - {id: home, limit: {epsilon: 9}, unit: household}\n"
)


def test_units_are_registered_and_shown(world: Callable[..., World]) -> None:
    """Answers say what each unit is charged; refusals, accounts and reports whom a limit is for."""
    made = world().hospital(RULES, units=UNITS)
    assert made.get("").json()["units"] == UNITS
    stated = laplace("0.7", sensitivity_per={"person-day": "0.1"})
    granted = made.post("/grants", ask(stated)).json()
    charges = {unit: charge["epsilon"] for unit, charge in granted["charge_per"].items()}
    assert (granted["charge"]["epsilon"], charges) == (
        "0.7",
        {"person-day": "0.1", "household": "4.2"},
    )
    refused = made.post("/grants", ask(laplace("0.15")))
    assert "day: epsilon 0.1 used + 0.15 asked" in refused.json()["detail"]
    assert "for one person on one day" in refused.json()["detail"]
    assert refused.json()["would_fit"] == {"scale": "1.5"}
    rows = {one["rule"]: one for one in made.get("/accounts").json()["accounts"]}
    assert {rule: row.get("unit") for rule, row in rows.items()} == {
        "a": None,
        "day": "person-day",
        "home": "household",
    }
    assert rows["day"]["lifetime"]["epsilon"] == "0.1"
    report = made.get("/report?format=json").json()
    sentences = {one["id"]: one["sentence"] for one in report["policy"]["rules"]}
    assert "one person on one day may lose at most epsilon 0.2" in sentences["day"]
    assert "one person may lose at most epsilon 3" in sentences["a"]
    [day] = [one for one in report["limits"] if one["rule"] == "day"]
    assert "the data of one person on one day" in day["meaning"]["limit"]


def test_pipelines_state_what_one_day_changes() -> None:
    """The client sends a sensitivity for each unit, rounded up where it has no finite decimal."""
    policy = f"policy: p\nrules:\n{RULES}"
    with testing.ledger(policy, neighbouring="replace_one", units=UNITS) as ledger:
        stated = client.laplace(7, scale=70, sensitivity_per={"person-day": 1 / 8})
        ledger.record("visits", [stated])
        body = ledger.accounts().body["accounts"]
    accounts = {one["rule"]: one for one in body}
    assert accounts["day"]["total"]["spent"] == "0.001785715"
