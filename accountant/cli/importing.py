"""import: past invocations from a file of any length, resumed where it was stopped.

The idempotency key of a line is a digest of the import's name, the line and all lines before it. So
equal lines are both counted, and a changed file is recorded again from the first change on. The
ledger decides what is already recorded; the progress file only saves reading from the start.
"""

from __future__ import annotations

import fcntl
import json as json_
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, Final, NamedTuple

import typer
from pydantic import ValidationError
from rich.progress import Progress

from accountant.api.strict_json import parse
from accountant.budget.commands import Envelope, RecordInvocations
from accountant.budget.decide import decide
from accountant.budget.errors import Conflict, Invalid, Problem
from accountant.budget.malformed import in_one_line, reasons
from accountant.budget.request import prepare
from accountant.budget.state import State
from accountant.cli import common
from accountant.cli.progress import progress
from accountant.reporting.files import write_whole
from accountant.runtime.service import Answer, Service
from accountant.store.ledgers import Moved

BATCH: Final = 500
"""Lines in one commit."""
LONGEST: Final = 1_000_000
"""The most bytes of a line."""
_SURE: Final = 2_048
"""Bytes of a command whose event is surely small enough; a larger one is decided as a test."""
_ATTEMPTS: Final = 5


@common.app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="JSON lines, one invocation each; - reads stdin")],
    population: common.PopulationOption,
    client: Annotated[str, typer.Option(help="the client that ran the invocations")] = "import",
    batch: Annotated[
        str | None, typer.Option(help="name of this import; default: the file's name")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Record past invocations from a file of JSON lines (bodies as for POST …/invocations).

    All lines are checked first; if one is bad, nothing is recorded. Importing a file again under
    the same batch and client records only lines that were added at its end. An import that was
    interrupted continues where it stopped. Each line needs "ran_at", or the import needs --batch:
    otherwise equal lines of two days could not be told apart.
    """
    if batch is None and file == "-":
        raise Invalid("unnamed-import", "standard input needs a name: give one with --batch")
    with common.local_service() as service, _opened(file) as lines, progress() as bars:
        beside = None if file == "-" else Path(file + ".progress")
        run = Import(service, population, client, batch is not None, batch or Path(file).name)
        counts = run.run(lines, beside, bars)
    if json:
        common.print_json(counts)
    else:
        common.show(
            f"{counts['recorded']} recorded ({counts['overruns']} of them over budget), "
            f"{counts['already_there']} already recorded before"
        )


class Place(NamedTuple):
    """The place after a line: the line's number, how many lines up to it were not blank, the offset
    of the next one, the line's key, and SHA-256 of all bytes ``before`` the offset.
    """

    number: int
    lines: int
    offset: int
    key: str
    before: str = ""


class Import:
    """One import into one population."""

    def __init__(
        self, service: Service, population: str, client: str, named: bool, name: str
    ) -> None:
        self._service, self._population, self._client = service, population, client
        self._named = named
        self._start = Place(0, 0, 0, sha256(name.encode()).hexdigest())

    def run(self, file: IO[bytes], beside: Path | None, bars: Progress) -> dict[str, int]:
        """Check all lines, then record those that are not recorded yet. Return the counts."""
        start, total = self._check(file, self._remembered(file, beside), bars)
        counts = Counter(recorded=0, already_there=start.lines, overruns=0)
        recording = bars.add_task("recording", total=total, completed=start.lines)
        lines = self._lines(file, start, _changed)
        while part := list(islice(lines, BATCH)):
            for answer in self._record([asked for asked, _ in part]):
                counts["already_there" if answer.repeated else "recorded"] += 1
                overrun = b'"overrun":true' in answer.entries[0].body
                counts["overruns"] += overrun and not answer.repeated
            bars.advance(recording, len(part))
            self._remember(beside, part[-1][1])
        if beside is not None:
            beside.unlink(missing_ok=True)
        return dict(counts)

    def _check(self, file: IO[bytes], start: Place, bars: Progress) -> tuple[Place, int]:
        """Return the place of the last line that is already recorded, and the number of lines.
        Raise Invalid, naming the bad lines, if any would be refused.
        """
        said, bad = ["nothing is recorded:"], 0
        last = recorded = start
        task = bars.add_task("checking", total=os.fstat(file.fileno()).st_size)

        def refuse(line: str) -> None:
            nonlocal bad
            bad += 1
            if bad <= common.SHOWN:
                said.append(line)

        state = self._service.state(self._population)
        for asked, last in self._lines(file, start, refuse):
            if self._known(state, last.key):
                recorded = last
            elif (reason := _refused(state, asked)) is not None:
                refuse(f"line {last.number}: {reason}")
            bars.update(task, completed=file.tell())
        if bad:
            said += [f"and {bad - common.SHOWN} more"] if bad > common.SHOWN else []
            raise Invalid("invalid-request", "\n".join(said))
        bars.remove_task(task)
        return recorded, last.lines

    def _lines(
        self, file: IO[bytes], start: Place, refuse: Callable[[str], None]
    ) -> Iterator[tuple[Envelope, Place]]:
        """Yield the command of each line after ``start`` that is not blank, and the place after it;
        call ``refuse`` with the reason of each bad one.
        """
        number, lines, key = start.number, start.lines, bytes.fromhex(start.key)
        before = _digest_to(file, start.offset)
        while data := file.readline(LONGEST + 1):
            number += 1
            before.update(data)
            if not data.strip():
                continue
            found = self._command(data)
            if isinstance(found, RecordInvocations):
                lines += 1
                key = sha256(key + Envelope(self._client, found).canonical).digest()
                place = Place(number, lines, file.tell(), key.hex(), before.hexdigest())
                yield Envelope(self._client, found, f"import:{key.hex()}"), place
                continue
            refuse(f"line {number}: {found}")
            while not data.endswith(b"\n") and (data := file.readline(LONGEST)):
                before.update(data)  # the rest of a line that is too long

    def _command(self, data: bytes) -> RecordInvocations | str:
        """Return the command of a line, or why there is none."""
        if len(data) > LONGEST:
            return f"it has more than {LONGEST} bytes"
        try:
            command = RecordInvocations.model_validate(parse(data))
        except ValidationError as error:
            return in_one_line(reasons(error), "the line")
        except (Problem, ValueError) as error:
            return str(error)
        if command.ran_at is None and not self._named:
            return "it has no ran_at: add it, or name the import with --batch"
        return command

    def _record(self, part: list[Envelope]) -> list[Answer]:
        """Record lines in one commit, all or none."""
        for _ in range(_ATTEMPTS):
            with suppress(Moved):  # another process wrote first: decide again from its events
                return self._service.execute_all(self._population, part)
        raise Conflict(
            "storage-failed", "other processes keep writing to this ledger; run the import again"
        )

    # -- the progress file ------------------------------------------------------------------

    def _known(self, state: State, key: str) -> bool:
        return state.idempotency.get(self._client, f"import:{key}") is not None

    def _remembered(self, file: IO[bytes], beside: Path | None) -> Place:
        """Return where an earlier run stopped, if the file is unchanged up to there and the ledger
        knows the last line; otherwise the start.
        """
        try:
            document = json_.loads(beside.read_text()) if beside else {}
            check = document.pop("check")
            place = Place(**document)
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            return self._start
        if (
            check == self._checked(place)
            and _digest_to(file, place.offset).hexdigest() == place.before
            and self._known(self._service.state(self._population), place.key)
        ):
            return place
        return self._start

    def _remember(self, beside: Path | None, place: Place) -> None:
        if beside is not None:
            text = json_.dumps(place._asdict() | {"check": self._checked(place)}, indent=1)
            with suppress(OSError):  # without the file, a restart reads from the start
                write_whole(beside, text + "\n")

    def _checked(self, place: Place) -> str:
        """Return a digest that binds a place to this import's name, client and population."""
        bound = [place._asdict(), self._start.key, self._client, self._population]
        return sha256(json_.dumps(bound, sort_keys=True).encode()).hexdigest()


def _changed(line: str) -> None:
    """Raise Invalid: the line was changed after it was checked."""
    raise Invalid("invalid-request", line)


def _refused(state: State, asked: Envelope) -> str | None:
    """Return why a line would be refused, or None."""
    assert isinstance(asked.command, RecordInvocations)  # noqa: S101 for the type checker
    try:
        if len(asked.canonical) <= _SURE:
            prepare(state, asked.by, asked.command, state.time)
        else:
            decide(state, asked, state.time)
    except (Problem, ValueError) as error:
        return str(error)
    return None


def _digest_to(file: IO[bytes], offset: int) -> Any:
    """Return the SHA-256 object of the file up to ``offset``; the file is left there."""
    digest = sha256()
    file.seek(0)
    while offset > 0 and (data := file.read(min(offset, 1 << 20))):
        digest.update(data)
        offset -= len(data)
    return digest


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """Open the file, or a copy of standard input. Raise Conflict if another import reads it."""
    if file == "-":
        with tempfile.TemporaryFile() as aside:
            shutil.copyfileobj(sys.stdin.buffer, aside)
            aside.flush()
            yield aside
        return
    with Path(file).open("rb") as found:
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict("import-running", f"another import of {file} is running") from None
        yield found
