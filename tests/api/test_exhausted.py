"""Every exhausted account over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import World, laplace

NAMES = [f"d{number:02}" for number in range(1, 15)]
AGES = [f"{number:03}" for number in range(300)]
RULES = """
  - {id: each, limit: {epsilon: 1}}
  - {id: half, limit: {epsilon: 0.3}, action: flag}
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, world: Callable[..., World]) -> World:
    """Fifteen datasets, of each of which 0.7 has been used, but of the last for some ages only."""
    on = {"url": request.getfixturevalue("hosted").url} if request.param == "postgresql" else {}
    found = world(**on).hospital(RULES, {"age": AGES})
    for name in NAMES:
        body = {"namespace": "n", "name": name}
        assert found.put(f"/datasets/{name}", body).status_code == 200
    for name in ("d", *NAMES):
        some = {"subjects": {"age": AGES[::2]}} if name == NAMES[-1] else {}
        body = {"dataset": name, "mechanisms": [laplace("0.7")]} | some
        assert found.post("/invocations", body).status_code == 201
    return found


def test_a_short_list_stands_in_the_answer(made: World) -> None:
    """The problem, and the decision, have it whole; there is no other address."""
    answer = made.post("/grants", {"dataset": ["d", "d01"], "mechanisms": [laplace("0.5")]})
    assert answer.status_code == 403
    told = answer.json()["decision"]["exhausted"]
    rows = [{"rule": rule, "datasets": ["d", "d01"]} for rule in ("each", "half")]
    assert told == {"accounts": 4, "listed": rows}
    shown = made.get(f"/decisions/{answer.json()['decision']['id']}").json()
    assert shown["exhausted"] == told
    assert "are exhausted" not in answer.json()["detail"]


def test_a_long_list_has_an_address(made: World) -> None:
    """The answer says how many accounts there are, lists the first that name few cells, and names
    the address that pages through all.
    """
    asked = {"dataset": ["d", *NAMES], "mechanisms": [laplace("0.4")]}
    problem = made.post("/grants", asked).json()
    told = problem["decision"]["exhausted"]
    assert told["accounts"] == 30
    assert told["listed"] == [{"rule": "each", "datasets": ["d", *NAMES[:-1]]}]
    assert f"30 accounts are exhausted, which are listed at {told['address']}" in problem["detail"]
    path = told["address"].removeprefix("/v1/populations/fair")
    whole = made.get(path).json()
    assert "next" not in whole
    assert [(row["rule"], len(row["datasets"])) for row in whole["listed"]] == [
        ("each", 14),
        ("each", 1),
        ("half", 15),
    ]
    assert whole["listed"][1]["subjects"] == [{"age": AGES[::2]}]
    pages: list[Any] = []
    while True:
        page = made.get(path, params={"after": len(pages), "limit": 2}).json()
        pages += page["listed"]
        if "next" not in page:
            break
        assert page["next"] == len(pages)
    assert pages == whole["listed"]
    assert made.get("/decisions/d1/exhausted").status_code == 404
