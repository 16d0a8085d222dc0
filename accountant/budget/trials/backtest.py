"""What another policy would have said to the requests that a ledger holds.

The ledger is folded up to a moment, the other policy is adopted there, and every later request is
decided again, in order and at its own stamp, by the same ``decide`` as live. Nothing is recorded.

Two things cannot be known, and are assumed: clients ask the same, whatever they were answered; and
what was refused, but would be granted, runs in full at once. What would be refused has no commit or
release. A request that waited is asked when it was admitted or timed out, and waits no longer; one
that would wait for a person's approval is taken as not approved.
Policies that were adopted later are left out; registrations, corrections and what was carried over
happen as they did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from accountant.budget import commands as ask
from accountant.budget.accounts.account import Account
from accountant.budget.accounts.epochs import Epoch
from accountant.budget.apply import apply
from accountant.budget.batches import OPENED, PART, as_single, refused_items
from accountant.budget.batches import REFUSED as BATCH_REFUSED
from accountant.budget.commands import (
    AdoptPolicy,
    Command,
    CommitGrant,
    Envelope,
    batch_of,
    command_from_json,
)
from accountant.budget.decide import Repeated, decide, unchecked
from accountant.budget.errors import Problem
from accountant.budget.explain import JUDGED
from accountant.budget.outcome import (
    ADMITTED,
    CANCELLED,
    DECLINED,
    NOT_APPROVED,
    PROPOSED,
    RECORDED,
    REFUSED,
    RESERVED,
    TIMED_OUT,
    WAITING,
    Outcome,
)
from accountant.budget.policy import Policy
from accountant.budget.rules.base import Ruling
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State, envelope_of
from accountant.budget.waiting.queue import Queue
from accountant.ledger.events import Event
from accountant.privacy.units import Currency, amount

_NOBODY: Final = "backtest"
CONFIRMED: Final = ask.Confirmation.model_construct(proposal=-1, digest="", proposer=_NOBODY)
"""Whatever takes a second person has one here."""
_LEFT_OUT: Final = (AdoptPolicy, ask.AdoptSigningKey, ask.StopPublication, ask.ResumePublication)


class Answer(NamedTuple):
    """allow, flag, approve or block, and the rule that was the reason, if any."""

    outcome: Ruling
    rule: str | None = None

    @classmethod
    def of(cls, event: Event) -> Answer:
        """Return the answer that an event gives to a request."""
        fired = event.body.get("fired", [])
        rule = fired[0][0] if fired else None
        if event.type in (REFUSED, BATCH_REFUSED):
            return cls("block", rule)
        if event.type == WAITING or "approval" in event.body:
            return cls("approve", rule)
        return cls("flag" if fired else "allow", rule)


class Compared(NamedTuple):
    """One request: who asked, on what, at which stamp; what it was told, and would be told."""

    sequence: int
    time: int
    by: str
    dataset: str
    then: Answer
    now: Answer


@dataclass(slots=True)
class Backtest:
    """A ledger that goes on under another policy."""

    state: State
    grants: dict[str, str | None] = field(default_factory=dict)
    """What the grants of the ledger are called here; None: it would not have been granted."""

    def adopt(self, policy: Policy, now: int) -> None:
        """Adopt the other policy, whatever it loosens or closes. Raises Problem if it cannot be."""
        names = [rule.id for rule in policy.limits]
        command = AdoptPolicy(policy=policy.to_json(), source_digest="", closes=names)
        command = command.model_copy(update={"confirms": CONFIRMED})
        self.grants = {name: name for name in self.state.open}
        self.state.waiting = Queue()
        self._decide(Envelope(_NOBODY, command), now)

    def compare(self, events: Iterable[Event]) -> Iterator[Compared]:
        """Decide again what ``events``, which follow, answer. Yield each request."""
        waiting, parts = iter(events), list[Event]()
        for event in waiting:
            if event.type == OPENED:
                size = event.body["command"]["size"]
                yield from self._batch(event, [next(waiting) for _ in range(size)])
            elif event.type == PART:
                parts.append(event)
            else:
                yield from self._single(event, parts)
                parts.clear()

    def _single(self, event: Event, parts: Sequence[Event]) -> Iterator[Compared]:
        """Compare an event, before which stand the ``parts`` of a refused batch."""
        if event.type in (WAITING, CANCELLED, NOT_APPROVED):
            return  # what became of the wait is compared, if anything did
        if event.type in (ADMITTED, TIMED_OUT):
            said = event.body["command"].get("approval")
            event = as_single(event)
            told = {"key": f":waited-{event.sequence}"} | ({"approval": said} if said else {})
            event = replace(event, body=event.body | told)
        asked = envelope_of(event)
        if isinstance(asked.command, _LEFT_OUT) or event.type in (PROPOSED, DECLINED):
            return
        if event.type == BATCH_REFUSED:
            items = [command_from_json(one) for one, *_ in refused_items([*parts, event])]
            known = [one for item in items if (one := self._here(item)) is not None]
            outcomes = self._together(asked, known, event.time)
        elif (command := self._here(asked.command)) is None:
            return
        else:
            outcomes = self._decide(Envelope(asked.by, command, asked.key), event.time)
        found = [one.event() for one in outcomes]
        if event.type not in JUDGED:
            return
        if event.type == RESERVED:
            self.grants[f"g{event.sequence}"] = _grant_in(found)
        elif event.type != RECORDED:
            self._run(found, asked.by, event.time)
        yield from _pairs(as_single(event), found)

    def _batch(self, header: Event, items: list[Event]) -> Iterator[Compared]:
        pairs = [(event, self._here(envelope_of(event).command)) for event in items]
        known = [(event, command) for event, command in pairs if command is not None]
        outcomes = self._together(envelope_of(header), [c for _, c in known], header.time)
        found = [one.event() for one in outcomes if one.entry.type not in (OPENED, PART)]
        refused = next((one for one in found if one.type == BATCH_REFUSED), None)
        for place, (event, _) in enumerate(known):
            told = refused or (found[place] if place < len(found) else None)
            if event.type == RESERVED:
                self.grants[f"g{event.sequence}"] = _grant_in([told] if told else [])
            if told is not None and event.type in JUDGED:
                yield from _pairs(event, [told])

    def _here(self, command: Command) -> Command | None:
        """Return a command with the name that its grant has here; None if there is none. What drew
        from an allotment that is not here asks the common part.
        """
        if (part := getattr(command, "allotment", None)) is not None:
            try:
                self.state.known_allotment(part)
            except Problem:
                return command.model_copy(update={"allotment": None})
        if isinstance(command, ask.ExtendPopulation):
            return command.model_copy(update={"confirms": CONFIRMED})
        if isinstance(command, ask.RegisterDataset) and (adopted := self.state.adopted):
            names = [rule.id for rule in adopted.policy.limits]
            return command.model_copy(update={"closes": names, "confirms": CONFIRMED})
        if isinstance(command, ask.AskGrant) and command.wait is not None:
            command = command.model_copy(update={"wait": None, "at_least": None})
        name = getattr(command, "grant", None)
        if name is None:
            return command
        here = self.grants.get(name)
        return None if here is None else command.model_copy(update={"grant": here})

    def _together(self, asked: Envelope, items: list[Command], now: int) -> list[Outcome]:
        if not items:
            return []
        return self._decide(Envelope(asked.by, batch_of(items), asked.key, tuple(items)), now)

    def _run(self, found: list[Event], by: str, now: int) -> None:
        """Take what is granted here, and was refused, as run in full."""
        for event in found:
            if event.type == RESERVED:
                self._decide(Envelope(by, CommitGrant(grant=f"g{event.sequence}")), now)

    def _decide(self, asked: Envelope, now: int) -> list[Outcome]:
        """Decide and fold in. What cannot be answered here leaves nothing, as it would live."""
        try:
            proposed = getattr(asked.command, "confirms", None) is not None
            outcomes = (unchecked if proposed else decide)(self.state, asked, now)
        except Problem:
            if asked.by == _NOBODY:
                raise
            return []
        if isinstance(outcomes, Repeated):
            return []
        for one in outcomes:
            apply(self.state, one)
        self.state.waiting = Queue()  # nobody approves
        return outcomes

    def most_used(self) -> dict[str, str]:
        """Return the epsilon that no cell has passed, by limit, at the end; ``unbounded`` if it has
        no bound. Sums in several currencies are each the largest of any cell: an upper bound.
        """
        adopted = self.state.adopted
        return {
            rule.id: amount(self._most(rule, adopted.epochs[rule.id]), Currency.EPSILON)
            for rule in (adopted.policy.limits if adopted else ())
            if adopted
        }

    def _most(self, rule: LimitRule, epoch: Epoch) -> int | None:
        spent: list[int | None] = [0]
        for key, account in self.state.accounts.items():
            if (key.rule, key.epoch) == (rule.id, epoch.number):
                spent.append(used_at_most(rule, epoch, account.at(self.state.time)))
        known = [units for units in spent if units is not None]
        return max(known) if len(known) == len(spent) else None


def used_at_most(rule: LimitRule, epoch: Epoch, account: Account) -> int | None:
    """Return the epsilon that no cell of an account has passed, None if it has no bound. Each sum
    is the largest of any cell, perhaps of different ones: an upper bound.
    """
    pairs = zip(account.used.most(), account.used.most_infinite(), strict=True)
    each = (None if endless else units for units, endless in pairs)
    sums = dict(zip(account.axis, each, strict=True))
    along = [sums[currency] for currency in epoch.capacity.currencies]
    return rule.filter.spent(epoch.limit, sums[Currency.EPSILON], along)


def _grant_in(found: list[Event]) -> str | None:
    return next((f"g{one.sequence}" for one in found if one.type == RESERVED), None)


def _pairs(event: Event, found: list[Event]) -> Iterator[Compared]:
    told = next((as_single(one) for one in found if one.type in JUDGED), None)
    if told is None:
        return
    named = event.body["command"]["dataset"]
    dataset = named if isinstance(named, str) else ", ".join(named)
    now, then = Answer.of(told), Answer.of(event)
    yield Compared(event.sequence, event.time, event.by, dataset, then, now)


class Tally(NamedTuple):
    """How many requests there were, by what they were told and would be told; by whom; by rule."""

    requests: int
    moved: Counter[tuple[Ruling, Ruling]]
    clients: Counter[tuple[str, Ruling]]
    rules: Counter[tuple[str, Ruling]]


def tally(compared: Iterable[Compared]) -> tuple[Tally, list[Compared]]:
    """Count requests; return those whose answer would differ, too."""
    total, changed = Tally(0, Counter(), Counter(), Counter()), []
    for one in compared:
        total = total._replace(requests=total.requests + 1)
        total.moved[one.then.outcome, one.now.outcome] += 1
        if one.now.rule is not None:
            total.rules[one.now.rule, one.now.outcome] += 1
        if one.then.outcome != one.now.outcome:
            total.clients[one.by, one.now.outcome] += 1
            changed.append(one)
    return total, changed


def to_json(one: Compared) -> dict[str, Any]:
    """Return a request whose answer would differ, for a program."""
    return {
        "event": one.sequence,
        "by": one.by,
        "dataset": one.dataset,
        "then": one.then._asdict(),
        "now": one.now._asdict(),
    }
