"""A bundle for a client of the service: written to a file that has no name, and then sent.

The file ends with the last that has it open, however that ends: nothing has to be cleaned up.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Final, NamedTuple

from accountant.budget.errors import Unavailable
from accountant.publishing.export import covering, write_bundle
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.ledgers import Signed

_BREATH: Final = 0.001  # Seconds that writing pauses after each 256 events: others can decide


class Gone(Exception):
    """The client has gone before its bundle was written."""


class Written(NamedTuple):
    """A bundle: a file at its beginning, its bytes, and the checkpoint that it is of."""

    file: IO[bytes]
    size: int
    signed: Signed


def written(
    service: Service,
    publisher: Publisher,
    ledger: str,
    first: int,
    last: int | None,
    *,
    with_texts: bool,
    gone: Callable[[], bool],
) -> Written:
    """Write the ledger as a bundle to an unnamed file in the system's folder for such files
    (TMPDIR), up to a checkpoint signed now. Raise Gone, Invalid, NotFound, Conflict, StoreError,
    and Unavailable if the file cannot be written.
    """

    def breathe(_: int) -> None:
        if gone():
            raise Gone
        time.sleep(_BREATH)

    breathe(0)
    signed, state = publisher.signed_state(ledger)
    source = service.ledgers, ledger, signed, state, covering(first, last, signed.size)
    try:
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile())
            write_bundle(file, *source, with_texts=with_texts, progress=breathe)
            size = file.tell()
            file.seek(0)  # writes what is buffered
            stack.pop_all()
    except OSError as error:
        text = f"the bundle cannot be written on the service's disk: {error.strerror or error}"
        raise Unavailable("evidence-not-written", text) from error
    return Written(file, size, signed)
