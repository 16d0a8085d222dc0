"""The datasets of a request: those that it names, and all that it is charged to.

A charge on a dataset is one on all that the dataset was made from, as far as that is registered:
an answer about it is an answer about these. So what is *charged* are the datasets that a request
names and all their ancestors at that moment. The event holds them where they are not those it
names. An ancestor that becomes known later is charged with what was used before by the event that
registers it (ancestors.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from accountant.budget.facts import request_in
from accountant.budget.population.population import Dataset

Names = str | list[str]
"""Datasets as commands spell them: one by its id, several as a list."""


class Reach(NamedTuple):
    """Ids of datasets, sorted: those that are named, and those that are charged, named ones too."""

    named: tuple[str, ...]
    charged: tuple[str, ...]

    @property
    def spelled(self) -> Names:
        """The named datasets as commands spell them."""
        return spelled(self.named)

    @property
    def beyond(self) -> bool:
        """More is charged than is named."""
        return self.named != self.charged

    @property
    def text(self) -> str:
        """Both as one text, for ``read``: no id contains a comma or an angle bracket."""
        return ",".join(self.named) + (f"<{','.join(self.charged)}" if self.beyond else "")

    @classmethod
    def read(cls, text: str) -> Reach:
        """Return what ``text`` was made of."""
        named, beyond, charged = text.partition("<")
        names = tuple(named.split(","))
        return cls(names, tuple(charged.split(",")) if beyond else names)


def named_in(asked: Names) -> tuple[str, ...]:
    """Return the datasets that a command names."""
    return (asked,) if isinstance(asked, str) else tuple(asked)


def spelled(names: Iterable[str]) -> Names:
    """Return datasets as a command spells them."""
    several = list(names)
    return several[0] if len(several) == 1 else several


def origins(datasets: Mapping[str, Dataset], names: Iterable[str]) -> set[str]:
    """Return ``names`` and all datasets that these were made from, directly or not."""
    found, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += datasets[name].sources
    return found


def reach_of(datasets: Mapping[str, Dataset], named: tuple[str, ...]) -> Reach:
    """Return the datasets that a request on those ``named`` is charged to now."""
    if len(named) == 1 and not datasets[named[0]].sources:
        return _alone(named[0])
    return Reach(named, tuple(sorted(origins(datasets, named))))


def by_now(datasets: Mapping[str, Dataset], charged: Iterable[str], since: int) -> tuple[str, ...]:
    """Return the datasets that the event at ``since`` has ``charged``, and those that registrations
    after it have charged with what these had used; whatever was made from what since.
    """
    found = set(charged)
    took = ((one.id, each) for one in datasets.values() for each in one.took_over)
    later = [(each.sequence, name, each.others) for name, each in took if each.sequence > since]
    for _, name, others in sorted(later):
        if not found.isdisjoint(others):
            found.add(name)
    return tuple(sorted(found))


@lru_cache(maxsize=1_024)
def _alone(name: str) -> Reach:
    """Return the reach of requests on one dataset that was made from nothing; grants hold it."""
    return Reach((name,), (name,))


def reach_in(body: Mapping[str, Any]) -> Reach:
    """Return the datasets that a judged event was charged to."""
    return reach_on(request_in(body)["dataset"], body.get("charged"))


def reach_on(asked: Names, charged: Sequence[str] | None) -> Reach:
    """Return the reach of a request for the datasets ``asked``, by the field ``charged`` of its
    event, if that has it.
    """
    if charged is None and isinstance(asked, str):
        return _alone(asked)
    named = named_in(asked)
    return Reach(named, named if charged is None else tuple(charged))
