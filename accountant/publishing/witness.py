"""Asking a witness to cosign a checkpoint (C2SP tlog-witness v1.0.0)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final

from accountant.budget.policy import Witness
from accountant.ledger import notes
from accountant.ledger.notes import BadNote

if TYPE_CHECKING:  # imported late, for it takes long to load, and many have no witness
    import httpx2

TIMEOUT: Final = 10.0  # Seconds for a whole answer, and for each step of the exchange
MAX_ANSWER: Final = 10_000
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_PLAIN: Final = {"Accept-Encoding": "identity"}


class Unanswered(Exception):
    """The witness cannot be reached, or gives no usable answer; it is asked again later."""


class Contradiction(Exception):
    """The witness knows another history (409: another size; 422: another root)."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"it answers {status}: {detail}")
        self.status = status
        self.detail = detail

    @property
    def size(self) -> int | None:
        """The size that the witness knows, if it says one."""
        text = self.detail.strip()
        return int(text) if _SIZE.fullmatch(text) else None


def connected() -> AbstractContextManager[httpx2.Client]:
    """Return the HTTP client for witnesses."""
    import httpx2  # noqa: PLC0415

    return httpx2.Client(timeout=TIMEOUT, follow_redirects=False)


def ask(
    client: httpx2.Client, witness: Witness, old: int, proof: Sequence[bytes], note: bytes
) -> str:
    """Return the cosignature line for ``note``. Raises Contradiction or Unanswered."""
    import httpx2  # noqa: PLC0415

    hashes = "".join(base64.b64encode(step).decode() + "\n" for step in proof)
    body = f"old {old}\n{hashes}\n".encode() + note
    try:
        status, text = _post(client, f"{witness.url.rstrip('/')}/add-checkpoint", body)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise Unanswered(f"{type(error).__name__}: {error}") from error
    if status in (409, 422):
        raise Contradiction(status, text[:500])
    if status != 200:
        raise Unanswered(f"it answers {status}: {text[:200]}")
    return _line(witness, text, notes.parse(note).text)


def _post(client: httpx2.Client, url: str, body: bytes) -> tuple[int, str]:
    """Return status and text of an answer. Raises ValueError if it is too long or too slow."""
    end, data = time.monotonic() + TIMEOUT, b""
    with client.stream("POST", url, content=body, headers=_PLAIN) as answer:
        for chunk in answer.iter_raw():
            data += chunk
            if len(data) > MAX_ANSWER or time.monotonic() > end:
                raise ValueError("its answer takes no end")
    return answer.status_code, data.decode()


def _line(witness: Witness, answer: str, text: bytes) -> str:
    key = witness.verifier
    for line in answer.splitlines():
        with suppress(BadNote):
            signature = notes.signature(line)
            if (signature.name, signature.id) == (key.name, key.id):
                if key.holds(text, signature.blob):
                    return line + "\n"
                raise Unanswered("its cosignature does not hold")
    raise Unanswered("it sends no cosignature of its key")
