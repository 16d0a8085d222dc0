"""Asking a witness to cosign a checkpoint (C2SP tlog-witness v1.0.0)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from accountant.budget.policy import Witness
from accountant.ledger import notes
from accountant.ledger.notes import BadNote

TIMEOUT: Final = 10.0  # Seconds for a whole answer, and for each step of the exchange
MAX_ANSWER: Final = 10_000
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,17}")


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


def ask(witness: Witness, old: int, proof: Sequence[bytes], note: bytes) -> str:
    """Return the cosignature line for ``note``. Raises Contradiction or Unanswered."""
    import httpx2  # noqa: PLC0415 it takes long to load, and many have no witness

    hashes = "".join(base64.b64encode(step).decode() + "\n" for step in proof)
    body = f"old {old}\n{hashes}\n".encode() + note
    url, headers = f"{witness.url.rstrip('/')}/add-checkpoint", {"Accept-Encoding": "identity"}
    tls = url.lower().startswith("https:")  # without it its certificates need not be read
    end, data = time.monotonic() + TIMEOUT, b""
    try:
        with (
            httpx2.Client(timeout=TIMEOUT, follow_redirects=False, verify=tls) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            for chunk in answer.iter_raw():
                data += chunk
                if len(data) > MAX_ANSWER or time.monotonic() > end:
                    raise ValueError("its answer is too long or too slow")
        status, text = answer.status_code, data.decode()
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise Unanswered(f"{type(error).__name__}: {error}") from error
    if status in (409, 422):
        raise Contradiction(status, text[:500])
    if status != 200:
        raise Unanswered(f"it answers {status}: {text[:200]}")
    return _line(witness, text, notes.parse(note).text)


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
