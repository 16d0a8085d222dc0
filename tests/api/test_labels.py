"""Labels of datasets over HTTP: they are shown, change, and decide which rules apply."""

from __future__ import annotations

from collections.abc import Callable

from support import World, ask, laplace

RULES = (
    "  - {id: a, limit: {epsilon: 10}}\n"
    "  - {id: strict, limit: {epsilon: 1}, labels: {risk: high}}\n"
    "  - {id: part, limit: {epsilon: 5}, clients: [somebody-*]}\n"
)
DATA = {"namespace": "n", "name": "d", "owner": "clinic"}


def test_labels_are_shown_and_changed(world: Callable[..., World]) -> None:
    """Going out of a rule that blocks takes another person; the views show what is."""
    made = world().hospital(RULES)
    answer = made.put("/datasets/d", DATA | {"labels": {"risk": "high"}})
    assert (answer.status_code, answer.json()["labels"]) == (200, {"risk": "high"})
    [shown] = made.get("").json()["datasets"]
    assert (shown["owner"], shown["labels"]) == ("clinic", {"risk": "high"})
    proposed = made.put("/datasets/d", DATA | {"labels": {}})
    assert (proposed.status_code, proposed.json()["effect"]) == (202, {"leaves": ["strict"]})
    assert made.confirm(proposed).json()["event"] == "dataset.registered.v1"
    assert "labels" not in made.get("").json()["datasets"][0]
    assert made.put("/datasets/d", DATA | {"labels": {"risk": "Very high"}}).status_code == 422


def test_decisions_and_reports_say_scopes(world: Callable[..., World]) -> None:
    """A refusal names what the rule is about, also after that has changed."""
    made = world().hospital(RULES)
    made.put("/datasets/d", DATA | {"labels": {"risk": "high"}})
    refused = made.post("/grants", ask(laplace("2")))
    assert "label risk “high”" in refused.json()["detail"]
    decision = refused.json()["decision"]["id"]
    made.confirm(made.put("/datasets/d", DATA | {"labels": {}}))
    told = made.get(f"/decisions/{decision}").json()
    assert "label risk “high”" in str(told)
    assert told["used_up_by"][0]["rule"] == "strict"
    rows = {one["rule"]: one["scope"] for one in made.get("/accounts").json()["accounts"]}
    assert rows == {"a": "dataset d", "part": "dataset d; of clients “somebody-*”"}
    report = made.get("/report?format=json").json()
    assert {one["rule"]: one["divides"] for one in report["limits"]} == {"a": False, "part": True}
    [data] = report["datasets"]
    assert (data["labels"], data["rule"]) == ({}, "a")
    sentences = {one["id"]: one["sentence"] for one in report["policy"]["rules"]}
    assert "each dataset that has the label risk “high”" in sentences["strict"]
    assert "promises nothing about the data" in sentences["part"]
