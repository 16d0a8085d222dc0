"""What tests with witnesses share: policies that name them, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from house import House
from support import ask, laplace
from witness import Witness

Witnessed = Callable[..., tuple[House, list[Witness]]]


def publication(witnesses: list[Witness], required: int) -> str:
    """The part of a policy that names these witnesses."""
    lines = [f"    - {{url: '{w.url}', key: {w.key}}}\n" for w in witnesses]
    listed = "\n" + "".join(lines) if lines else " []\n"
    return f"publication:\n  required: {required}\n  witnesses:{listed}"


def served(house: House) -> bytes | None:
    """What GET log/checkpoint gives; None if nothing is published."""
    answer = house.http.get("/v1/populations/fair/log/checkpoint")
    assert answer.status_code in (200, 404), answer.text
    return answer.content if answer.status_code == 200 else None


def alarms(house: House) -> list[dict[str, Any]]:
    """The commands of all alarms."""
    events = map(house.service.event, ["fair"] * house.head().size, range(house.head().size))
    return [event.body["command"] for event in events if event.type == "publication.stopped.v1"]


def granted(house: House) -> None:
    """Fails unless grants are given as ever."""
    answer = house.post("/grants", ask(laplace("0.001")))
    assert answer.status_code == 201, answer.text
