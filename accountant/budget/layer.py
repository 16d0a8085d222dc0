"""A layer over a state: events can be folded into it, and the state below stays as it is.

What is decided together is decided over a layer, each item after those before it. What is below may
not change while a layer is in use.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace

from accountant.budget.grants import Ending, Grant, Grants, Settled
from accountant.budget.state import State


class LayeredGrants(Grants):
    """Grants over others, which stay as they are: what is settled here is kept by name."""

    __slots__ = ("_below",)

    def __init__(self, below: Grants) -> None:
        super().__init__()
        self._below = below
        self.open = ChainMap({}, below.open)

    def get(self, name: str) -> Grant | Settled | None:
        """The grant of that name, whatever became of it."""
        return self._odd.get(name) or self.open.get(name) or self._below.get(name)

    def settle(self, grant: Grant, ending: Ending, at: int) -> None:
        """The event at ``at`` ended an open grant."""
        self._odd[grant.id] = grant.ended(ending, at)

    def note(self, name: str) -> None:
        """A late commit of an expired grant was noted. Raises ValueError for any other."""
        found = self.get(name)
        if not isinstance(found, Settled):
            raise ValueError(f"{name} is no settled grant")
        self._odd[name] = replace(found, late_note=True)


def layer(state: State) -> State:
    """A layer for what batches consist of: it changes accounts and grants, and copies an account
    when it first does. Keys are not remembered in it.
    """
    return replace(
        state,
        accounts={},
        below=state.accounts,
        grants=LayeredGrants(state.grants),
        memories=dict(state.memories),
    )
