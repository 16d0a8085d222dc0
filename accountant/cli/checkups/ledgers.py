"""The database and what is in it: schema, rights, keys, ledgers, evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from accountant.auth.keys import Credentials
from accountant.budget.ancestors import LACKS, uncharged
from accountant.budget.commands import DAY
from accountant.budget.decide.proposing import CONFIRMS
from accountant.budget.errors import Problem
from accountant.budget.facts import SECOND
from accountant.budget.policy import Witness
from accountant.budget.state import State
from accountant.cli.checkups.finding import Finding, fine, look, wrong
from accountant.cli.checkups.machine import SOON, TIMEOUT
from accountant.config.settings import Settings
from accountant.ledger.events import rfc3339
from accountant.privacy import engine
from accountant.publishing.publisher import next_signers
from accountant.runtime.clock import APART, ClockMark
from accountant.runtime.reader import Reader
from accountant.store.ledgers import Ledgers, StoreError, parsed, shown, sqlite_path
from accountant.store.migrate import schema_of
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault

_LATE: Final = 10
"""Intervals between two checkpoints after which one is late."""
_LEAST_LATE: Final = 600.0


def database(chosen: Settings) -> Iterator[Finding]:
    """Look whether the database is there, and of this program's schema."""
    url, do = chosen.database_url, "Run `accountant migrate`; a running service is then restarted."
    if parsed(url).get_backend_name() == "sqlite" and not sqlite_path(url).exists():
        yield wrong("database", f"there is no database at {url}", "Run `accountant migrate`.")
        return
    try:
        found, known, missing = schema_of(url)
    except StoreError as error:
        text = f"{shown(url)} cannot be read: {error}"
        yield wrong("database", text, "Start the server, or correct ACCOUNTANT_DATABASE_URL.")
        return
    yield fine("database", f"{shown(url)} answers")
    if missing:
        text = f"it lacks {', '.join(missing)}"
        yield wrong("schema", text, do)
    elif missing is not None:
        yield fine("schema", "it has every table and column that this program needs")
    elif found == known[0]:
        yield fine("schema", f"its schema is {found}, which this program is for")
    elif found in known:
        yield wrong("schema", f"its schema is {found}, and this program needs {known[0]}", do)
    elif found is None:
        yield wrong("schema", "it has no tables of this program", do)
    else:
        text = f"its schema is {found}, which this program does not know"
        yield wrong("schema", text, "A newer version has migrated it: install that version.")


def rights(ledgers: Ledgers) -> Iterator[Finding]:
    """Look whether the database can be written to, and not rewritten."""
    try:
        ledgers.check()
        excess = ledgers.excess()
    except (OSError, StoreError) as error:
        yield wrong("rights", str(error), "Until it can be written to nothing is granted.")
        return
    if excess:
        do = "Set ACCOUNTANT_OWNER_URL to the tables' owner and run `accountant migrate` again."
        yield look("rights", f"the service's role could rewrite it: {'; '.join(excess)}", do)
    else:
        yield fine("rights", "the database can be written to")


def keys(credentials: Credentials, now: int) -> Iterator[Finding]:
    """Look whether there are keys, two people who may confirm, and keys that end soon after the
    stamp ``now``. One in whose place another secret was made ends as it was meant to.
    """
    found = credentials.all()
    for key in found:
        if not key.replaced and key.until <= now + SOON * DAY * SECOND:
            text = f"the key of {key.name} ends at {rfc3339(key.until)}"
            yield look("keys", text, f"accountant keys renew --name {key.name}")
    people = {key.name for key in found if key.role in CONFIRMS}
    if not people:
        do = "accountant keys create --role admin --name …"
        yield wrong("keys", "there is no key of an admin or officer", do)
    elif len(people) == 1:
        text = f"{people.pop()} is the only admin or officer: nobody can confirm a change of theirs"
        yield look("keys", text, "accountant keys create --role officer --name …")
    else:
        yield fine("keys", f"{len(found)} keys, {len(people)} of people who may confirm")


class Ledger:
    """The checks of one ledger, folded from the database as a start would fold it."""

    def __init__(self, reader: Reader, name: str, chosen: Settings) -> None:
        self.reader, self.name, self.chosen = reader, name, chosen
        self.vault, self.snapshots = Vault(chosen.home), Snapshots(chosen.home)

    def check(self, clock: Callable[[], int]) -> Iterator[Finding]:
        """Yield what is found."""
        about = f"ledger {self.name}"
        try:
            state = self.reader.state(self.name)
        except (Problem, StoreError) as error:
            text = error.detail if isinstance(error, Problem) else str(error)
            do = "Put the right database or vault back; `accountant recover` if it is lost for good"
            yield wrong(about, text, f"{do}.")
            return
        yield fine(about, f"{state.sequence} events, which continue what was signed")
        if state.custody.engine > engine.CURRENT:
            text = f"its bounds are version {state.custody.engine}, this program's {engine.CURRENT}"
            yield wrong(about, text, "Install the newer version.")
        for name, others in uncharged(state.datasets).items():
            yield look(about, *LACKS.format(name, ", ".join(others)).split(". ", 1))
        yield from self._clock(about, state, clock())
        yield from self._signing(about, state)
        yield from self._age(about, state)
        if (fault := self.snapshots.fault(self.name)) is not None:
            do = "The next start folds all events and makes a new one; nothing is lost."
            yield look(about, f"its snapshot is of no use: {fault}", do)
        if state.adopted is not None:
            for witness in state.adopted.policy.publication.witnesses:
                yield _reached(about, witness)

    def _clock(self, about: str, state: State, now: int) -> Iterator[Finding]:
        """Foresee what a start would say of the clock."""
        accept = f"accountant accept-time -p {self.name} --reason …"
        if now < state.time - APART:
            yield wrong(
                about,
                f"the clock shows {rfc3339(now)}, before its last event of {rfc3339(state.time)}",
                f"Set the clock right. If it is, two people accept it, from `{accept}` on.",
            )
        since = max(state.time, ClockMark(self.chosen.home).read() or 0)
        hours = (now - since) / 3.6e9
        if hours > self.chosen.clock_ahead_hours:
            yield look(
                about,
                f"the clock is {hours:.1f} hours after the last event and after it was last "
                f"believed; ACCOUNTANT_CLOCK_AHEAD_HOURS is {self.chosen.clock_ahead_hours:g}",
                "A service that starts will doubt it. If it is right, two people accept it, from "
                f"`{accept}` on.",
            )

    def _signing(self, about: str, state: State) -> Iterator[Finding]:
        """Look whether the keys are there that sign the next head."""
        try:
            next_signers(self.reader.ledgers, self.vault, state)
        except StoreError as error:
            yield wrong(about, str(error), "Until then nothing of it is signed.")

    def _age(self, about: str, state: State) -> Iterator[Finding]:
        """Look how long events have waited to be signed and published."""
        if state.custody.stopped is not None:
            text = (
                f"a witness contradicted it at event {state.custody.stopped}: nothing is published"
            )
            do = "Compare with the witness's copy, then `accountant resume-publication`."
            yield wrong(about, text, do)
            return
        try:
            [size] = [k.size for k in self.vault.known(self.name) if "published" in k.whose] or [0]
            at = self.vault.kept_at(self.name, "published")
        except StoreError as error:
            yield wrong(about, str(error), "Put the vault back.")
            return
        behind, late = (
            state.sequence - size,
            max(_LEAST_LATE, _LATE * self.chosen.checkpoint_seconds),
        )
        age = time.time() - (state.time / 1e6 if at is None else at)
        if behind and age > late:
            since = "no head was ever published" if at is None else f"the last was {age:.0f} s ago"
            do = "Start the service; if it runs, its log says why beside `publication failed`."
            events = "1 event is" if behind == 1 else f"{behind} events are"
            yield look(about, f"{events} not published, and {since}", do)


def _reached(about: str, witness: Witness) -> Finding:
    """Ask a witness for its page: any answer will do, for it shows that it is there."""
    import httpx2  # noqa: PLC0415 it takes long to load

    name = witness.verifier.name
    try:
        secure = witness.url.lower().startswith("https:")
        httpx2.get(witness.url, timeout=TIMEOUT, verify=secure, follow_redirects=False)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        text = f"witness {name} at {witness.url} cannot be reached: {error}"
        do = "Heads are published without it only if the policy requires fewer witnesses."
        return look(about, text, do)
    return fine(about, f"witness {name} answers")
