"""Calls to the service, and how often one is tried.

A ``Call`` is a request and the function that reads its answer. The clients differ only in how they
send it, one blocking, one awaiting. A retry sends the same bytes under the same idempotency key.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from accountant.client.errors import Body, Failed, Refused, Unreachable
from accountant.client.files import Whole

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
TRY_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})  # Retry later
LONGEST_WAIT: Final = 30.0  # The most seconds to wait for one Retry-After
_SHOWN: Final = 200  # Characters of an answer that an error quotes
_KEY: Final = re.compile(r"[!-~]{1,1000}")
_IDEMPOTENCY_KEY: Final = re.compile(r"[!-~]{1,200}")
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})
_ADDRESS: Final = re.compile(r"[!-~]+://[^@?#\s]+")
_POPULATION: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request below a population's address, and ``read``, which makes a value of its answer. A
    good answer's body goes ``into`` a file, if there is one. ``patience``: the least seconds that
    an answer may take to begin, where it is much work. ``of_keys``: it is no population's, but
    about API keys.
    """

    method: str
    path: str
    read: Callable[[httpx2.Response], T]
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | int] = field(default_factory=dict)
    into: Whole | None = None
    patience: float = 0.0
    of_keys: bool = False

    @property
    def key(self) -> str | None:
        """The idempotency key, if it can spend."""
        return self.headers.get("Idempotency-Key")


def get(path: str, read: Callable[[Body], T], **query: str | int | None) -> Call[T]:
    """Return a call that reads a JSON document."""
    return Call("GET", path, lambda r: read(document(r)), query=present(query))


def fetch(path: str, *, patience: float = 0.0, **query: str | int | None) -> Call[bytes]:
    """Return a call that reads a document that need not be JSON."""

    def read(response: httpx2.Response) -> bytes:
        if not response.is_success:
            document(response)
        return response.content

    return Call("GET", path, read, query=present(query), patience=patience)


def post(
    path: str,
    read: Callable[[httpx2.Response], T],
    body: Mapping[str, Any],
    *,
    idempotency_key: str | None = None,
) -> Call[T]:
    """Return a call that can spend, under the idempotency key, by default a fresh one. Raise
    ValueError for a key that no service takes.
    """
    headers = {"Content-Type": "application/json"}
    key = os.urandom(16).hex() if idempotency_key is None else checked_name(idempotency_key)
    headers["Idempotency-Key"] = key
    content = json.dumps(present(body), ensure_ascii=False, allow_nan=False).encode()
    return Call("POST", path, read, content, headers)


def put(path: str, content: bytes, media: str) -> Call[Body]:
    """Return a call that registers something."""
    return Call("PUT", path, document, content, {"Content-Type": media})


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def checked_key(key: str) -> str:
    """Return a key without the spaces and line ends around it. Raise ValueError, which does not
    show it, for one that cannot be sent.
    """
    found = key.strip()
    if not _KEY.fullmatch(found):
        raise ValueError(
            "the key is empty or has characters that no key has (a space or line end inside it?)"
        )
    return found


def checked_address(url: str) -> str:
    """Return a service's address without what surrounds it. Raise ValueError, which does not show
    it, for one that cannot be called, or may hold a secret: errors show addresses.
    """
    found = url.strip().rstrip("/")
    try:
        place = urlsplit(found)
        fine = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:  # of a port, or brackets
        fine = False
    if not fine or not _ADDRESS.fullmatch(found):
        raise ValueError(
            "the service's address must be http:// or https:// and a host, without a user, a query "
            "or spaces"
        )
    return found


def checked_name(key: str) -> str:
    """Return an idempotency key. Raise ValueError, which does not show it: an empty one would be
    another at each try, and one that cannot be sent would wait in a spool for ever.
    """
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise ValueError("an idempotency key has 1 to 200 visible ASCII characters and no space")
    return key


def document(response: httpx2.Response) -> Body:
    """Return a successful answer. Raise Refused or Failed for any other."""
    text = "" if response.is_success else without_keys(response)
    try:  # of a good answer as bytes: its text would take longer than to read it
        body = json.loads(response.content if response.is_success else text)
    except ValueError:  # perhaps a proxy's error page
        body = None
    if response.is_success and isinstance(body, dict):
        return body
    problem = body if isinstance(body, dict) else {"detail": text[:_SHOWN]}
    if response.is_redirect:  # and not followed: the key would go along
        place = response.headers.get("Location", "")[:_SHOWN]
        problem = {
            "detail": f"the service's address redirects to {place}: use the one that answers"
        }
    if response.is_success:
        problem = {"type": "not-json", "detail": "no JSON object came back"}
    if response.status_code == 403 and "decision" in problem:
        raise Refused(problem)
    raise Failed(response.status_code, problem)


def booked(response: httpx2.Response) -> Body:
    """Return the answer to a report. Raise Failed for a good answer that is not the service's."""
    body = document(response)
    if not body.keys() & {"sequence", "state"}:
        detail = "the answer does not say what was booked"
        raise Failed(response.status_code, {"type": "not-json", "detail": detail})
    return body


def without_keys(response: httpx2.Response) -> str:
    """Return what an answer says. A proxy's error page may show the request, which has keys."""
    secret = response.request.headers.get("Authorization", "").removeprefix("Bearer ")
    return response.text.replace(secret, "(the key)") if secret else response.text


def repeated(response: httpx2.Response) -> bool:
    """Return true if the service had answered the same request before."""
    return bool(response.headers.get("Idempotent-Replay") == "true")


class Connection:
    """Where the service is, what it is asked about, and how patiently. Shows no key."""

    def __init__(
        self,
        url: str,
        key: str,
        population: str,
        *,
        timeout: float = 10.0,
        attempts: int = 5,
        backoff: float = 0.25,
        transport: Any = None,
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        address = checked_address(url)
        if not _POPULATION.fullmatch(population):
            raise ValueError(f"{population!r} is not the name of a population")
        self.url, self.population = address, population
        self._timeout = timeout
        self._attempts, self._backoff = attempts, backoff
        self._options: dict[str, Any] = {
            "timeout": timeout,
            "verify": address.startswith("https:"),  # without TLS its certificates need not be read
            "headers": {
                "Authorization": f"Bearer {checked_key(key)}",
                "Accept": "application/json",
            },
        }
        if transport is not None:  # of httpx2, for instance inside a test
            self._options["transport"] = transport

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.population} at {self.url}>"

    def _pause(self, attempt: int) -> float:
        """Return the seconds before the next attempt. They double each time; the random part
        spreads the retries of many pipelines.
        """
        return float(self._backoff * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311

    def _after(self, response: httpx2.Response, attempt: int) -> tuple[float, str] | None:
        """Return None for an answer; else the seconds to wait, and why."""
        if response.status_code not in TRY_AGAIN:
            return None
        pause = retry_after(response.headers.get("Retry-After"), self._pause(attempt))
        return pause, f"{response.status_code}: {without_keys(response)[:_SHOWN]}"

    def _gave_up(self, attempts: int, reason: str, call: Call[Any]) -> Unreachable:
        return Unreachable(self.url, attempts, reason, call.key)

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        """Return the arguments of the HTTP library."""
        about = "keys" if call.of_keys else f"populations/{self.population}"
        place = f"{self.url}/v1/{about}{call.path}"  # whole, so that it is parsed once
        found: dict[str, Any] = {"method": call.method, "url": place, "headers": call.headers}
        if call.query:  # even an empty one would replace that of the path
            found["params"] = call.query
        if call.patience > self._timeout:
            found["timeout"] = (self._timeout, call.patience, self._timeout, self._timeout)
        return found | {"content": call.content}


def hopeless(error: Exception) -> bool:
    """Return true for an error that the same request will always get: one that cannot be sent, a
    certificate that is not trusted, TLS where the other side speaks none.
    """
    import ssl  # noqa: PLC0415 (as httpx2)

    import httpx2  # noqa: PLC0415 (half of the time to load, needed only where something is sent)

    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def retry_after(header: str | None, otherwise: float) -> float:
    """Return the seconds that a Retry-After header asks for; ``otherwise`` if unreadable."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 (seldom needed)

    try:
        asked = float(header or "nan")
    except ValueError:
        try:
            moment = parsedate_to_datetime(header or "")
        except ValueError:
            return otherwise
        asked = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return otherwise if math.isnan(asked) else min(max(asked, 0.0), LONGEST_WAIT)


def in_words(error: Exception) -> str:
    """Return an error of the connection, without anything that was sent."""
    import httpx2  # noqa: PLC0415

    if isinstance(error, httpx2.LocalProtocolError):  # its text may quote a header
        return f"{type(error).__name__}: the request cannot be sent"
    return f"{type(error).__name__}: {error}"
