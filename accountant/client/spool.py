"""A folder of reports that are kept until the service has them, each delivered exactly once.

A report is written to disk before it is sent, under the idempotency key that it will always have.
So it survives a service that is away and a process that is killed, and however often it is sent, it
is booked once. It holds what was run, and no key.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from accountant.client.errors import AccountantError, Body
from accountant.client.files import sync
from accountant.client.transport import Call, booked, checked_name

_WAITING: Final = ".json"
_REJECTED: Final = ".rejected"
_NAME: Final = "idempotency_key"


class Kept(NamedTuple):
    """A report that waits: where it stands, and the call that delivers it."""

    file: Path
    population: str
    call: Call[Body]


class Delivered(NamedTuple):
    """The outcome of a delivery: how many were sent, the files of those that the service rejected,
    and why it stopped early, if it did.
    """

    sent: int
    rejected: list[Path]
    stopped: AccountantError | None


class Spool:
    """The reports in ``folder``, which is made if it does not exist."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"<Spool {self.folder}>"

    def keep(self, population: str, call: Call[Any]) -> Path:
        """Write a report down. Return its file once it is on disk. Raise OSError."""
        kept = {"population": population, "path": call.path, _NAME: call.key}
        kept["body"] = json.loads(call.content or b"{}")
        name = sha256(str(call.key).encode()).hexdigest()[:16]
        file = self.folder / f"{time.time_ns():020}-{name}{_WAITING}"
        _write(file, _bytes(kept))
        return file

    def forget(self, file: Path) -> None:
        """Remove a report that was delivered."""
        with suppress(FileNotFoundError):  # somebody else delivered it at the same time
            file.unlink()

    def reject(self, file: Path, failure: AccountantError) -> Path:
        """Put aside a report that will never be accepted, with the reason beside it."""
        aside = file.with_suffix(_REJECTED)
        with suppress(FileNotFoundError):
            kept = json.loads(file.read_bytes()) | {"rejected": str(failure)}
            _write(aside, _bytes(kept))
            self.forget(file)
        return aside

    def damaged(self) -> list[Path]:
        """Put aside, as they are, the files that are no reports: they would stop all others."""
        found = []
        for file in self._files():
            try:
                _read(file)
            except FileNotFoundError:
                continue
            except ValueError:
                with suppress(FileNotFoundError):
                    found.append(file.rename(file.with_suffix(_REJECTED)))
        return found

    def waiting(self, population: str | None = None) -> Iterator[Kept]:
        """Yield the reports in the order in which they were written."""
        for file in self._files():
            with suppress(FileNotFoundError, ValueError):
                kept = _read(file)
                if population in (None, kept.population):
                    yield kept

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{_WAITING}"))

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob(f"*{_WAITING}"))


def _bytes(kept: Body) -> bytes:
    return json.dumps(kept, ensure_ascii=False, indent=1).encode()


def _write(file: Path, data: bytes) -> None:
    """Write a file that only its owner reads: whole and on disk, or not at all. Raise OSError."""
    unfinished = file.with_suffix(".unfinished")
    try:
        with unfinished.open("xb") as stream:
            os.chmod(unfinished, 0o600)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(file)
    except OSError:
        with suppress(OSError):  # what is left would keep a full disk full
            unfinished.unlink()
        raise
    sync(file.parent)


def _read(file: Path) -> Kept:
    """Read a report. Raise FileNotFoundError, and ValueError for what is none."""
    kept = json.loads(file.read_bytes())
    try:
        population, path, key = (str(kept[name]) for name in ("population", "path", _NAME))
        content = json.dumps(kept["body"], ensure_ascii=False).encode()
    except (KeyError, TypeError):
        raise ValueError(f"{file} is no report") from None
    headers = {"Content-Type": "application/json", "Idempotency-Key": checked_name(key)}
    return Kept(file, population, Call("POST", path, booked, content, headers))
