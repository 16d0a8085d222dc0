"""Reading what a ledger holds of the grants of a population."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service import Running

TRAINING = """
policy: training
rules:
  - {id: lifetime, limit: {epsilon: 3, delta: 1e-5}, gate: renyi}
"""
"""A limit for many steps with much noise."""


def committed(served: Running, population: str) -> list[dict[str, Any]]:
    """What the ledger says was executed, in order; empty where all was given back."""
    events = served.events(population)
    reserved = {f"g{e['sequence']}": e for e in events if e["type"] == "grant.reserved.v1"}
    found: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "grant.committed.v1":
            asked = reserved[event["command"]["grant"]]["command"]
            found += event["command"].get("mechanisms", asked["mechanisms"])
    return found


def last(served: Running, population: str) -> str:
    """The type of the last event."""
    return str(served.events(population)[-1]["type"])
