"""A request that waits, with what was worked out of it once: what it costs, and what it is about.

Both are kept beside the request because all that waits is looked at anew after a policy: to read
and to price a request again takes a hundred times as long as to compare what is known of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import orjson

from accountant.budget.bill import Bill
from accountant.budget.commands import AskGrant, TimeOutGrant, command_from_json
from accountant.budget.commands.plain import read_plain
from accountant.budget.grants import is_due, request_of
from accountant.budget.reach import Names, Reach, named_in
from accountant.privacy.units import LARGEST, Charge

_REMEMBERED: Final = 4_096
_SHARED: Final = 2**16
_OWN: Final = ("at_least", "wait")
"""The fields of a request that say how it waits."""


class About(NamedTuple):
    """What of a request says which accounts it counts in, beside its cells. Requests with the same
    share it.
    """

    by: str
    named: tuple[str, ...]
    """The datasets that it names."""
    purpose: str | None
    """None also for a sealed one, which no rule compares."""
    allotment: str | None

    @property
    def asked(self) -> Names:
        """The datasets as a command spells them."""
        return list(self.named)


_about = lru_cache(maxsize=_SHARED)(About)


class Waiting(NamedTuple):
    """A request that waits. It holds no budget. ``waiting_for`` makes it."""

    id: str
    """Always ``g`` and the sequence. The grant, once admitted, has a name of its own."""
    by: str
    on: Reach
    """The datasets that it names, and those that it would have been charged to when it came."""
    command: bytes
    """The request, canonical."""
    opened: int
    expires: int
    """The stamp from which it is not admitted any more."""
    sequence: int
    about: About
    subjects: bytes
    """Its subject group, as JSON; empty for everyone."""
    counts: tuple[int, int]
    """How many invocations are accepted: at least, and at most."""
    bill: Bill
    """What all of it cost when it came, at the Renyi orders of that time."""
    engine: int
    """The version of the bounds that priced it."""
    digest: str = ""
    """SHA-256 of the event's bytes, in hex: an approval names what was read by it."""
    session: bool = False

    @property
    def status(self) -> str:
        """Waiting, until it is admitted, times out, is cancelled or is declined."""
        return "waiting"

    @property
    def document(self) -> dict[str, Any]:
        """The request."""
        return request_of(self)

    def due(self, now: int) -> bool:
        """Return whether its time has passed."""
        return is_due(self, now)

    def asks(self, count: int | None = None) -> AskGrant:
        """Return the request as one that does not wait, with another count if one is given."""
        return _asks(self.command, count)

    def timing_out(self) -> TimeOutGrant:
        """Return the command that ends it when its time has passed."""
        return TimeOutGrant(grant=self.id, client=self.by, request=self.asks().to_json())


def waiting_for(
    by: str,
    on: Reach,
    command: bytes,
    when: tuple[int, int, int],
    priced: tuple[Bill, int],
    digest: str = "",
) -> Waiting:
    """Return the request ``command`` that waits: ``when`` is since when, until when and its event,
    ``priced`` is its bill and the version of the bounds. Raises ValueError if it is no request.
    """
    document = orjson.loads(command)
    if not isinstance(document, dict) or not document.get("mechanisms"):
        raise ValueError("the command of a waiting request is no request")
    purpose, subjects = document.get("purpose"), document.get("subjects")
    about = _about(
        by,
        named_in(document["dataset"]),
        purpose if isinstance(purpose, str) else None,
        document.get("allotment"),
    )
    most = document["mechanisms"][0].get("count", 1)
    counts = document.get("at_least", most), most
    opened, expires, sequence = when
    group = b"" if subjects is None else orjson.dumps(subjects)
    facts = opened, expires, sequence, about, group, counts, *priced, digest
    return Waiting(f"g{sequence}", by, on, command, *facts)


def least_of(charge: Charge, counts: tuple[int, int]) -> Charge:
    """Return what the least accepted count costs at least, of a request whose ``charge`` is for the
    largest. It is exact in each currency in which ``charge`` is finite: a count multiplies what was
    rounded up once (``charge_of``). An infinite sum may be so by the count alone.
    """
    few, most = counts
    if few == most:
        return charge
    finite = [
        few * (LARGEST // most if closed else units // most)
        for units, closed in zip(charge.finite, charge.infinite, strict=True)
    ]
    return Charge(charge.axis, tuple(finite), (0,) * len(finite))


@lru_cache(maxsize=_REMEMBERED)
def _asks(command: bytes, count: int | None) -> AskGrant:
    document = orjson.loads(command)
    for name in _OWN:
        document.pop(name, None)
    if count is not None:
        [mechanism] = document["mechanisms"]
        mechanism.pop("count", None)
        document["mechanisms"] = [mechanism | ({"count": count} if count > 1 else {})]
    # Read plainly it remembers its price and its cells.
    found = read_plain(document) or command_from_json(document)
    return cast(AskGrant, found)
