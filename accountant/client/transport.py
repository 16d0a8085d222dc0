"""Requests with bounded retries. A retry sends the very same bytes under the very same key."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from accountant.client.errors import Failed, Refused, Unreachable

TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
"""The service, or a proxy before it, asks for patience."""

LONGEST_WAIT: Final = 30.0
"""Seconds that one Retry-After may cost."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful answer."""

    body: Any
    repeated: bool
    """The service had answered this very request before."""


class Transport:
    """One service and one key. Not for use from several threads at once."""

    def __init__(
        self, url: str, key: str, *, timeout: float, attempts: int, backoff: float
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the service's address begins with http:// or https://, not {url!r}")
        self._attempts = attempts
        self._backoff = backoff
        self._http = httpx2.Client(
            base_url=url,
            timeout=timeout,
            headers={"Authorization": f"Bearer {key}", "Accept": "application/json"},
        )

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """The JSON document at ``path``."""
        return self._send("GET", path, None, {}, query).body

    def fetch(self, path: str) -> bytes:
        """The bytes at ``path``."""
        response = self._answered("GET", path, None, {})
        if not response.is_success:
            _read(response)  # raises
        return response.content

    def put(
        self, path: str, content: bytes, media: str, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Puts a document; putting it again changes nothing."""
        return self._send("PUT", path, content, {"Content-Type": media, **(headers or {})}).body

    def post(self, path: str, body: Mapping[str, Any], key: str | None = None) -> Reply:
        """Posts ``body`` under ``key``, or under a fresh one: one key is one logical request."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or str(uuid.uuid4())}
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        return self._send("POST", path, content, headers)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: dict[str, str],
        query: Mapping[str, str | int] | None = None,
    ) -> Reply:
        return _read(self._answered(method, path, content, headers, query))

    def _answered(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: dict[str, str],
        query: Mapping[str, str | int] | None = None,
    ) -> httpx2.Response:
        reason = ""
        for attempt in range(self._attempts):
            last = attempt == self._attempts - 1
            try:
                response = self._http.request(
                    method, path, content=content, headers=headers, params=query
                )
            except httpx2.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
                if not last:
                    time.sleep(self._pause(attempt))
                continue
            if response.status_code not in TRY_AGAIN:
                return response
            reason = f"{response.status_code}: {response.text[:200]}"
            if not last:
                time.sleep(retry_after(response.headers.get("Retry-After"), self._pause(attempt)))
        raise Unreachable(
            str(self._http.base_url), self._attempts, reason, headers.get("Idempotency-Key")
        )

    def _pause(self, attempt: int) -> float:
        """Doubles each time; the random part keeps many pipelines from returning together."""
        return float(self._backoff * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311


class Connected:
    """A door to one population; as a context manager it closes its connections."""

    def __init__(self, population: str, transport: Transport) -> None:
        self._at = f"/v1/populations/{population}"
        self._transport = transport

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def retry_after(header: str | None, otherwise: float) -> float:
    """Seconds to wait: what a Retry-After header asks for, within bounds, else ``otherwise``."""
    if header is None:
        return otherwise
    try:
        asked = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return otherwise
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        asked = (moment - datetime.now(UTC)).total_seconds()
    return min(max(asked, 0.0), LONGEST_WAIT) if asked == asked else otherwise  # noqa: PLR0124


def _read(response: httpx2.Response) -> Reply:
    try:
        body = response.json()
    except ValueError:  # a proxy's error page, perhaps
        body = None
    if response.is_success:
        if body is None:
            raise Failed(response.status_code, {"type": "not-json", "detail": "no JSON came back"})
        return Reply(body, response.headers.get("Idempotent-Replay") == "true")
    problem = body if isinstance(body, dict) else {"detail": response.text[:200]}
    if response.status_code == 403 and "decision" in problem:
        raise Refused(problem)
    raise Failed(response.status_code, problem)
