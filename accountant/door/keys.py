"""Keys are checked before a body is read, and wrong keys counted for each address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import Final

import structlog

from accountant.auth.keys import Credentials, key_digest

_MOST_ADDRESSES: Final = 10_000
_SELDOM: Final = 1.0  # Seconds between two lookups for addresses that have guessed too often
NO_KEY: Final = "send an API key: {}: Bearer <key>; `accountant keys create` makes one"
"""The problem of a request without a key in the header ``{}``."""
_log = structlog.get_logger()


def wrong_key(keys: Credentials, digest: str, header: str) -> str:
    """Return the problem of a key that is not valid, which stands in a header."""
    return keys.why_not(digest, f"the key in {header}")


def secret_of(authorization: str) -> str:
    """Return the key in a header, empty if that holds none."""
    scheme, _, secret = authorization.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


class KeyCheck:
    """Looks up keys before the body of a request is read."""

    def __init__(self, keys: Credentials) -> None:
        self._keys = keys
        self._thread = ThreadPoolExecutor(1, "door-keys")
        self._reading: asyncio.Future[None] | None = None
        self._read = 0.0

    def expired(self, authorization: str) -> bool:
        """Return whether the key has expired: whoever has it does not guess."""
        secret = secret_of(authorization)
        return bool(secret) and self._keys.expired(key_digest(secret)) is not None

    def why_not(self, authorization: str) -> str:
        """Return why the key is not valid, without reading the database."""
        return wrong_key(self._keys, key_digest(secret_of(authorization)), "Authorization")

    def known(self, authorization: str) -> bool:
        """Return whether this process knows the key, without reading the database."""
        secret = secret_of(authorization)
        return bool(secret) and self._keys.remembered(key_digest(secret)) is not None

    async def valid(self, authorization: str, *, limited: bool) -> bool | None:
        """Return whether the key is valid by what is stored; None if the database cannot be read.
        Requests that ask during a lookup share the next one. For ``limited`` addresses at most one
        lookup a second begins.
        """
        if limited and (self._reading or time.monotonic() <= self._read + _SELDOM):
            return self.known(authorization)
        try:
            if self._reading is not None:
                await asyncio.wait([self._reading])  # it may have begun too early for this key
            if self._reading is None:
                loop = asyncio.get_running_loop()
                self._reading = loop.run_in_executor(self._thread, self._keys.refresh)
                self._reading.add_done_callback(self._done)
            await asyncio.shield(self._reading)
        except Exception as error:  # noqa: BLE001 the client may try again
            _log.error("the keys cannot be read", reason=str(error))
            return None
        return self.known(authorization)

    def _done(self, done: asyncio.Future[None]) -> None:
        self._reading, self._read = None, time.monotonic()
        if not done.cancelled():
            done.exception()  # those that wait have it

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)


class Attempts:
    """Counts wrong keys of each address, or IPv6 network of 64 bits, within a span of time."""

    def __init__(
        self, most: int = 10, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._seen: dict[str, tuple[int, float]] = {}

    def wrong(self, address: str) -> None:
        """Count a wrong key."""
        name, now = _network(address), self._clock()
        count, since = self._seen.pop(name, (0, now))
        if now > since + self._seconds:
            count, since = 0, now
        if len(self._seen) >= _MOST_ADDRESSES:
            del self._seen[next(iter(self._seen))]  # quiet for longest
        self._seen[name] = count + 1, since

    def wait(self, address: str) -> int:
        """Return for how many seconds wrong keys are refused without a lookup."""
        if not self._seen:
            return 0
        count, since = self._seen.get(_network(address), (0, 0.0))
        left = since + self._seconds - self._clock()
        return ceil(left) if count >= self._most and left > 0 else 0


def _network(address: str) -> str:
    if ":" not in address:
        return address
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return parsed.exploded[:19]
    return address
