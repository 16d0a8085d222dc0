"""What tests of adapters read in a ledger."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service import Running

    from accountant.client import Client

ROOMY = """
policy: roomy
rules:
  - {id: lifetime, limit: {epsilon: 1000000, delta: 0.999}}
"""
"""A limit that nothing here reaches."""
TRAINING = """
policy: training
rules:
  - {id: lifetime, limit: {epsilon: 3, delta: 1e-5}, gate: renyi}
"""
"""A limit for many steps with much noise."""


def events(served: Running, population: str, kind: str) -> list[dict[str, Any]]:
    """The events of a type, for instance ``grant.reserved``, in order."""
    return [each for each in served.events(population) if each["type"] == f"{kind}.v1"]


def asked(served: Running, population: str) -> list[list[dict[str, Any]]]:
    """The mechanisms of each grant, without their samplers."""
    found = events(served, population, "grant.reserved")
    return [
        [{k: v for k, v in each.items() if k != "sampler"} for each in one["command"]["mechanisms"]]
        for one in found
    ]


def counts(served: Running, population: str) -> tuple[int, int, int, int]:
    """How many grants were reserved, committed, released and refused."""
    kinds = "grant.reserved", "grant.committed", "grant.released", "grant.refused"
    reserved, committed, released, refused = (
        len(events(served, population, kind)) for kind in kinds
    )
    return reserved, committed, released, refused


def committed(served: Running, population: str) -> list[dict[str, Any]]:
    """What the ledger says was executed, in order; empty where all was given back."""
    there = served.events(population)
    reserved = {f"g{e['sequence']}": e for e in there if e["type"] == "grant.reserved.v1"}
    found: list[dict[str, Any]] = []
    for event in there:
        if event["type"] == "grant.committed.v1":
            asked = reserved[event["command"]["grant"]]["command"]
            found += event["command"].get("mechanisms", asked["mechanisms"])
    return found


def last(served: Running, population: str) -> str:
    """The type of the last event."""
    return str(served.events(population)[-1]["type"])


def charge(client: Client, mechanisms: list[dict[str, Any]]) -> dict[str, Decimal]:
    """What the service would book."""
    return client.preview("visits", mechanisms, purpose="test").charge
