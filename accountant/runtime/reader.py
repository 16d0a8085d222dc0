"""What can be asked of the ledgers: every use case that records nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import islice
from typing import Final, NamedTuple

from accountant.auth.keys import LEDGER as KEYS
from accountant.budget.accounts.epochs import Adopted, adopted_by
from accountant.budget.advice import Advice, would_fit
from accountant.budget.batches import as_single
from accountant.budget.commands import AskGrant, Envelope, OpenSparseVector, command_from_json
from accountant.budget.custody.custody import Custody
from accountant.budget.decide.approving import asking, looked_at
from accountant.budget.decide.proposing import known
from accountant.budget.errors import Conflict, NotFound, Problem, Unavailable
from accountant.budget.evaluate import evaluate, how_many
from accountant.budget.explain import JUDGED, Decision, Explained, explain, in_words
from accountant.budget.handlers import HANDLERS
from accountant.budget.outcome import REFUSED
from accountant.budget.owed import owed
from accountant.budget.previewing import (
    Foreseen,
    foresee,
)
from accountant.budget.proposals import Proposal, in_order
from accountant.budget.request import Request, Terms, check_classes, prepare, terms_of
from accountant.budget.state import Grant, Settled, State
from accountant.budget.waiting.asked import Waiting
from accountant.config.logs import logger
from accountant.ledger.events import Event
from accountant.runtime.clock import Doubt, TrustedClock
from accountant.runtime.prices import Pricing, takes_long
from accountant.runtime.projections import Projections
from accountant.store import Damaged, hint
from accountant.store.ledgers import Ledgers, Moved, StoreError
from accountant.store.projection import Diverged, Projection
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault, VaultError

_POLICIES: Final = 64  # Policies that are remembered for explaining decisions
_log = logger()


class Preview(NamedTuple):
    """The decision that a request would get, and how many requests like it would be admitted."""

    request: Request
    decision: Decision
    fits: int
    sequence: int


class Counts(NamedTuple):
    """How many grants are open, and how many requests wait."""

    open: int
    waiting: int


class Approvable(NamedTuple):
    """A request that waits for a person, as it would be decided now. ``state`` is a copy."""

    waiting: Waiting
    decision: Decision
    state: State
    now: int


def _approvable(state: State, waiting: Waiting, now: int) -> Approvable | None:
    """Return a request that waits, if a person has to approve it and still can."""
    try:
        request, judgement = looked_at(state, waiting, now)
    except Problem:  # the terms have changed: it cannot be judged any more
        return None
    if waiting.due(now) or not asking(judgement):
        return None
    decision = in_words(state, request, judgement, waiting.asks().to_json())
    return Approvable(waiting, decision, state, now)


class Reader:
    """The use cases that read. ``head``, ``events``, ``stream`` and ``texts`` read the database;
    ``time`` returns what the clock shows, in microseconds since 1970.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        clock: Callable[[], int],
        vault: Vault | None,
        snapshots: Snapshots | None,
        ticks: Callable[[], int],
    ) -> None:
        self.ledgers, self.vault = ledgers, vault
        self.head, self.events = ledgers.head, ledgers.read
        self.stream, self.texts = ledgers.stream, ledgers.texts
        self.time, self._clock = clock, TrustedClock(clock, ticks)
        self._pricing = Pricing()
        self._adopted = lru_cache(_POLICIES)(lambda *place: adopted_by(self.event(*place)))
        self._projections = Projections(ledgers, vault, snapshots)

    def state(self, ledger: str) -> State:
        """Return the committed state, which later commands do not change. Raise NotFound."""
        with self._up_to_date(ledger) as state:
            return state.frozen(self.now(state))

    def sums(self, ledger: str) -> tuple[State, Counts]:
        """Return the committed state as far as it is about sums, and how many requests there are.
        Open grants are in it only where accounts do not say what these hold: copying many holds up
        those who ask for budget. Raise NotFound.
        """
        with self._up_to_date(ledger) as state:
            known = all(account.says_held for account in state.accounts.values())
            counts = Counts(len(state.open), len(state.waiting))
            return state.frozen(self.now(state), requests=not known), counts

    def in_force(self, ledger: str) -> tuple[Adopted | None, Custody]:
        """Return the policy in force, if any, and the ledger's custody: values, so that nothing is
        copied as for ``state``. Raise NotFound.
        """
        with self._up_to_date(ledger) as state:
            return state.adopted, state.custody

    @contextmanager
    def _up_to_date(self, ledger: str) -> Iterator[State]:
        """Give the committed state, locked. Raise NotFound for an unknown population."""
        with store_failures():
            projection = self._projections.of(ledger)
            head = self.ledgers.head(ledger)
        with projection.lock:
            with store_failures():
                if head != projection.seen or projection.tree != projection.seen or not head.size:
                    self._follow(projection)
            projection.state.people()
            yield projection.state

    def _follow(self, projection: Projection[State]) -> None:
        """Fold in what is stored of a ledger. Raise StoreError."""
        ledger = projection.ledger
        with projection.lock:
            head = self.ledgers.head(ledger)  # under the lock: another thread may have gone on
            projection.follow(head, partial(self.ledgers.read, ledger))

    def known(self, ledger: str) -> None:
        """Raise NotFound for an unknown population."""
        with self._up_to_date(ledger):
            pass

    def datasets(self, ledger: str) -> list[str]:
        """Return the ids of the registered datasets, in order. Raise NotFound."""
        with self._up_to_date(ledger) as state:
            return sorted(state.datasets)

    def elsewhere(self, ledger: str) -> dict[str, list[str]]:
        """Return, by dataset, the datasets of other populations that are the same data."""
        with store_failures():
            found = self.ledgers.elsewhere(ledger)
        return {dataset: [str(use) for use in uses] for dataset, uses in found.items()}

    def grant(self, ledger: str, name: str) -> tuple[Grant | Settled | Waiting, int]:
        """Return a grant and the present stamp. Raise NotFound."""
        with self._up_to_date(ledger) as state:
            return state.grant(name), self.now(state)

    def waits(self, ledger: str, name: str) -> bool:
        """Return whether a request waits, by what is in memory: nothing is read or locked."""
        projection = self._projections.in_memory(ledger)
        return projection is not None and name in projection.state.waiting.requests

    def open_grants(
        self, ledger: str, client: str | None, dataset: str | None, after: int, most: int
    ) -> tuple[list[Grant], int]:
        """Return at most ``most`` open grants that were reserved after event ``after``, and the
        present stamp. Raise NotFound.
        """
        with self._up_to_date(ledger) as state:
            if dataset is not None:
                state.dataset(dataset)
            return state.grants.page(client, dataset, after, most), self.now(state)

    def waiting_grants(
        self, ledger: str, client: str | None, dataset: str | None, after: int, most: int
    ) -> tuple[list[Waiting], int]:
        """Return at most ``most`` requests that came after event ``after`` and wait, and the
        present stamp. Raise NotFound.
        """
        with self._up_to_date(ledger) as state:
            if dataset is not None:
                state.dataset(dataset)
            found = [
                one
                for one in state.waiting.in_order()
                if one.sequence > after
                and client in (None, one.by)
                and dataset in (None, *one.on.named)
            ]
            return found[:most], self.now(state)

    def proposals(self, ledger: str) -> tuple[list[Proposal], int]:
        """Return the proposals, those that can be confirmed first, then the latest; and the present
        stamp. Raise NotFound.
        """
        with self._up_to_date(ledger) as state:
            found, now = list(state.proposals.values()), self.now(state)
        return in_order(found, now), now

    def proposal(self, ledger: str, number: int) -> tuple[Proposal, int]:
        """Return a proposal and the present stamp. Raise NotFound."""
        with self._up_to_date(ledger) as state:
            return known(state, number), self.now(state)

    def owed(self, ledger: str) -> dict[str, str]:
        """Return what is charged by now, as a second person is told it. Raise NotFound."""
        with self._up_to_date(ledger) as state:
            return owed(state)

    def asks_a_person(self, ledger: str, name: str) -> list[str]:
        """Return the rules that ask for a person's approval of a request that waits, as things are
        now; none if it waits for budget alone, or no more. Raise NotFound.
        """
        with self._up_to_date(ledger) as state:
            found = state.grant(name)
            if not isinstance(found, Waiting):
                return []
            return asking(looked_at(state, found, self.now(state))[1])

    def approvals(self, ledger: str, most: int) -> list[Approvable]:
        """Return at most ``most`` requests that wait for a person, in the order in which they came.
        Other requests do not wait. Raise NotFound.
        """
        state = self.state(ledger)
        now = self.now(state)
        found = (_approvable(state, one, now) for one in state.waiting.in_order())
        return list(islice(filter(None, found), most))

    def approval(self, ledger: str, name: str) -> Approvable:
        """Return a request that waits for a person. Raise NotFound, Conflict if it does not."""
        state = self.state(ledger)
        waiting = state.waiting.requests.get(name)
        found = None if waiting is None else _approvable(state, waiting, self.now(state))
        if found is None:
            became = self.grant(ledger, name)[0].status
            raise Conflict(
                "no-approval-needed", f"{name} waits for no person: it is {became}", state=became
            )
        return found

    def preview(self, ledger: str, by: str, command: AskGrant) -> Preview:
        """Return the decision that ``by`` would get for ``command`` now; record nothing."""
        asked = Envelope(by, command)
        self.price_ahead(ledger, asked)
        with self._up_to_date(ledger) as state:
            request = prepare(state, by, command, self.now(state))
            check_classes(state, request)
            judgement = evaluate(state, request)
            fits = 0 if judgement.outcome == "block" else how_many(state, request)
            decision = in_words(state, request, judgement, asked.document)
            return Preview(request, decision, fits, state.last)

    def preview_all(
        self, ledger: str, by: str, asked: Sequence[AskGrant]
    ) -> tuple[list[Foreseen], int]:
        """Return what each request would get now, after those before it that would be granted, and
        the last event that is counted in; record nothing. Other requests do not wait.
        """
        state = self.state(ledger)
        last = state.last
        return list(foresee(state, by, asked, max(state.time, self.now(state)))), last

    def explain(self, ledger: str, event: Event) -> Explained:
        """Return the decision of a judged event in words. Raise NotFound for any other event."""
        with self._up_to_date(ledger) as state:
            people, custody, data = state.people(), state.custody, state.datasets
        engine = custody.engine_at(event.sequence)
        return explain(event, self._judging(event), people, engine, data)

    def explain_alone(self, ledger: str, sequence: int) -> tuple[Event, Explained]:
        """Like ``explain``, but read only the events that the decision depends on."""
        event = self.event(ledger, sequence)
        adopted = self._judging(event)
        terms = State(ledger)
        for row in self.ledgers.terms(ledger, sequence):
            one = Event.from_bytes(row.body)
            HANDLERS[one.type](terms, one)
        engine = terms.custody.engine_at(sequence)
        return event, explain(event, adopted, terms.people(), engine, terms.datasets)

    def policies(self, ledger: str, before: int) -> list[Event]:
        """Return the events before event ``before`` that adopted policies."""
        with self._up_to_date(ledger) as state:
            sequences = state.custody.policies
        return [self.event(ledger, sequence) for sequence in sequences if sequence < before]

    def _judging(self, event: Event) -> Adopted | None:
        """Return the policy that an event was judged by. Raise NotFound if none has judged it."""
        if event.type not in JUDGED:
            raise NotFound(
                "unknown-decision", f"event {event.sequence} ({event.type}) holds no decision"
            )
        sequence = event.body.get("policy")
        return None if sequence is None else self._adopted(event.ledger, sequence)

    def would_fit(self, event: Event) -> Advice:
        """Return the request that would be granted now in place of a refused one."""
        if event.type != REFUSED or (found := self.around(event)) is None:
            return {}
        state, command, now = found
        return would_fit(state, event.by, command, now)

    def around(self, event: Event) -> tuple[State, AskGrant | OpenSparseVector, int] | None:
        """Return what bears now on a request that was refused, the request, and the stamp; None if
        its ledger is not in memory, as after a commit that failed, or if it is no request.
        """
        projection = self._projections.in_memory(event.ledger)
        command = command_from_json(as_single(event).body["command"])
        if projection is None or not isinstance(command, AskGrant | OpenSparseVector):
            return None
        with projection.lock:
            if not projection.whole:
                return None
            state, now = projection.state, self.now(projection.state)
            about = command.dataset, event.by, now, command.purpose, command.allotment
            return state.about(*about), command, now

    def price_ahead(self, ledger: str, *commands: Envelope) -> None:
        """Price commands before any lock is taken. Raise NotFound, Unavailable."""
        if not any(map(takes_long, commands)):
            return
        with store_failures():
            state = self._projections.of(ledger).state
        if state.population is not None:
            terms = terms_of(state)
            for asked in self._pricing.left(terms, commands):
                self._pricing.price(terms, asked)

    def terms(self, ledger: str) -> Terms | None:
        """Return the terms of prices now; None for a ledger that is new, or not in memory."""
        projection = self._projections.in_memory(ledger)
        if projection is None or projection.state.population is None:
            return None
        return terms_of(projection.state)

    def priced(self, ledger: str, asked: Envelope) -> bool:
        """Return whether a command's price is remembered, or quick to find."""
        if not takes_long(asked):
            return True
        terms = self.terms(ledger)
        return terms is not None and not self._pricing.left(terms, [asked])

    def now(self, state: State) -> int:
        """Return the stamp that an event of ``state`` would get now."""
        return max(self._clock.look(state).stamp, state.time)

    def event(self, ledger: str, sequence: int) -> Event:
        """Return one event. Raise NotFound."""
        found = self.ledgers.read(ledger, sequence, 1)
        if not found or found[0].sequence != sequence:
            raise NotFound("unknown-event", f"ledger {ledger} has no event {sequence}")
        return Event.from_bytes(found[0].body)

    def populations(self) -> list[str]:
        """Return the names of all populations, in order."""
        return [name for name in self.ledgers.names() if name != KEYS]

    def start(self, believed: int | None, ahead: int) -> None:
        """Read all ledgers, and check the clock: more than ``ahead`` after their last stamp, and
        after it was last ``believed``, it is in doubt. Microseconds. A ledger that cannot be read
        is logged.
        """
        since = believed or 0
        for ledger in self.populations():
            try:
                with self._up_to_date(ledger) as state:
                    since = max(since, state.time)
            except Exception as error:  # noqa: BLE001 the other ledgers are read
                reason = error.detail if isinstance(error, Problem) else repr(error)
                _log.error("a ledger cannot be read", population=ledger, reason=reason)
        if since:
            self._clock.start(since, ahead)

    def clock_doubt(self) -> Doubt | None:
        """Return the first doubt about the clock by the ledgers in memory."""
        for projection in self._projections.all():
            with projection.lock:
                doubt = self._clock.look(projection.state, believed=True).doubt
                if projection.tree.size and doubt:
                    return doubt
        return None

    def ready(self) -> None:
        """Raise Unavailable unless grants can be given: database and clock are in order."""
        if (doubt := self.clock_doubt()) is not None:
            raise Unavailable("not-ready", doubt.problem().detail)
        try:
            self.ledgers.check()
        except StoreError as error:
            raise Unavailable("not-ready", f"{error}{hint(error)}") from error


@contextmanager
def store_failures() -> Iterator[None]:
    """Translate failures of the database into problems."""
    try:
        yield
    except Moved:
        raise
    except (Diverged, VaultError) as error:
        code = "ledger-diverged" if isinstance(error, Diverged) else "vault-failed"
        raise Unavailable(code, str(error)) from error
    except Damaged as error:
        raise Unavailable(
            "storage-failed",
            f"this service cannot read the ledger, and a retry does not help: {error}. Start the "
            "version of the program that wrote the event, or put the right database back",
        ) from error
    except StoreError as error:
        raise Unavailable(
            "storage-failed",
            f"the ledger could not be reached ({error}); nothing is lost: try again with the same "
            "Idempotency-Key",
        ) from error
