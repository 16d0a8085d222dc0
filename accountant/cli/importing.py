"""import: past invocations from a file of any length, restarted where it stopped.

The idempotency key of a line is a digest of the import's name, the line and all lines before it. So
equal lines both count, a file can be imported again, and one that was changed in the middle is
recorded anew from there on, for what is new in it cannot be told. The ledger remembers the keys:
it alone decides what is recorded already. The progress file beside a file only saves the way
there.
"""

from __future__ import annotations

import fcntl
import json as json_
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer
from pydantic import ValidationError
from rich.progress import Progress, TaskID

from accountant.api.strict_json import parse
from accountant.budget.commands import Envelope, RecordInvocations
from accountant.budget.decide import decide
from accountant.budget.errors import Conflict, Invalid, Problem
from accountant.budget.malformed import in_one_line, reasons
from accountant.budget.request import prepare
from accountant.budget.state import State
from accountant.cli.common import (
    SHOWN,
    JsonOption,
    PopulationOption,
    app,
    local_service,
    out,
    print_json,
)
from accountant.cli.progress import progress
from accountant.reporting.files import write_whole
from accountant.runtime.service import Answer, Service
from accountant.store.ledgers import Moved

BATCH: Final = 500
"""Lines in one commit."""
LONGEST: Final = 1_000_000
"""Bytes of a line."""
_SURE: Final = 2_048
"""Bytes of a command whose event is far from too large; a longer one is written out to see."""
_ATTEMPTS: Final = 5


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="JSON lines, one invocation each; - reads stdin")],
    population: PopulationOption,
    client: Annotated[str, typer.Option(help="whose invocations these were")] = "import",
    batch: Annotated[
        str | None, typer.Option(help="the name of this import; default: the file's name")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Record past invocations from a file of JSON lines (bodies as for POST …/invocations).

    Everything is checked first; one bad line and nothing is recorded. Importing a file again under
    the same batch and client, or after lines were added at its end, records only what is new; so
    does starting it again after it was stopped in the middle, whatever stopped it. A line says when
    it ran ("ran_at"), or the batch is named: else two days' equal lines would be taken for one.
    """
    if batch is None and file == "-":
        raise Invalid("unnamed-import", "name what comes from standard input with --batch")
    with local_service(context) as service, _opened(file) as lines, progress() as bars:
        beside = None if file == "-" else Path(file + ".progress")
        run = Import(service, population, client, batch is not None, batch or Path(file).name)
        counts = run.run(lines, beside, bars)
    if json:
        print_json(counts)
    else:
        out.print(
            f"{counts['recorded']} recorded ({counts['overruns']} of them over budget), "
            f"{counts['already_there']} were there already",
            highlight=False,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """After a line: how many lines were not blank, where the next one begins, and the line's key.

    ``before`` is SHA-256 of all bytes up to there.
    """

    number: int
    lines: int
    offset: int
    key: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank, as it is to be asked for."""

    asked: Envelope
    place: Place


class Import:
    """One import into one population."""

    def __init__(
        self, service: Service, population: str, client: str, named: bool, name: str
    ) -> None:
        self._service, self._population, self._client = service, population, client
        self._named = named
        self._start = Place(0, 0, 0, sha256(name.encode()).hexdigest())

    def run(self, file: IO[bytes], beside: Path | None, bars: Progress) -> dict[str, int]:
        """Checks all lines, then records those that are not there yet."""
        checking = bars.add_task("checking", total=os.fstat(file.fileno()).st_size)
        start, total = self._check(file, self._remembered(file, beside), bars, checking)
        bars.remove_task(checking)
        counts = Counter(recorded=0, already_there=start.lines, overruns=0)
        recording = bars.add_task("recording", total=total, completed=start.lines)
        for part in self._parts(file, start):
            for answer in self._record([line.asked for line in part]):
                counts["already_there" if answer.repeated else "recorded"] += 1
                overrun = b'"overrun":true' in answer.entries[0].body
                counts["overruns"] += overrun and not answer.repeated
            bars.advance(recording, len(part))
            self._remember(beside, part[-1].place)
        if beside is not None:
            beside.unlink(missing_ok=True)
        return dict(counts)

    def _check(
        self, file: IO[bytes], start: Place, bars: Progress, task: TaskID
    ) -> tuple[Place, int]:
        """The last line that is recorded already, and how many lines there are. Raises Invalid,
        naming the bad lines, if any would be refused.
        """
        wrong: list[str] = []
        bad, last, recorded = 0, start, start
        with self._service.state(self._population) as state:
            for found in self._lines(file, start, wrong):
                if isinstance(found, Line):
                    last = found.place
                    if self._known(state, found.place.key):
                        recorded = found.place
                    elif (reason := _refused(state, found.asked)) is not None:
                        wrong.append(f"line {last.number}: {reason}")
                if len(wrong) > SHOWN:
                    bad += len(wrong) - SHOWN
                    del wrong[SHOWN:]
                bars.update(task, completed=file.tell())
        if wrong:
            more = f"\nand {bad} more" if bad else ""
            raise Invalid("invalid-request", "nothing is recorded:\n" + "\n".join(wrong) + more)
        return recorded, last.lines

    def _lines(
        self, file: IO[bytes], start: Place, wrong: list[str] | None = None
    ) -> Iterator[Line | None]:
        """The lines after ``start``; None for one that is ``wrong``. Without that list a bad line,
        which can only have come into the file since it was checked, raises Invalid.
        """
        number, lines, key = start.number, start.lines, bytes.fromhex(start.key)
        before = _digest_to(file, start.offset)
        while data := file.readline(LONGEST + 1):
            number += 1
            before.update(data)
            if not data.strip():
                continue
            try:
                if len(data) > LONGEST:
                    raise Invalid("line-too-long", f"it has more than {LONGEST} bytes")
                command = self._command(data)
            except Problem as problem:
                reason = problem.detail
            except ValidationError as error:
                reason = in_one_line(reasons(error), "the line")
            except ValueError as error:
                reason = str(error)
            else:
                lines += 1
                key = sha256(key + Envelope(self._client, command).canonical).digest()
                asked = Envelope(self._client, command, f"import:{key.hex()}")
                offset = file.tell()
                yield Line(asked, Place(number, lines, offset, key.hex(), before.hexdigest()))
                continue
            if wrong is None:
                raise Invalid("invalid-request", f"line {number}: {reason}")
            wrong.append(f"line {number}: {reason}")
            while not data.endswith(b"\n") and (data := file.readline(LONGEST)):
                before.update(data)  # the rest of a line that is too long
            yield None

    def _command(self, data: bytes) -> RecordInvocations:
        command = RecordInvocations.model_validate(parse(data))
        if command.ran_at is None and not self._named:
            raise Invalid(
                "undated-import", "it has no ran_at: add it, or name the import with --batch"
            )
        return command

    def _parts(self, file: IO[bytes], start: Place) -> Iterator[list[Line]]:
        lines = self._lines(file, start)
        while part := [line for line in islice(lines, BATCH) if line is not None]:
            yield part

    def _record(self, part: list[Envelope]) -> list[Answer]:
        """Records lines with one commit, all or nothing."""
        for _ in range(_ATTEMPTS):
            with suppress(Moved):  # another process was first: decide again, from what it wrote
                return self._service.execute_all(self._population, part)
        raise Conflict("storage-failed", "others write to this ledger all the time; start it again")

    # -- the progress file ------------------------------------------------------------------

    def _known(self, state: State, key: str) -> bool:
        return state.idempotency.get(self._client, f"import:{key}") is not None

    def _remembered(self, file: IO[bytes], beside: Path | None) -> Place:
        """Where an earlier run stopped, if the file begins as it did and the ledger knows the last
        line; else the beginning.
        """
        try:
            document = json_.loads(beside.read_text()) if beside else {}
            place = Place(**{k: v for k, v in document.items() if k != "check"})
        except (AttributeError, OSError, TypeError, ValueError):
            return self._start
        if document.get("check") != self._checked(place):
            return self._start
        if _digest_to(file, place.offset).hexdigest() != place.before:
            return self._start
        with self._service.state(self._population) as state:
            return place if self._known(state, place.key) else self._start

    def _remember(self, beside: Path | None, place: Place) -> None:
        if beside is not None:
            text = json_.dumps(asdict(place) | {"check": self._checked(place)}, indent=1)
            with suppress(OSError):  # where nothing can be put, a restart looks from the beginning
                write_whole(beside, text + "\n")

    def _checked(self, place: Place) -> str:
        """Binds a place to this import: of another name, client or population it is none."""
        bound = [asdict(place), self._start.key, self._client, self._population]
        return sha256(json_.dumps(bound, sort_keys=True).encode()).hexdigest()


def _refused(state: State, asked: Envelope) -> str | None:
    """Why a line would be refused."""
    assert isinstance(asked.command, RecordInvocations)  # noqa: S101 for the type checker
    try:
        if len(asked.canonical) <= _SURE:
            prepare(state, asked.by, asked.command, state.time)
            return None
        decide(state, asked, state.time)
    except Problem as problem:
        return problem.detail
    except ValueError as error:
        return str(error)
    return None


def _digest_to(file: IO[bytes], offset: int) -> Any:
    """SHA-256 of the file up to ``offset``, to be continued."""
    digest = sha256()
    file.seek(0)
    while offset > 0 and (data := file.read(min(offset, 1 << 20))):
        digest.update(data)
        offset -= len(data)
    return digest


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """The file, or what comes from standard input, which is put aside to be read twice. Raises
    Conflict if another import reads it now.
    """
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
