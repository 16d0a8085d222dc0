"""A service in a home of its own, with a vault and a publisher, and ledgers with much in them."""

from __future__ import annotations

import io
import secrets
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from support import (
    PROPOSED,
    Clock,
    World,
    ask,
    confirming,
    declared,
    gaussian,
    laplace,
    make,
    migrate,
    sparse_vector,
)

from accountant.auditing.verify import AuditResult, verify
from accountant.budget.commands import Command, Envelope
from accountant.budget.facts import grant_in
from accountant.config.settings import Settings
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import Event, rfc3339
from accountant.ledger.notes import parse
from accountant.publishing import recovery
from accountant.publishing.export import covering, write_bundle
from accountant.publishing.publisher import Publisher
from accountant.runtime.clock import ticks, wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import Signed
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault

ORIGIN = "example.org/ledger"
ROOMS = "  - {id: a, limit: {epsilon: 100, delta: 1e-6}}\n"


def fresh_key() -> str:
    """An idempotency key that nobody has used, in whatever copy of a house."""
    return f"key-{secrets.token_hex(8)}"


class House(World):
    """A world with a home folder: database, vault, publisher."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        self.home = home
        self.clock = clock
        self.url = f"sqlite:///{home}/accountant.db"
        if not self.path.exists():
            home.mkdir(parents=True, exist_ok=True)
            migrate(self.url)
        self.settings = Settings(home=home, database_url=self.url, origin=ORIGIN, public_log=True)
        self.vault = Vault(self.settings.home)
        self.keys = 0
        self.secrets: dict[str, str] = {}
        self.next: list[House] = []
        self.open()

    @property
    def publisher(self) -> Publisher:
        """Who signs."""
        return self._publisher

    @property
    def path(self) -> Path:
        """The database file."""
        return self.home / "accountant.db"

    def open(self) -> None:
        """A service on the home as it is now."""
        clock, passing = (self.clock, self.clock.ticks) if self.clock else (wall_clock, ticks)
        self.service = Service(open_ledgers(self.url), clock, self.vault, ticks=passing)
        self._publisher = Publisher(self.service, self.vault, ORIGIN)

    def auth(self, who: str) -> dict[str, str]:
        """The Authorization header of a role's key, made when it is first needed."""
        if who not in self.secrets:
            name = f"{who}-{secrets.token_hex(4)}"
            self.secrets[who] = self.service.credentials.create(name, who, "test")  # type: ignore[arg-type]
        return super().auth(who)

    def again(self) -> House:
        """Another service on the same home, as after a restart; closed with this one."""
        self.next.append(House(self.home, self.clock))
        return self.next[-1]

    def close(self) -> None:
        """Lets go of the file, and so do those that came after."""
        for each in self.next:
            each.close()
        super().close()

    def do(self, kind: str, by: str = "pipe", **fields: Any) -> Event:
        """The last event that answers the command ``kind``."""
        return self.ask(make(kind, **fields), by)

    def ask(self, command: Command, by: str = "pipe", key: str | None = None) -> Event:
        """The last event that answers ``command``."""
        asked = Envelope(by, command, key or (fresh_key() if command.needs_key else None))
        return self.service.execute("fair", asked).events[-1]

    def accept_time(self, reason: str) -> Event:
        """Accepts the clock, by two people."""
        clock = rfc3339(self.clock.now)
        event = self.do("accept_time", "operator:o", clock=clock, reason=reason)
        return self.ask(confirming(event), "operator:second")

    def grant(self, epsilon: str = "0.001", **more: Any) -> Event:
        """Reserves a grant."""
        return self.do("ask_grant", **ask(laplace(epsilon), **more))

    def commit(self, grant: Event) -> Event:
        """Commits a grant."""
        return self.do("commit_grant", grant=grant_in(grant))

    def sign(self) -> Signed:
        """Signs the head."""
        return self.publisher.sign("fair")

    def bundle(
        self, first: int = 0, last: int | None = None, *, texts: bool = True, sign: bool = True
    ) -> bytes:
        """The bundle of the ledger, as ``accountant export`` writes it."""
        ledgers = self.service.ledgers
        if sign:
            signed, state = self.publisher.signed_state("fair")
        else:
            signed, state = ledgers.signed("fair")[-1], self.service.state("fair")
        out = io.BytesIO()
        entries = covering(first, last, signed.size)
        write_bundle(out, ledgers, "fair", signed, state, entries, with_texts=texts)
        return out.getvalue()

    def raw(self, *statements: str, guarded: bool = True) -> list[Any]:
        """Runs SQL as somebody would who has the file; ``guarded``: with its triggers."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            guards = []
            if not guarded:
                query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
                guards = connection.execute(query).fetchall()
                for name, _ in guards:
                    connection.execute(f"DROP TRIGGER {name}")
            rows: list[Any] = []
            for statement in statements:
                rows = connection.execute(statement).fetchall()
            for _, sql in guards:
                connection.execute(sql)
            return rows

    def copy_database(self, to: Path) -> None:
        """A consistent copy of the database, as a backup makes it."""
        to.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path)) as mine, closing(sqlite3.connect(to)) as other:
            mine.backup(other)

    def put_back(self, copy: Path) -> House:
        """Restores a copy of the database under the vault as it is, and starts again."""
        self.service.ledgers.close()
        for name in ("accountant.db-wal", "accountant.db-shm"):
            (self.home / name).unlink(missing_ok=True)
        shutil.copy(copy, self.path)
        return self.again()


def audit(*bundles: bytes, **more: Any) -> AuditResult:
    """The verdict on bundles, from their bytes."""
    return verify([io.BytesIO(data) for data in bundles], **more)


def reasons(verdict: AuditResult) -> list[str]:
    """All findings, in words."""
    return [str(finding) for finding in verdict.findings]


def resident(house: House, dimensions: dict[str, list[str]] | None = None) -> House:
    """Registers a population, the dataset ``d`` and a policy, without a door."""
    house.do(
        "register_population",
        "admin",
        privacy_unit="person",
        neighbouring="replace_one",
        membership="public",
        dimensions=dimensions or {},
    )
    house.do("register_dataset", "admin", id="d", namespace="n", name="d")
    adopt(house, ROOMS)
    return house


def adopt(
    house: House, rules: str, publication: str = "", confirmed_by: str | None = None
) -> Event:
    """Adopts a policy; the first one is confirmed in any case."""
    from accountant.budget.commands import AdoptPolicy  # noqa: PLC0415
    from accountant.budget.policy_file import parse_policy  # noqa: PLC0415

    policy, digest = parse_policy("policy: p\nrules:\n" + rules + publication)
    asked = AdoptPolicy(policy=policy.to_json(), source_digest=digest)
    event = house.ask(asked, "admin")
    first = house.service.state("fair").adopted is None
    if event.type != PROPOSED or not (confirmed_by or first):
        return event
    return house.ask(confirming(event), confirmed_by or "officer")


def eventful(house: House) -> House:
    """A small ledger with events of (nearly) all types, texts, an erasure, rotations and
    checkpoints in between. The clock of the house must be one that can be moved.
    """
    assert house.clock is not None
    resident(house, {"sex": ["f", "m"], "age": ["17", "22"]})
    house.sign()
    one = house.grant("0.5", subjects={"sex": ["f"]}, purpose="a table of somebody")
    two = house.do(
        "ask_grant", **ask(laplace("0.125"), laplace("0.25"), justification="because of it")
    )
    house.commit(one)
    house.do("release_grant", grant=grant_in(two), reason="never ran, says Eve")
    house.sign()
    due = house.grant("0.1", ttl_seconds=60)
    house.clock.forward(61)
    house.service.expire_due()
    house.commit(due)
    house.do("ask_grant", **ask(laplace("1000"), purpose="far too much"))
    ran = declared("0.125", "1e-9"), laplace("0.25")
    house.do("record_invocations", **ask(*ran, subjects={"age": ["17"]}))
    house.do("record_invocations", **ask(gaussian("0.1")))
    session = house.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    name = grant_in(session)
    house.do("count_answers", grant=name, positives=2, negatives=5)
    house.do("close_sparse_vector", grant=name)
    house.publisher.rotate("fair", "operator:o")
    house.publisher.rotate("fair", "operator:o")
    house.sign()
    house.do(
        "register_population",
        "admin",
        privacy_unit="person",
        neighbouring="replace_one",
        membership="public",
        dimensions={"sex": ["f", "m"], "age": ["17", "22", "27"]},
    )
    adopt(house, ROOMS.replace("100", "200"), confirmed_by="officer")
    house.service.erase("fair", "officer", one.sequence, None, "she asked for it")
    house.do("stop_publication", ":accountant", witness="w", status=409, detail="7", size=5)
    house.do("resume_publication", "operator:o", reason="it was the witness's disk")
    house.clock.jump(365 * 86_400)
    house.accept_time("the machine was off")
    house.grant("0.01")
    house.clock.forward(0.000_001)
    return house


def many(house: House, count: int) -> House:
    """Appends so many grants that are refused or admitted, in one transaction."""
    command = make("ask_grant", **ask(laplace("0.0001")))
    asked = [Envelope("pipe", command, fresh_key()) for _ in range(count)]
    house.service.execute_all("fair", asked)
    return house


def recovered(house: House, reason: str = "the disk died") -> Signed:
    """``accountant recover``."""
    ledgers, vault = house.service.ledgers, house.vault
    event = recovery.propose(ledgers, vault, "fair", by="operator:o", reason=reason)
    asked = Envelope("operator:second", confirming(event))
    return recovery.confirm(ledgers, vault, ORIGIN, "fair", asked)


def backup(house: House) -> Path:
    """A copy of the database as it is."""
    copy = house.home.parent / "backup.db"
    house.copy_database(copy)
    return copy


def numbered(house: House) -> None:
    """Fails unless checkpoints are numbered without gaps, grow, and the last is kept outside."""
    signed = house.service.ledgers.signed("fair")
    sizes = [one.size for one in signed]
    assert [one.number for one in signed] == list(range(len(signed)))
    assert sizes == sorted(set(sizes))
    for one in signed:
        assert Checkpoint.from_text(parse(one.note).text).size == one.size
    assert house.vault.read("fair", "signed") == signed[-1].note
    assert reasons(audit(house.bundle())) == []
