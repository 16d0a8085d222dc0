"""Many requests are previewed one after another, as they would be decided, and none is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support import World, ask, laplace

RULES = (
    "  - {id: a, limit: {epsilon: 1}}\n"
    "  - {id: half, of: a, at: 50%}\n"
    "  - {id: month, window: 30d, limit: {epsilon: 0.9}}\n"
)


def wanted(epsilon: str, **more: Any) -> dict[str, Any]:
    """A request."""
    return ask(laplace(epsilon), **more)


def test_previews_are_what_would_be_decided(world: Callable[..., World]) -> None:
    """Each counts after those before it that would be granted; then the requests get the same."""
    made = world().hospital(RULES, {"sex": ["f", "m"]})
    made.post("/grants", wanted("0.1"))
    listed = [
        wanted("0.3", subjects={"sex": ["f"]}),
        wanted("0.7"),
        wanted("0.4", subjects={"sex": ["m"]}),
        wanted("0.2", subjects={"sex": ["f"]}),
        wanted("9"),
        wanted("0.1"),
    ]
    size, before = len(made.stored()), made.get("/accounts").json()
    answer = made.post("/preview/batch", {"items": listed})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    outcomes = [one["outcome"] for one in found["items"]]
    assert outcomes == ["allow", "block", "allow", "flag", "block", "flag"]
    assert (found["granted"], found["sequence"]) == (4, size - 1)
    assert found["items"][1]["flags"][0] == {"rule": "a", "code": "budget-exceeded"}
    assert len(made.stored()) == size
    assert made.get("/accounts").json() == before
    statuses = [made.post("/grants", one).status_code for one in listed]
    assert statuses == [201 if one != "block" else 403 for one in outcomes]


def test_four_thousand_are_previewed(world: Callable[..., World]) -> None:
    """As many as a batch has items; one more is refused, and a mistake names its place."""
    made = world().hospital("  - {id: a, limit: {epsilon: 1}}\n")
    items = [wanted("0.001") for _ in range(4_000)]
    found = made.post("/preview/batch", {"items": items}).json()
    assert (len(found["items"]), found["granted"]) == (4_000, 1_000)
    assert made.post("/preview/batch", {"items": [*items, items[0]]}).status_code == 422
    wrong = made.post("/preview/batch", {"items": [items[0], wanted("1", dataset="x")]})
    assert (wrong.status_code, wrong.json()["item"]) == (422, 1)
