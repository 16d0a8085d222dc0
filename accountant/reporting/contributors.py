"""The charges that used a budget up: the largest ones behind a decision on which a limit fired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappush, heappushpop
from typing import Any, Final, NamedTuple

import orjson

from accountant.budget.facts import final_of, grant_of
from accountant.budget.outcome import RESERVED
from accountant.budget.population.positions import read
from accountant.budget.reach import Reach, reach_in
from accountant.budget.state import ALL
from accountant.privacy.units import Charge, Currency
from accountant.reporting.history import RECOVERED, REVALUED, SETTLING
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Stored

MOST: Final = 20
_STATES: Final = {
    "grant.reserved.v1": "reserved",
    "invocation.recorded.v1": "recorded",
    REVALUED: "revalued",
}
Dimensions = dict[str, dict[str, int]]
"""The position of each value on each dimension."""
Size = tuple[bool, int, int]


class Contribution(NamedTuple):
    """A charge, its state, and the command that booked it; ``subjects`` None: everyone."""

    sequence: int
    client: str
    on: Reach
    command: dict[str, Any]
    subjects: Any
    charge: Charge
    state: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Contribution:
        """Return the charge that an event has booked."""
        command, revalued = body["command"], body["type"] == REVALUED
        everyone = body.get("charged_to") == "everyone" or command.get("everyone", False)
        return cls(
            sequence=body["sequence"],
            client=command["by"] if revalued else body["by"],
            on=reach_in(body),
            command=command,
            subjects=None if everyone else command.get("subjects"),
            charge=Charge.from_json(body["more" if revalued else "total"]),
            state=_STATES[body["type"]],
        )

    @property
    def size(self) -> Size:
        """Its size: whether its epsilon is infinite, its units; of equal ones the earlier wins."""
        epsilon = Currency.EPSILON
        return self.charge.is_infinite(epsilon), self.charge[epsilon], -self.sequence

    def counts_in(self, rule: Mapping[str, Any], dimensions: Dimensions) -> bool:
        """Return True if it is charged to the account and the cell that a limit quotes."""
        return (
            rule["dataset"] in (*self.on.charged, ALL)
            and rule["client"] in (self.client, "")
            and _covers(dimensions, self.subjects, rule["group"])
        )

    def to_json(self, texts: Texts) -> dict[str, Any]:
        """Return it as the API serves it."""
        return {
            "sequence": self.sequence,
            "client": self.client,
            "dataset": self.on.spelled,
            "purpose": texts.open(self.sequence, self.command).get("purpose"),
            "state": self.state,
            "epsilon": self.charge.amount(Currency.EPSILON),
            "delta": self.charge.amount(Currency.DELTA),
        }


def used_up_by(
    rows: Iterable[Stored], rules: Iterable[Mapping[str, Any]], before: int, texts: Texts
) -> list[dict[str, Any]]:
    """Return, for each limit that fired among ``rules``, the charges before event ``before`` in the
    account and cell that it quotes, the largest first, as they stand now. Reads ``rows`` once.
    """
    fired = [r for r in rules if r["fired"] and "comparisons" in r]
    largest: list[list[tuple[Size, Contribution]]] = [[] for _ in fired]
    counts, dimensions = [0] * len(fired), Dimensions()
    for booked in _bookings(rows, before, dimensions) if fired else ():
        for i, rule in enumerate(fired):
            if booked.counts_in(rule, dimensions):
                counts[i] += 1
                add = heappush if counts[i] <= MOST else heappushpop
                add(largest[i], (booked.size, booked))
    return [
        {
            "rule": rule["rule"],
            "events": [booked.to_json(texts) for _, booked in sorted(some, reverse=True)],
            "left_out": count - len(some),
        }
        for rule, some, count in zip(fired, largest, counts, strict=True)
    ]


def _bookings(
    rows: Iterable[Stored], before: int, dimensions: Dimensions
) -> Iterator[Contribution]:
    """Yield everything booked before event ``before`` that is still charged, and keep the known
    ``dimensions``. A grant is held back until it is settled, as it covers new values while it is
    open; only open grants are kept in memory.
    """
    held: dict[str, Contribution] = {}
    for stored in rows:
        late = stored.sequence >= before
        if late and not held:
            return
        body = orjson.loads(stored.body)
        kind, grant = body["type"], str(grant_of(body, stored.sequence, body["type"]))
        if kind in ("population.registered.v1", "population.extended.v1"):
            added = body.get("added") or body["command"].get("dimensions", {})
            for dimension, values in added.items():
                order = dimensions.setdefault(dimension, {})
                order |= {value: len(order) + i for i, value in enumerate(values)}
        elif kind == RESERVED and not late:
            held[grant] = Contribution.of(body)
        elif kind in _STATES and not late:
            yield Contribution.of(body)
        elif kind in SETTLING and grant in held:
            one = held.pop(grant)
            final = final_of(body, one.charge)
            if any(final.finite + final.infinite):
                yield one._replace(charge=final, state=SETTLING[kind])
        elif kind == RECOVERED:
            yield from (one._replace(state="expired") for one in held.values())
            held.clear()
    yield from held.values()


def _covers(dimensions: Dimensions, subjects: Any, group: Mapping[str, str]) -> bool:
    """Return True if ``subjects`` cover the cell that ``group`` describes, any if that is empty."""
    terms = subjects if isinstance(subjects, list) else [subjects or {}]
    if not group or {} in terms:
        return True
    return all(value in dimensions[name] for name, value in group.items()) and any(
        all(_among(dimensions[name], values, group.get(name)) for name, values in term.items())
        for term in terms
    )


def _among(order: dict[str, int], values: Any, value: str | None) -> bool:
    """Return True if ``value`` (any if None) is among the values of a term as events hold them."""
    if value is None or isinstance(values, list):
        return value is None or value in values
    if "from" in values:
        return order[values["from"]] <= order[value] <= order[values["to"]]
    return order[value] in read(values)
