"""dp_accounting; cannot see whether an event is what ran, nor how often it was drawn.

::

    from accountant.adapters.dp_accounting import grant_for

    event = dp_accounting.SelfComposedDpEvent(step, 1000)
    with grant_for(event, ledger, "visits", purpose="ranking model"):
        train()

``grant_for`` asks for the tree as it is: the service derives the cost of each event from its
parameters. ``LedgerAccountant`` is a PrivacyAccountant that asks for each event before it composes
it, and commits it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Self, Unpack

from accountant.adapters.libraries import Fields, needs, only
from accountant.client import Client, Grant, from_dp_event
from accountant.client.calls import Asked, Datasets

with needs("dp-accounting"):
    from dp_accounting import dp_event
    from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant

RELATIONS: Final = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "add_or_remove_one",
    NeighboringRelation.REPLACE_ONE: "replace_one",
    NeighboringRelation.REPLACE_SPECIAL: "zero_out",
}
"""The service's name of each relation."""
_UNSTATED: Final = frozenset(
    {"EpsilonDeltaDpEvent", "ZCDpEvent", "ExponentialMechanismDpEvent", "PermuteAndFlipDpEvent",
     "RandomizedResponseDpEvent"}
)  # fmt: skip
"""Events that the service takes in the population's relation, for they do not name their own."""


def grant_for(
    event: Any,
    ledger: Client,
    dataset: Datasets,
    *,
    count: int = 1,
    neighbouring: NeighboringRelation | None = None,
    **asked: Unpack[Asked],
) -> Grant:
    """Ask for ``count`` times the ``event``, before it runs. Raise Refused.

    ``neighbouring`` is the relation that the event is meant in. Noise says it by itself; raise
    ValueError where the tree has an event by its epsilon or rho alone, in another relation than the
    population's. Default: the population's.
    """
    tree = from_dp_event(event if count == 1 else dp_event.SelfComposedDpEvent(event, count))
    if neighbouring is not None and (named := _UNSTATED.intersection(_classes(tree))):
        meant, counted = RELATIONS[neighbouring], ledger.describe()["neighbouring"]
        if meant != counted:
            raise ValueError(
                f"{', '.join(sorted(named))} is meant in {meant} and the population counts in "
                f"{counted}: state it as a mechanism with its neighbouring relation"
            )
    return ledger.grant(dataset, [tree], **asked)


def _classes(tree: Any) -> Iterator[str]:
    """Yield the classes of a tree."""
    if isinstance(tree, dict):
        yield tree["class"]
        for value in tree["fields"].values():
            yield from _classes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _classes(value)


class LedgerAccountant(PrivacyAccountant):  # type: ignore[misc]
    """The accountant ``inner``, which asks the service before it composes an event.

    What is composed is committed: compose an event right before its noise is drawn. A refusal
    leaves both accountants as they were. ``ledger`` is dp_accounting's own property, the composed
    event.
    """

    def __init__(
        self, inner: PrivacyAccountant, ledger: Client, dataset: Datasets, **fields: Unpack[Fields]
    ) -> None:
        only(fields)
        super().__init__(inner.neighboring_relation)
        self._inner, self._client, self._dataset, self._fields = inner, ledger, dataset, fields

    def supports(self, event: Any) -> bool:
        """Return whether the inner accountant can compose an event."""
        return bool(self._inner.supports(event))

    def compose(self, event: Any, count: int = 1) -> Self:
        """Ask, compose, commit. Raise UnsupportedEventError before anything is asked, or Refused.
        What costs nothing is not asked for.
        """
        if not isinstance(event, dp_event.DpEvent):
            raise TypeError(f"{type(event).__name__} is not a DpEvent of dp_accounting")
        if isinstance(event, dp_event.NoOpDpEvent) or count == 0 or not self.supports(event):
            super().compose(event, count)
            return self
        where = self._client, self._dataset
        relation = self.neighboring_relation
        with grant_for(event, *where, count=count, neighbouring=relation, **self._fields):
            super().compose(event, count)
        return self

    def get_epsilon(self, target_delta: float) -> float:
        """Return the inner accountant's epsilon."""
        return float(self._inner.get_epsilon(target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        """Return the inner accountant's delta."""
        return float(self._inner.get_delta(target_epsilon))

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        return self._inner._maybe_compose(event, count, do_compose)
