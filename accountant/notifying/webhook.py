"""One message to one address, signed as Standard Webhooks says (standardwebhooks.com, v1).

The receiver checks HMAC-SHA256 over ``id.timestamp.body``, and that the time is near its own. A
message that is sent again has the same id.
"""

from __future__ import annotations

import hmac
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from threading import Timer
from typing import Final, NamedTuple

_STEP: Final = 3.0
"""Seconds for each step of an exchange."""
_WHOLE: Final = 8.0
"""Seconds for all of it."""
_MOST: Final = 65_536
"""Bytes of an answer, none of which is used."""
_SECRET: Final = re.compile(r"whsec_([A-Za-z0-9+/]+={0,2})")
_LEAST_SECRET, _MOST_SECRET = 24, 64


class Undelivered(Exception):
    """The message did not arrive, or was not taken. ``for_good``: the receiver wants no more."""

    def __init__(self, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


class Message(NamedTuple):
    """A message: its id, the same for each attempt, its body, and of which media type that is."""

    id: str
    body: bytes
    kind: str = "application/json"


def secret_of(text: str) -> bytes:
    """Return the key that a secret spells: ``whsec_`` and 24 to 64 bytes in base64. Raise
    ValueError, which does not show it.
    """
    found = _SECRET.fullmatch(text)
    try:
        key = b64decode(found[1], validate=True) if found else b""
    except ValueError:
        key = b""
    if not _LEAST_SECRET <= len(key) <= _MOST_SECRET:
        raise ValueError("a secret is whsec_ and 24 to 64 bytes in base64")
    return key


def signed(message: Message, secret: bytes, now: int) -> dict[str, str]:
    """Return the header fields of a message that is sent at ``now``, in seconds."""
    content = b".".join([message.id.encode(), str(now).encode(), message.body])
    digest = hmac.new(secret, content, sha256).digest()
    return {
        "content-type": message.kind,
        "webhook-id": message.id,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{b64encode(digest).decode()}",
    }


def post(url: str, message: Message, secret: bytes, now: int) -> None:
    """Send a signed message once. Raise Undelivered."""
    deliver(url, message.body, signed(message, secret, now))


def deliver(url: str, body: bytes, fields: dict[str, str]) -> None:
    """Send a body once, with header fields: no redirect is followed, and the answer is not looked
    at but for its status. Raise Undelivered, which does not show the address.
    """
    import httpx2  # noqa: PLC0415 it takes long to load, and many services send nothing

    tls = url.lower().startswith("https:")  # without it its certificates need not be read
    end, size = time.monotonic() + _WHOLE, 0
    try:
        with (
            httpx2.Client(timeout=_STEP, follow_redirects=False, verify=tls) as client,
            _closed_in_time(client.close),
            client.stream("POST", url, content=body, headers=fields) as answer,
        ):
            for chunk in answer.iter_raw():
                size += len(chunk)
                if size > _MOST or time.monotonic() > end:
                    break
        status = answer.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".replace(url, "the address")
        raise Undelivered(reason) from None
    if not 200 <= status < 300:
        raise Undelivered(f"it answers {status}", for_good=status == 410)


@contextmanager
def _closed_in_time(close: Callable[[], None]) -> Iterator[None]:
    """Close what is still open after the time for all of it: an answer that comes a byte at a time
    has no slow step.
    """
    timer = Timer(_WHOLE, close)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
