"""What tests of several folders share: ledgers in memory, services on files, and comparisons."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Literal

import httpx2
import structlog
import structlog.testing
import uvloop
from pydantic import TypeAdapter

from accountant import verify_minimal
from accountant.api.views import decided
from accountant.auditing.totals import totals_of
from accountant.budget.accounts.epochs import adopted_by
from accountant.budget.accounts.sums import Sums
from accountant.budget.apply import apply
from accountant.budget.commands import (
    AdoptPolicy,
    Command,
    ConfirmChange,
    Envelope,
    KeyMade,
    batch_of,
    command_from_json,
)
from accountant.budget.decide import (
    Repeated,
    admission,
    before_of,
    decide,
)
from accountant.budget.decide.proposing import (
    why,
)
from accountant.budget.explain import Explained, explain
from accountant.budget.outcome import PROPOSED, Outcome
from accountant.budget.policy_file import parse_policy
from accountant.budget.replay import Replay, replay
from accountant.budget.sealing import SALT_BYTES, seal
from accountant.budget.state import AccountKey, State
from accountant.config.settings import Settings
from accountant.ledger.checkpoints import Checkpoint, Receipt
from accountant.ledger.events import Event, canonical
from accountant.ledger.merkle import Tree, includes, leaf_hash
from accountant.ledger.notes import Verifier, parse
from accountant.privacy.mechanisms import BaseMechanism, Mechanism
from accountant.privacy.units import Currency
from accountant.publishing.publisher import Publisher
from accountant.runtime.clock import ticks, wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import sqlite_path
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots
from accountant.store.sqlite import writer
from accountant.store.vault import Vault

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"
SECOND = 1_000_000
START = 1_790_000_000 * SECOND
"""A fixed moment in 2026 at which ledgers in memory begin."""
_MECHANISM: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)


def migrate(url: str) -> None:
    """Creates or upgrades the tables, as ``accountant migrate`` does."""
    from alembic import command  # noqa: PLC0415 (who is given a database does without)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = writer(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()


# -- mechanisms ------------------------------------------------------------------------------


def laplace(epsilon: str | int, count: int = 1, **more: Any) -> dict[str, Any]:
    """A Laplace mechanism that costs exactly ``epsilon`` an invocation."""
    stated = {"kind": "laplace", "sensitivity": str(epsilon), "scale": "1", "count": count}
    return stated | more


def declared(epsilon: str | int, delta: str | int = "0", count: int = 1) -> dict[str, Any]:
    """(epsilon, delta) on the client's word."""
    return {"kind": "declared", "epsilon": str(epsilon), "delta": str(delta), "count": count}


def gaussian(mu: str | int, delta: str | None = None, **more: Any) -> dict[str, Any]:
    """Gaussian noise of mu, with its epsilon at ``delta``; without one that is infinite, while rho,
    every Renyi divergence and mu are not.
    """
    stated = {"kind": "gaussian", "sensitivity": str(mu), "scale": "1"}
    return stated | ({"delta": delta} if delta else {}) | more


NON_PRIVATE = {"kind": "non_private"}


def mechanism(body: dict[str, Any]) -> BaseMechanism:
    """The mechanism that ``body`` states."""
    return _MECHANISM.validate_python(body)


def sparse_vector(**more: Any) -> dict[str, Any]:
    """A sound session: 0.1 for the threshold and 0.02 for each of 5 positives, 0.2 in all."""
    return {
        "kind": "sparse_vector",
        "sensitivity": "1",
        "threshold_scale": "10",
        "comparison_scale": "100",
        "max_positives": 5,
    } | more


def by_two(service: Service, ledger: str, asked: Envelope, confirmed_by: str = "officer") -> Any:
    """The answer to a command, confirmed if it was only proposed."""
    answer = service.execute(ledger, asked)
    if not answer.entries or answer.entries[-1].type != PROPOSED:
        return answer
    confirmed = Envelope(confirmed_by, confirming(answer.events[-1]))
    return service.confirm(ledger, confirmed, recovering=True)


def confirming(proposed: Event, key: KeyMade | None = None) -> ConfirmChange:
    """The command that confirms a proposal: one about a clock at the time that it shows."""
    digest = sha256(proposed.to_bytes()).hexdigest()
    known = {"key": key, "clock": proposed.body["command"].get("clock")}
    return ConfirmChange(proposal=proposed.sequence, digest=digest).model_copy(update=known)


def proposed(found: Event | list[Event], text: str = "") -> Event:
    """The proposal that a change ended in, whose reason matches ``text``."""
    event = found if isinstance(found, Event) else found[-1]
    assert event.type == PROPOSED
    assert re.search(text, why(event.body["effect"]))
    return event


# -- a ledger in memory ----------------------------------------------------------------------


def make(kind: str, **fields: Any) -> Command:
    """The command called ``kind``, validated as a request body is."""
    return command_from_json({"type": kind} | fields)


policy_file = lru_cache(maxsize=256)(parse_policy)
"""Random ledgers adopt the same few files over and over."""


@dataclass
class Book:
    """A ledger without a database: decides, writes bytes, folds what the bytes say."""

    name: str = "fair"
    now: int = START
    state: State = field(init=False)
    stored: list[bytes] = field(default_factory=list)
    keys: int = 0
    seals: bool = True
    """Free texts are sealed, and long lists packed, as the service does before it decides."""

    def __post_init__(self) -> None:
        self.state = State(self.name)

    def ask(
        self,
        command: Command,
        by: str = "pipe",
        key: str | None = None,
        confirmed_by: str | None = None,
    ) -> Any:
        """Events, or Repeated. Commands that need a key get a fresh one unless one is given. What
        is only proposed is confirmed, if somebody is named.
        """
        if key is None and command.needs_key:
            self.keys += 1
            key = f"auto-{self.keys}"
        events = self._take(Envelope(by, command, key))
        if confirmed_by is not None and isinstance(events, Repeated):
            events = [Event.from_bytes(self.stored[events.sequence])]
        if confirmed_by is None or not events or events[-1].type != PROPOSED:
            return events
        return self._take(Envelope(confirmed_by, confirming(events[-1])))

    def batch(self, *items: Command, by: str = "pipe", key: str | None = None) -> Any:
        """Events, or Repeated: the items in the order in which they are to be decided."""
        self.keys += 1
        return self._take(Envelope(by, batch_of(items), key or f"auto-{self.keys}", items))

    def _take(self, asked: Envelope) -> Any:
        if self.seals:
            asked, _ = seal(self.state, asked, lambda: bytes(SALT_BYTES))  # retries are alike
        self.admit(before_of(self.state, asked, self.now))
        outcome = decide(self.state, asked, self.now)
        if isinstance(outcome, Repeated):
            return outcome
        for one in outcome:
            self.fold(one)
        self.admit()
        return [one.event() for one in outcome]

    def admit(self, now: int | None = None) -> list[Event]:
        """Admits who waits and fits, as the service does before and after each command."""
        found = []
        while (one := admission(self.state, self.now if now is None else now)) is not None:
            self.fold(one)
            found.append(one.event())
        return found

    def fold(self, outcome: Outcome) -> None:
        """Folds an outcome in, and keeps its bytes."""
        apply(self.state, outcome)
        self.stored.append(outcome.entry.body)

    def decision(self, event: Event) -> dict[str, Any]:
        """The decision of an event, in words: as the API serves it."""
        return dict(decided(self.explained(event).decision))

    def explained(self, event: Event) -> Explained:
        """The decision of an event, by the policy that was in force."""
        adopted = None
        if "policy" in event.body:
            adopted = adopted_by(Event.from_bytes(self.stored[event.body["policy"]]))
        engine = self.state.custody.engine_at(event.sequence)
        return explain(event, adopted, self.state.people(), engine, self.state.datasets)

    def do(
        self,
        kind: str,
        by: str = "pipe",
        key: str | None = None,
        confirmed_by: str | None = None,
        **fields: Any,
    ) -> Event:
        """The one event (the last, if there are more) that answers the command ``kind``. A recovery
        is confirmed in any case.
        """
        second = confirmed_by or ("second" if kind == "recover" else None)
        return self.ask(make(kind, **fields), by, key, second)[-1]

    def register(
        self,
        dimensions: dict[str, list[str]] | None = None,
        *,
        neighbouring: str = "replace_one",
        membership: str = "public",
        **more: Any,
    ) -> None:
        """Registers the population, or extends it, which is confirmed if that takes two."""
        self.ask(
            make(
                "register_population",
                privacy_unit="person",
                neighbouring=neighbouring,
                membership=membership,
                dimensions=dimensions or {},
                **more,
            ),
            "admin",
            confirmed_by="officer",
        )

    def dataset(self, name: str) -> None:
        """Registers a dataset."""
        self.ask(make("register_dataset", id=name, namespace="n", name=name), "admin")

    def policy(
        self,
        rules: str,
        confirmed_by: str | None = None,
        closes: Iterable[str] | Literal[True] = (),
    ) -> list[Event]:
        """Adopts a policy of the given rules (YAML list items), any of which may begin closed if
        ``closes`` is True. The first one is confirmed in any case.
        """
        policy, digest = policy_file("policy: p\nrules:\n" + rules)
        named = [rule.id for rule in policy.rules] if closes is True else list(closes)
        asked = AdoptPolicy(policy=policy.to_json(), source_digest=digest, closes=named)
        first = "officer" if self.state.adopted is None else None
        return self.ask(asked, "admin", confirmed_by=confirmed_by or first)

    def grant(self, *mechanisms: dict[str, Any], dataset: str = "d", **more: Any) -> Event:
        """Asks for a grant."""
        return self.do("ask_grant", dataset=dataset, mechanisms=list(mechanisms), **more)

    def record(self, *mechanisms: dict[str, Any], dataset: str = "d", **more: Any) -> Event:
        """Records invocations that already happened."""
        return self.do("record_invocations", dataset=dataset, mechanisms=list(mechanisms), **more)

    def used(self, rule: str = "a", dataset: str = "d", client: str = "") -> list[tuple[int, ...]]:
        """Units used per cell, in the order of the cells: finite sums in the currencies that the
        account keeps, epsilon and delta first, then infinities.
        """
        return cells_of(self.account(rule, dataset, client).used)

    def used_in(
        self, currency: Currency, rule: str = "a", dataset: str = "d", client: str = ""
    ) -> list[int | None]:
        """Units of one currency used per cell; None where that is infinite."""
        axis = self.account(rule, dataset, client).axis
        row, n = axis.index(currency), len(axis)
        columns = self.used(rule, dataset, client)
        return [None if column[n + row] else column[row] for column in columns]

    def reserved(self, rule: str = "a", dataset: str = "d") -> list[tuple[int, ...]]:
        """Units only reserved per cell."""
        return cells_of(self.held(rule, dataset))

    def held(self, rule: str = "a", dataset: str = "d", client: str = "") -> Sums:
        """What open grants hold in the account of a rule."""
        account = self.account(rule, dataset, client)
        nothing = Sums(account.used.rows, account.used.space)
        return self.state.reserved().get(self.key(rule, dataset, client), nothing)

    def account(self, rule: str = "a", dataset: str = "d", client: str = "") -> Any:
        """The account of a rule in its present epoch ("" for the lifetime)."""
        return self.state.account(self.key(rule, dataset, client))

    def key(self, rule: str = "a", dataset: str = "d", client: str = "") -> AccountKey:
        """Where that account is."""
        adopted = self.state.adopted
        epoch = adopted.epochs[rule].number if rule and adopted else 0
        limit = adopted.rule(rule) if adopted else None
        return AccountKey(rule, epoch, dataset, client, (limit and limit.unit) or "")

    def replayed(self) -> Replay:
        """The replay of everything stored."""
        return last_replay(self.name, self.stored)


def hospital(
    rules: str = "  - {id: a, limit: {epsilon: 1}}\n",
    dimensions: dict[str, list[str]] | None = None,
    **more: Any,
) -> Book:
    """A ledger with a population, the dataset ``d`` and a policy of ``rules``."""
    book = Book()
    book.register(dimensions, **more)
    book.dataset("d")
    book.policy(rules)
    return book


def last_replay(name: str, stored: Iterable[bytes]) -> Replay:
    """The finished replay."""
    return list(replay(name, stored))[-1]


def proven(receipt: bytes, entry: bytes, keys: list[Verifier]) -> Checkpoint:
    """The checkpoint, signed by one of ``keys``, in whose tree the receipt shows the entry."""
    found = Receipt.from_bytes(receipt)
    note = parse(found.checkpoint)
    assert note.verified(keys)
    head = Checkpoint.from_text(note.text)
    assert includes(head.root, head.size, found.index, leaf_hash(entry), found.proof)
    return head


def root_of(stored: Iterable[bytes]) -> bytes:
    """The root of the tree of these events."""
    return Tree().grown(map(leaf_hash, stored))[0].root


def cells_of(sums: Sums) -> list[tuple[int, ...]]:
    """The sums of each cell, one tuple a cell: finite ones, then numbers of infinite charges."""
    found = sums.stacked()
    if sums.classes is not None:
        found = sums.classes.spread(found)
    flat = found.reshape(2 * sums.rows, -1)
    return list(map(tuple, flat.T.tolist()))


def snapshot(state: State) -> dict[str, Any]:
    """Everything in a state, comparable; an account with nothing in it counts as absent."""
    accounts = {}
    for key, account in state.accounts.items():
        account = account.at(state.time)  # noqa: PLW2901
        value = cells_of(account.used), tuple(account.bound), tuple(account.held)
        if any(any(cell) for cell in value[0]) or any(value[1]):
            accounts[key] = value
    return {
        "sequence": state.sequence,
        "time": state.time,
        "population": state.population,
        "datasets": state.datasets,
        "adopted": state.adopted,
        "accounts": accounts,
        "grants": state.grants,
        "open": state.open,
        "waiting": state.waiting,
        "answers": state.idempotency,
        "last_epoch": state.last_epoch,
        "proposals": state.proposals,
    }


def audited(book: Book, first: int | None = None) -> verify_minimal.Audit:
    """What the verifier makes of the events of a ledger in memory, or of so many of them, on their
    way in.
    """
    audit = verify_minimal.Audit()
    audit.manifest = {"ledger": book.name}
    for entry in book.stored[:first]:
        audit.entry(entry)
    return audit


def sums_agree(book: Book) -> None:
    """The small verifier has no finding, and in every cell of every account the service's sums."""
    found, state = audited(book), book.state
    assert found.findings == []
    for key, kept in state.accounts.items():
        mine, theirs = found.account(tuple(key)), kept.at(state.time)
        mine.advance(state.time)
        cells = list(product(*map(range, theirs.used.shape)))
        assert [tuple(mine.at(cell)) for cell in cells] == cells_of(theirs.used), key
        assert (mine.bound, mine.held) == (list(theirs.bound), list(theirs.held)), key
    found.add_up()
    assert canonical({"accounts": found.totals}) == totals_of(state)


# -- a service on a file ---------------------------------------------------------------------


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self, now: int = START) -> None:
        self.now = now
        self.passed = 0

    def __call__(self) -> int:
        """Microseconds since 1970."""
        return self.now

    def forward(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += int(seconds * SECOND)
        self.passed += int(seconds * SECOND)

    def ticks(self) -> int:
        """Microseconds that have really passed."""
        return self.passed

    def jump(self, seconds: float) -> None:
        """Shows another time, while none passes."""
        self.now += int(seconds * SECOND)


_LOOPS: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    """An event loop in a thread, in which all doors of this process are served."""
    if not _LOOPS:
        _LOOPS.append(uvloop.new_event_loop())
        threading.Thread(target=_LOOPS[0].run_forever, daemon=True).start()
    return _LOOPS[0]


class Served:
    """The door of a service in this process, at a port of its own; without the quick way unless
    ``hot``. Its log's lines come through structlog.
    """

    def __init__(
        self, service: Service, settings: Settings, publisher: Publisher | None, *, hot: bool = True
    ) -> None:
        from accountant.api.app import create_app  # noqa: PLC0415 (pure tests do without a door)
        from accountant.api.hot import Hot  # noqa: PLC0415
        from accountant.console.app import add_console, close_console  # noqa: PLC0415
        from accountant.door.access_log import AccessLog  # noqa: PLC0415
        from accountant.door.asgi import Requests  # noqa: PLC0415
        from accountant.door.keys import Attempts  # noqa: PLC0415
        from accountant.door.server import Door  # noqa: PLC0415

        class Told(AccessLog):
            def note(
                self, method: str, path: str, status: int, ids: Any, client: Any, *more: Any
            ) -> None:
                line = {"method": method, "path": path, "status": status, "client": client}
                line |= {"request_id": ids[0], "traceparent": ids[1], "milliseconds": more[0]}
                structlog.get_logger().info("request", **line, **(more[1] or {}))

        publisher = publisher or Publisher(service, Vault(settings.home), settings.origin)
        app = create_app(service, settings, publisher)
        add_console(app, service, settings)
        self._end = partial(close_console, app)
        take = Hot(service).take if hot else list
        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = listening.getsockname()[1]

        async def begin() -> Door:
            keys = service.credentials
            door = Door(Requests(app, take), keys, settings, Told(), service.latencies)
            door.attempts = Attempts(1_000_000)  # many tests try many
            door.listen(listening)
            return door

        self.door = asyncio.run_coroutine_threadsafe(begin(), _loop()).result()

    def close(self) -> None:
        """Takes nobody any more."""

        async def end() -> None:
            self.door.close()

        asyncio.run_coroutine_threadsafe(end(), _loop()).result()
        self._end()


OPENED: list[Client] = []
"""Clients that were opened, whose sockets somebody has to close."""


class Client(httpx2.Client):
    """An HTTP client of a door, which closes with it."""

    def __init__(self, served: Served) -> None:
        base = f"http://127.0.0.1:{served.port}"
        # Without TLS: reading the certificates that it trusts would be a third of a World.
        super().__init__(
            base_url=base, timeout=60, follow_redirects=True, trust_env=False, verify=False
        )
        self._served = served
        self.port = served.port
        OPENED.append(self)

    def close(self) -> None:
        """Closes both."""
        super().close()
        self._served.close()

    def __exit__(self, *more: Any) -> None:
        super().__exit__(*more)
        self._served.close()


def client_of(
    service: Service,
    settings: Settings | None = None,
    publisher: Publisher | None = None,
    *,
    hot: bool = True,
) -> Client:
    """An HTTP client of the service's door, over a real socket."""
    return Client(Served(service, settings or Settings(), publisher, hot=hot))


@contextmanager
def logged() -> Iterator[list[Any]]:
    """The lines that are logged meanwhile, which the tests are otherwise spared."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    try:
        with structlog.testing.capture_logs(
            processors=[structlog.contextvars.merge_contextvars]
        ) as lines:
            yield lines
    finally:
        structlog.configure(wrapper_class=before)


ROLES = ("admin", "pipeline", "officer", "auditor")


class World:
    """A service on a database file, with its vault beside it, a key for each role, and an HTTP
    client. ``secrets`` are those of the roles' keys in a database that another World has left;
    ``more`` are settings.
    """

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        secrets: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.url = url
        self.settings = Settings(
            **({} if "home" in more else {"home": sqlite_path(url).parent}), **more
        )
        self.service = Service(
            open_ledgers(url),
            clock or wall_clock,
            Vault(self.settings.home),
            Snapshots(self.settings.home),
            clock.ticks if clock else ticks,
            self.settings.most_waiting,
        )
        self.secrets = secrets or self._new_keys()
        self.publisher = Publisher(self.service, Vault(self.settings.home), self.settings.origin)
        self.keys = 10_000 if secrets else 0  # those before have been used

    @cached_property
    def http(self) -> Client:
        """An HTTP client of the service's door, which opens when it is first needed."""
        return client_of(self.service, self.settings, self.publisher)

    def _new_keys(self) -> dict[str, str]:
        """A key for each role; nobody knows the old ones any more."""
        for key in self.service.credentials.all():
            self.service.credentials.revoke(key.name, "test")
        return {role: self.new_key(role, role) for role in ROLES}

    def new_key(self, name: str, role: Any, by: str = "test") -> str:
        """A new API key, which somebody else confirms if it takes two people."""
        secret = self.service.credentials.create(name, role, by)
        found, now = self.service.credentials.proposals()
        for one in found:
            if one.is_open(now):
                self.service.credentials.confirm(one.sequence, one.digest, "test-2")
        return secret

    def close(self) -> None:
        """Lets go of the file."""
        if "http" in vars(self):
            self.http.close()
        self.service.close()

    def auth(self, who: str) -> dict[str, str]:
        """The Authorization header of a role's key."""
        return {"Authorization": f"Bearer {self.secrets[who]}"}

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: str = "pipeline",
        key: str | None = None,
        **more: Any,
    ) -> Any:
        """One request under /v1/populations/fair; POSTs get a fresh key unless one is given."""
        headers = self.auth(who) | more.pop("headers", {})
        if method == "POST" and key is None:
            self.keys += 1
            key = f"auto-{self.keys}"
        if key is not None:
            headers["Idempotency-Key"] = key
        content = {"content": body} if isinstance(body, bytes | str) else {"json": body}
        if body is None:
            content = {}
        return self.http.request(
            method, f"/v1/populations/fair{path}", headers=headers, **content, **more
        )

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        """A POST by the pipeline."""
        return self.call("POST", path, body, **more)

    def put(self, path: str, body: Any = None, **more: Any) -> Any:
        """A PUT by the administrator."""
        return self.call("PUT", path, body, **({"who": "admin"} | more))

    def get(self, path: str, **more: Any) -> Any:
        """A GET by the administrator."""
        return self.call("GET", path, **({"who": "admin"} | more))

    def hospital(
        self,
        rules: str = "  - {id: a, limit: {epsilon: 1}}\n",
        dimensions: dict[str, list[str]] | None = None,
        **more: Any,
    ) -> World:
        """Registers a population, the dataset ``d`` and a policy; returns itself."""
        population = {
            "privacy_unit": "person",
            "neighbouring": "replace_one",
            "membership": "public",
            "dimensions": dimensions or {},
        } | more
        for answer in (
            self.put("", population),
            self.put("/datasets/d", {"namespace": "n", "name": "d"}),
            self.policy("policy: p\nrules:\n" + rules),
        ):
            assert answer.status_code == 200, answer.text
        return self

    def policy(self, text: str, **more: Any) -> Any:
        """Adopts a policy, by two people if it takes two; the last answer."""
        answer = self.put("/policy", text, **more)
        return self.confirm(answer) if answer.status_code == 202 else answer

    def confirm(self, proposed: Any, *, who: str = "officer", **more: Any) -> Any:
        """Confirms the proposal that an answer holds."""
        named = proposed.json()
        path = f"/proposals/{named['proposal']}/confirm"
        return self.post(path, {"digest": named["digest"]}, who=who, **more)

    def head(self) -> Any:
        """Where the ledger ends: its tree."""
        return self.service.head("fair")

    def stored(self) -> list[bytes]:
        """The bytes of every event."""
        return [row.body for row in self.service.stream("fair")]

    def used(self, rule: str = "a", dataset: str = "d") -> list[tuple[int, ...]]:
        """Units used per cell."""
        state = self.service.state("fair")
        assert state.adopted is not None
        key = AccountKey(rule, state.adopted.epochs[rule].number, dataset)
        return cells_of(state.account(key).used)


def ask(*mechanisms: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request body for grants and invocations."""
    return {"dataset": "d", "mechanisms": list(mechanisms)} | more


def hundredth(service: Service, by: str, key: str) -> Any:
    """Asks for epsilon 0.01; the answer's event."""
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")])
    return service.execute("fair", Envelope(by, command, key)).events[-1]


def clean(world: World) -> None:
    """The whole ledger replays without a finding, and the memory agrees with it."""
    result = last_replay("fair", world.stored())
    assert result.findings == []
    state = world.service.state("fair")
    assert snapshot(state) == snapshot(result.state)
    assert root_of(world.stored()) == world.head().root
