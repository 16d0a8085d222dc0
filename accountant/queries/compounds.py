"""What mechanisms that are made of others have in common."""

from __future__ import annotations

from typing import Any

from accountant.client.mechanisms import Mechanism


def part(mechanism: Mechanism) -> dict[str, Any]:
    """Return a mechanism as a part of another: the relation is stated for the whole."""
    return {name: value for name, value in mechanism.items() if name != "neighbouring"}
