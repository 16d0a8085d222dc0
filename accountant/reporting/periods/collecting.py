"""What the reports of an officer and of a population collect of a ledger on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from accountant.budget.ancestors import related_in
from accountant.budget.batches import as_single
from accountant.budget.facts import client_in, stated_by
from accountant.budget.outcome import (
    ADMITTED,
    DECLINED,
    NOT_APPROVED,
    PROPOSED,
    RECORDED,
    REFUSED,
    REGISTRATIONS,
    RESERVED,
    WAITING,
)
from accountant.budget.state import Counted, State
from accountant.ledger.events import Event, rfc3339
from accountant.reporting import numbers
from accountant.reporting.history import ADOPTED, RECOVERED, History
from accountant.reporting.statement import Balance, balances, lifetime_sums, scopes
from accountant.reporting.texts import Texts
from accountant.reporting.words import shortened

VERIFIED: Final = "ledger.verified.v1"
MOST_CHANGES: Final = 500
"""Decisions of people that are listed; all are counted."""
MOST_TEXT: Final = 300
"""Characters of a text that somebody wrote."""
ENDINGS: Final = {
    RESERVED: "admitted",
    REFUSED: "refused",
    RECORDED: "recorded",
    WAITING: "began to wait",
    "grant.expired.v1": "expired",
    "grant.cancelled.v1": "cancelled",
    NOT_APPROVED: "declined by a person",
}
"""What events say of requests. What waited and was let through, or timed out, is counted where it
ended."""


class Stand(NamedTuple):
    """Where a limit stands in one scope: its epoch, and its balance."""

    epoch: int
    balance: Balance


Stands = dict[tuple[str, str], Stand]
"""By rule and dataset."""


class Change(NamedTuple):
    """A decision of people: when, what, on whose word, and who confirmed it."""

    sequence: int
    time: str
    what: str
    by: str
    confirmed_by: str | None
    reason: str


class Collected:
    """Collects what happened in a period, and how accounts stood when it began
    (``walk.Reader``). ``by_group``: also how each group stood.
    """

    def __init__(self, texts: Texts, *, by_group: bool = False) -> None:
        self.history = History(tallied=False)
        self.before: Stands = {}
        self.groups: list[dict[str, str]] = []
        """Of each dimension, the lifetime total of each value, over all datasets."""
        self.splits: dict[tuple[str, str], list[dict[str, Balance]]] = {}
        """By rule and dataset, of each dimension, the balance of each value."""
        self.policy: str | None = None
        """The policy that was in force when the period began."""
        self.endings: Counter[str] = Counter()
        self.clients: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.rules: Counter[str] = Counter()
        """How many requests each rule refused."""
        self.changes: list[Change] = []
        self.changed = 0
        self.verified: dict[str, Event] = {}
        """The last result of a verification, by who stated it."""
        self._texts, self._by_group = texts, by_group

    def opens(self, state: State) -> None:
        """Note how accounts stand."""
        self.history = self.history.anew()
        if state.population is None:
            return
        self.policy = state.adopted.policy.policy if state.adopted else None
        self.before = stands(state)
        if self._by_group:
            axes = range(len(state.people().shape))
            self.groups = [of_groups(state, axis) for axis in axes]
            self.splits = {key: split(state, one) for key, one in promises(state).items()}

    def comes(self, state: State, event: Event) -> None:
        """Nothing is to be seen before an event."""

    def came(self, state: State, event: Event, *, inside: bool) -> None:
        """Note what happened."""
        opened = self._texts.opened(event)
        self.history.add(state, opened)
        if event.type == VERIFIED:
            self.verified[event.by] = event
        if not inside:
            return
        single = as_single(event)
        if (ending := ENDINGS.get(single.type)) is not None:
            self._count(state, single, ending)
        if event.type in _CHANGES or _approved(event):
            self.changed += 1
            if len(self.changes) < MOST_CHANGES:
                self.changes.append(_change(event, opened))

    def _count(self, state: State, event: Event, ending: str) -> None:
        self.endings[ending] += 1
        # Of an expired grant the client stands in no field: it is counted by all together only.
        if ending != "expired":
            self.clients[client_in(event)][ending] += 1
        if ending == "refused":
            self.rules.update(_blocking(state, event))


def promises(state: State) -> dict[tuple[str, str], Counted]:
    """Return the limits that promise something of all cells, by rule and dataset."""
    return {
        (one.rule.id, one.key.dataset): one
        for one in scopes(state)
        if not one.rule.divides and one.rule.subjects is None
    }


def stands(state: State) -> Stands:
    """Return where each of these limits stands."""
    found = {}
    for key, counted in promises(state).items():
        [total] = balances(state, counted, None)
        found[key] = Stand(counted.epoch.number, total)
    return found


def of_groups(state: State, axis: int) -> dict[str, str]:
    """Return the lifetime total of each value of a dimension, over all datasets."""
    values = state.people().dimensions[axis][1]
    sums = lifetime_sums(state, "*", axis)
    return {value: one.epsilon for value, one in zip(values, sums, strict=True)}


def split(state: State, counted: Counted) -> list[dict[str, Balance]]:
    """Return, of each dimension, the balance of each value under a limit."""
    axes = range(len(state.people().shape))
    return [{one.group: one for one in balances(state, counted, axis)} for axis in axes]


def _blocking(state: State, event: Event) -> set[str]:
    """Return the rules that refused a request; without those that only flag, or warn."""
    rules = state.adopted.policy.rules if state.adopted else ()
    only = {rule.id for rule in rules if rule.action == "flag"}
    return {rule for rule, _ in event.body.get("fired", ()) if rule not in only}


def _approved(event: Event) -> bool:
    return event.type == ADMITTED and "approval" in event.body["command"]


def _change(event: Event, opened: Event) -> Change:
    command: Mapping[str, Any] = opened.body.get("command", {})
    confirms = command.get("confirms")
    first = stated_by(event) if "command" in event.body else event.by
    reason = (confirms or {}).get("reason") or command.get("reason")
    said = _CHANGES.get(event.type, _let_through)
    return Change(
        sequence=event.sequence,
        time=rfc3339(event.time),
        what=said(event),
        by=event.by if _approved(event) else first,
        confirmed_by=event.by if confirms else None,
        reason=shortened(reason, MOST_TEXT) if isinstance(reason, str) else "",
    )


def _let_through(_: Event) -> str:
    return "let a request through that waited for a person"


def _adopted(event: Event) -> str:
    text = f"adopted the policy {event.body['command']['policy']['policy']}"
    loosens = event.body.get("loosens")
    return f"{text}; that loosens what is promised: {'; '.join(loosens)}" if loosens else text


def _proposed(event: Event) -> str:
    command = event.body["command"]
    what = command["type"].replace("_", " ")
    about = command.get("grant") or command.get("id")
    if command["type"] == "adopt_policy":
        about = command["policy"]["policy"]
    return f"proposed: {what}{f' {about}' if isinstance(about, str) else ''}"


def _registered(event: Event) -> str:
    text = f"registered the dataset {event.body['command']['id']}"
    if charged := related_in(event).words:
        text += f"; this charged {charged}"
    return text


def _extended(event: Event) -> str:
    added = event.body.get("added") or {}
    what = " and ".join(f"{len(v):,} of {name}" for name, v in sorted(added.items()))
    new = ", whose members owe nothing so far" if event.body["command"].get("attested_new") else ""
    return f"added groups: {what or 'none'}{new}"


def _filed(event: Event) -> str:
    command = event.body["command"]
    of = f" of {command['dataset']}" if "dataset" in command else ""
    return f"filed the {command['report']} report{of}, {command['first']} to {command['last']}"


def _verified(event: Event) -> str:
    command = event.body["command"]
    found = numbers.counted(command["findings"], "finding") if command["findings"] else "no finding"
    return f"verified the first {numbers.counted(command['size'], 'event')}: {found}"


def _field(text: str, name: str) -> Callable[[Event], str]:
    return lambda event: text.format(shortened(str(event.body["command"].get(name, "")), 80))


_CHANGES: Final[dict[str, Callable[[Event], str]]] = {
    ADOPTED: _adopted,
    PROPOSED: _proposed,
    DECLINED: _field("declined the proposal of event {}", "proposal"),
    NOT_APPROVED: _field("declined request {}", "grant"),
    "population.registered.v1": lambda _: "registered the population",
    "population.extended.v1": _extended,
    **dict.fromkeys(REGISTRATIONS, _registered),
    RECOVERED: lambda _: "recovered the ledger",
    "clock.accepted.v1": _field("accepted the clock at {}", "clock"),
    "publication.stopped.v1": _field("publication stopped: the witness {} contradicts", "witness"),
    "publication.resumed.v1": lambda _: "let publication go on",
    "engine.adopted.v1": lambda _: "adopted newer bounds for prices",
    "report.filed.v1": _filed,
    VERIFIED: _verified,
    "text.erased.v1": _field("erased texts of event {}", "event"),
    "signing_key.adopted.v1": lambda _: "the ledger is signed by a new key",
}
"""The events of changes by people, and of what happened to the ledger itself, in words."""
