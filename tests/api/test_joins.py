"""Requests on several datasets over HTTP, in reports, and in the exported tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import World, laplace

from accountant.reporting.files import report_of
from accountant.reporting.schema import Report

RULES = """
  - {id: a, limit: {epsilon: 1}}
  - {id: person, across: datasets, limit: {epsilon: 2}}
"""


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with the datasets ``d``, ``e``, and ``g``, which was made from ``d``."""
    found = world().hospital(RULES)
    for name, parents in (("e", []), ("g", ["d"])):
        body = {"namespace": "n", "name": name, "parents": parents}
        assert found.put(f"/datasets/{name}", body).status_code == 200
    return found


def ask(dataset: Any, epsilon: str, **more: Any) -> dict[str, Any]:
    """A request body."""
    return {"dataset": dataset, "mechanisms": [laplace(epsilon)]} | more


def spent(made: World) -> dict[str, str]:
    """What was ever booked on each dataset, and on all."""
    return {one["dataset"]: one["epsilon"] for one in made.get("/accounts").json()["lifetime"]}


def test_a_join_is_asked_shown_and_settled(made: World) -> None:
    """The whole way of one grant on two datasets, one of which was made from a third."""
    previewed = made.post("/preview", ask(["g", "e"], "0.3")).json()
    assert (previewed["fits"], previewed["charged_to"]) == (3, ["d", "e", "g"])
    answer = made.post("/grants", ask(["g", "e"], "0.3"))
    assert answer.status_code == 201
    shown = made.get(f"/grants/{answer.json()['id']}").json()
    assert (shown["dataset"], shown["charged_to"]) == (["e", "g"], ["d", "e", "g"])
    assert shown["request"]["dataset"] == ["e", "g"]
    for name, count in (("e", 1), ("d", 0), ("g", 1)):
        listed = made.get("/grants", params={"state": "open", "dataset": name}).json()
        assert len(listed["grants"]) == count
    decision = made.get(f"/decisions/{answer.json()['decision']}").json()
    assert decision["charged_to"] == ["d", "e", "g"]
    assert spent(made) == {"d": "0.3", "e": "0.3", "g": "0.3", "*": "0.3"}
    made.post(f"/grants/{answer.json()['id']}/release", {"reason": "x"})
    assert spent(made) == {"d": "0", "e": "0", "g": "0", "*": "0"}
    shown = made.get(f"/grants/{answer.json()['id']}").json()
    assert (shown["dataset"], shown["charged_to"]) == (["e", "g"], ["d", "e", "g"])


def test_a_refusal_names_the_dataset_that_is_full(made: World) -> None:
    """It quotes that account, and says what used it up, joins and derived data among it."""
    made.post("/invocations", ask("g", "0.5"))
    made.post("/invocations", ask(["d", "e"], "0.3"))
    refused = made.post("/grants", ask(["g", "e"], "0.3"))
    assert refused.status_code == 403
    assert "(dataset d)" in refused.json()["detail"]
    name = refused.json()["decision"]["id"]
    [by] = made.get(f"/decisions/{name}").json()["used_up_by"]
    assert [(one["dataset"], one["epsilon"]) for one in by["events"]] == [
        ("g", "0.5"),
        (["d", "e"], "0.3"),
    ]
    assert made.post("/grants", ask(["g", "e"], "0.2")).status_code == 201


def test_the_same_join_in_another_order_is_a_retry(made: World) -> None:
    """The order of the datasets does not matter; naming one twice is an error."""
    first = made.post("/grants", ask(["g", "e"], "0.3"), key="k")
    again = made.post("/grants", ask(["e", "g"], "0.3"), key="k")
    assert again.headers["Idempotent-Replay"] == "true"
    assert again.json()["id"] == first.json()["id"]
    twice = made.post("/grants", ask(["e", "e"], "0.3"))
    assert (twice.status_code, "dataset" in twice.text) == (422, True)
    assert made.post("/grants", ask(["e"], "0.1"), key="one").status_code == 201
    one = made.post("/grants", ask("e", "0.1"), key="one")
    assert one.headers["Idempotent-Replay"] == "true"


def test_batches_and_sessions_take_joins(made: World) -> None:
    """As single requests do."""
    items = [{"type": "ask_grant"} | ask(names, "0.1") for names in (["d", "e"], "g")]
    assert made.post("/batch", {"items": items}).status_code == 201
    assert spent(made) == {"d": "0.2", "e": "0.1", "g": "0.1", "*": "0.2"}


def report(made: World) -> Report:
    """The report of the population."""
    return report_of(made.service.ledgers, "fair", None)


def test_reports_count_what_each_dataset_was_charged(made: World) -> None:
    """Usage, reservations and notable events of a dataset are those that were charged to it."""
    made.post("/invocations", ask("g", "0.9"))
    made.post("/invocations", ask(["d", "e"], "0.3"))  # over the limit of d
    grant = made.post("/grants", ask(["e", "g"], "0.05")).json()
    assert grant["type"].endswith("budget-exceeded")
    grant = made.post("/grants", ask("e", "0.05")).json()
    found = report(made)
    booked = {
        one.id: (one.booked.requests, one.booked.refused, one.booked.epsilon)
        for one in found.datasets
    }
    assert booked == {"d": (2, 1, "1.2"), "e": (2, 1, "0.35"), "g": (1, 1, "0.9")}
    lifetimes = {one.dataset: one.epsilon for one in found.lifetimes}
    assert lifetimes == {"d": "1.2", "e": "0.35", "g": "0.9", "*": "1.25"}
    [overrun] = [one for one in found.notable if one.sort == "overrun"]
    assert (overrun.total, overrun.by_dataset) == (1, {"d": 1, "e": 1})
    assert [one.dataset for one in overrun.latest] == ["d, e"]
    assert {one.id: one.reservations.open for one in found.datasets} == {"d": 0, "e": 1, "g": 0}
    points = {one.dataset: one.points[-1].spent for one in found.series if one.rule == "a"}
    assert points == {"d": "1.2", "e": "0.3", "g": "0.9"}


def test_a_service_goes_on_after_a_restart(made: World) -> None:
    """Grants keep what they were charged to over a restart."""
    answer = made.post("/grants", ask(["g", "e"], "0.3")).json()
    again = World(made.url, home=made.settings.home)
    try:
        ended = again.post(f"/grants/{answer['id']}/release", {"reason": "x"}, key="end")
        assert ended.status_code == 200
        assert spent(again) == {"d": "0", "e": "0", "g": "0", "*": "0"}
    finally:
        again.close()


QUOTED = {"namespace": "hospital", "name": '"visits"'}


def test_a_parent_that_would_be_read_as_other_data_is_refused(made: World) -> None:
    """A parent as its namespace and name were registered is that dataset, or is refused: what was
    made from it never has a budget of its own because of how it is spelled.
    """
    assert made.put("/datasets/v", QUOTED).status_code == 200
    body = {"namespace": "n", "name": "derived"}
    refused = made.put("/datasets/w", body | {"parents": ["d", 'hospital/"visits"']})
    assert refused.status_code == 409
    assert refused.json()["type"].endswith("parent-unclear")
    assert "name it by its id, 'v'" in refused.json()["detail"]
    for parent in ("v", "hospital/visits"):
        assert made.put("/datasets/w", body | {"parents": ["d", parent]}).status_code == 200
    assert made.post("/grants", ask("w", "0.3")).status_code == 201
    assert {spent(made)[name] for name in ("d", "v", "w")} == {"0.3"}


def test_a_parent_that_comes_later_is_not_missed(made: World) -> None:
    """Nor when the dataset that it names is registered after what was made from it."""
    body = {"namespace": "n", "name": "derived"}
    assert made.put("/datasets/w", body | {"parents": ['hospital/"visits"']}).status_code == 200
    refused = made.put("/datasets/v", QUOTED)
    assert refused.status_code == 409
    assert "register 'w' with 'v' among its parents first" in refused.json()["detail"]
    assert made.put("/datasets/w", body | {"parents": ["v"]}).status_code == 200
    assert made.put("/datasets/v", QUOTED).status_code == 200
    assert made.post("/grants", ask("w", "0.3")).status_code == 201
    assert spent(made)["v"] == "0.3"


def test_a_parent_of_too_many_is_told_what_to_do(made: World) -> None:
    """An event has no room for any number of datasets that were made from one. It can be registered
    after some of them are without it; with it again, each charges it with its own use.
    """
    body = {"namespace": "n", "parents": ["n/late"]}
    children = [f"child-{number}".ljust(64, "x") for number in range(2)]
    for name in children:
        assert made.put(f"/datasets/{name}", body | {"name": name}).status_code == 200
        assert made.post("/invocations", ask(name, "0.1")).status_code == 201
    parents = [f"{number}".ljust(2_000, "x") for number in range(32)]
    late = {"namespace": "n", "name": "late", "parents": parents, "owner": "x" * 1_000}
    refused = made.put("/datasets/late", late)
    assert refused.status_code == 422
    assert "register some of them without this parent first" in refused.json()["detail"]
    without = made.put(f"/datasets/{children[0]}", {"namespace": "n", "name": children[0]})
    assert without.status_code == 202
    assert made.confirm(without).status_code == 200
    assert made.put("/datasets/late", late).json()["charged_with"] == children[1:]
    again = made.put(f"/datasets/{children[0]}", body | {"name": children[0]})
    assert again.status_code == 200
    assert spent(made)["late"] == "0.2"


def test_a_name_that_nobody_can_read_is_refused(made: World) -> None:
    """Also as a parent: to see what it means would hold up the ledger."""
    deep, body = "%" + "25" * 900 + "41", {"namespace": "n", "name": "derived"}
    for wrong in ({"name": deep}, {"namespace": deep}, {"parents": ["d", deep]}):
        refused = made.put("/datasets/w", body | wrong)
        assert refused.status_code == 422
        assert refused.json()["type"].endswith("invalid-request")
    parents = [f"{number}{deep[:1_000]}" for number in range(100)]
    refused = made.put("/datasets/w", body | {"parents": parents})
    assert refused.json()["type"].endswith("event-too-large")  # before one of them is read
    assert "w" not in made.service.state("fair").datasets
