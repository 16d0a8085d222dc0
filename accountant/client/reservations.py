"""Grants and sessions: what a pipeline holds between asking and settling.

What both clients do alike is here: what was reserved, and which of it was used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from threading import Lock
from typing import Any

from accountant.client.calls import Reserved
from accountant.client.errors import AccountantError, Body, MayHaveRun
from accountant.client.mechanisms import Mechanism
from accountant.client.results import Amounts, amounts


class Reservation:
    """A reservation, as the service answered it."""

    def __init__(self, reserved: Reserved) -> None:
        self.answer: Body = reserved.body
        self.repeated = reserved.repeated
        """The request was answered before; it is charged once."""
        self._earlier_run = reserved.earlier
        self.id: str = self.answer["id"]
        self.settled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}, {'settled' if self.settled else 'open'}>"

    @property
    def outcome(self) -> str:
        """``allow``, or ``flag`` if the request was granted but a rule flags it."""
        return "flag" if self.answer["flags"] else "allow"

    @property
    def flags(self) -> tuple[str, ...]:
        """The ids of the rules that flag it."""
        return tuple(flag["rule"] for flag in self.answer["flags"])

    @property
    def decision_id(self) -> str:
        """The id of the whole decision, which ``decision`` of the client shows."""
        return str(self.answer["decision"])

    @property
    def sequence(self) -> int:
        """The event that reserved it."""
        return int(self.answer["sequence"])

    @property
    def charge(self) -> Amounts:
        """The charge that is reserved, in every currency."""
        return amounts(self.answer["charge"])

    @property
    def epsilon(self) -> Decimal:
        """The epsilon that is reserved (possibly infinite)."""
        return self.charge["epsilon"]

    def _entered(self) -> None:
        if self._earlier_run:
            raise MayHaveRun(self.id)


class Uses:
    """Which of the mechanisms of a grant have drawn noise.

    Without ``tracked`` and without a ``use`` all of them count as used: only the pipeline knows
    better. Threads may share a grant: each draw that one announces is taken once.
    """

    def __init__(self, mechanisms: Sequence[Mechanism], *, tracked: bool) -> None:
        self._mechanisms = [dict(mechanism) for mechanism in mechanisms]
        self._used = [0] * len(mechanisms)
        self._tracked = tracked
        self._lock = Lock()

    def grant(self, count: int | None) -> None:
        """Note that fewer invocations of the one mechanism were granted; None: all of them."""
        if count is not None:
            self._mechanisms = [{**self._mechanisms[0], "count": count}]

    def use(self, mechanism: Mechanism | None, times: int | None) -> None:
        """Note that noise is about to be drawn. Raise ValueError for what was not granted."""
        with self._lock:
            self._take(mechanism, times)

    def _take(self, mechanism: Mechanism | None, times: int | None) -> None:
        self._tracked = True
        if mechanism is None:
            self._used = [_count(each) for each in self._mechanisms]
            return
        if times is not None and times < 1:
            raise ValueError("times must be at least 1")
        wanted = dict(mechanism)
        left = _count(wanted) if times is None else times
        for i, each in enumerate(self._mechanisms):
            if _same(each, wanted) and left:
                taken = min(left, _count(each) - self._used[i])
                self._used[i], left = self._used[i] + taken, left - taken
        if left:
            kind = wanted.get("kind")
            raise ValueError(
                f"{left} more invocations of this {kind} were not granted: ask for them"
            )

    def ran(self) -> list[dict[str, Any]] | None:
        """Return what ran, with its counts; None for all of it. An empty list: nothing."""
        if not self._tracked or all(
            used == _count(each) for used, each in zip(self._used, self._mechanisms, strict=True)
        ):
            return None
        return [
            each | {"count": used}
            for used, each in zip(self._used, self._mechanisms, strict=True)
            if used
        ]


def untracked(asked: Mapping[str, Any]) -> None:
    """Raise ValueError for a ``tracked`` grant of a decorated function, which never sees it:
    nothing would count as drawn, and nothing would be charged.
    """
    if asked.get("tracked"):
        raise ValueError(
            "a decorated function cannot say what it draws: leave out tracked, or ask for the "
            "grant in a with block"
        )


def _count(mechanism: Mapping[str, Any]) -> int:
    return int(mechanism.get("count", 1))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Compare two mechanisms but for their counts."""
    return {**one, "count": 1} == {**other, "count": 1}


NOTHING = "no noise was drawn"
"""The reason of a release that follows from what was used."""


def uncommitted(grant: str, failure: AccountantError) -> str:
    """Return the note on an exception beside which a grant could not be committed."""
    return f"grant {grant} was not committed and will be charged: {failure}"
