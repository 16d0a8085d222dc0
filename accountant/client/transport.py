"""HTTP requests with bounded retries, and the errors that answers become.

A retry sends the same bytes under the same idempotency key.
"""

from __future__ import annotations

import json
import math
import random
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, Self

import httpx2

Body = dict[str, Any]  # A JSON object
TRY_AGAIN: Final = frozenset({429, 502, 503, 504})  # Retry later
LONGEST_WAIT: Final = 30.0  # The most seconds to wait for one Retry-After


class AccountantError(Exception):
    """Base of all errors that the client raises about an answer of the service."""


class _Problem(AccountantError):
    """A problem document: ``code`` and ``detail`` say what is wrong."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.code = str(problem.get("type", "unknown")).removeprefix("urn:accountant:problem:")
        self.detail = str(problem.get("detail", ""))
        self.problem = dict(problem)


class Failed(_Problem):
    """The request was not answered: malformed, not allowed, in conflict, or a fault."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.status = status

    def __str__(self) -> str:
        return f"{self.detail or 'no explanation came'} [{self.status} {self.code}]"


class Refused(_Problem):
    """The service decided against the request. Nothing may run.

    The same idempotency key gets the same refusal again. To ask for less, or with more noise, send
    a new request.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.decision: Body = problem["decision"]
        self.charge: dict[str, str] = dict(problem.get("charge", {}))
        self.would_fit: Body = dict(problem.get("would_fit", {}))
        """What would have fitted: ``count``, ``scale``, ``times`` or ``delta``, if anything."""

    def __str__(self) -> str:
        return f"{self.detail} [{self.code}, decision {self.decision.get('id')}]"

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules that block."""
        fired = (r for r in self.decision["rules"] if r["fired"] and r["action"] == "block")
        return tuple(rule["rule"] for rule in fired)


class Unreachable(AccountantError):
    """No answer came, or only "later", after all retries. The service may or may not have acted.

    Retrying with the same ``idempotency_key`` is safe: it is never charged twice.
    """

    def __init__(self, url: str, attempts: int, reason: str, idempotency_key: str | None) -> None:
        self.idempotency_key = idempotency_key
        super().__init__(f"{url} gave no answer in {attempts} attempts: {reason}")


class Reply(NamedTuple):
    """A successful answer. ``repeated``: the service had answered the same request before."""

    body: Body
    repeated: bool


class Connection:
    """The service about one population; closes as a context manager. Not thread-safe."""

    def __init__(
        self,
        url: str,
        key: str,
        population: str,
        *,
        timeout: float = 10.0,
        attempts: int = 5,
        backoff: float = 0.25,
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the service's address must begin with http:// or https://: {url!r}")
        self._at = f"/v1/populations/{population}"
        self._attempts, self._backoff = attempts, backoff
        self._http = httpx2.Client(
            base_url=url,
            timeout=timeout,
            headers={"Authorization": f"Bearer {key}", "Accept": "application/json"},
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str, **query: str | int | None) -> Body:
        """Return the JSON document at ``path``."""
        return _read(self._answered("GET", path, params=present(query))).body

    def _fetch(self, path: str) -> bytes:
        """Return the bytes at ``path``."""
        response = self._answered("GET", path)
        if not response.is_success:
            _read(response)  # raises
        return response.content

    def _put(self, path: str, content: bytes, media: str, approver_key: str | None = None) -> Body:
        """Put a document. Putting it again changes nothing."""
        headers = {"Content-Type": media} | _approval(approver_key)
        return _read(self._answered("PUT", path, content=content, headers=headers)).body

    def _post(
        self,
        path: str,
        *,
        idempotency_key: str | None = None,
        approver_key: str | None = None,
        **body: Any,
    ) -> Reply:
        """Post ``body`` under the idempotency key, by default a fresh one."""
        key = idempotency_key or str(uuid.uuid4())
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        headers |= _approval(approver_key)
        content = json.dumps(present(body), ensure_ascii=False, allow_nan=False).encode()
        return _read(self._answered("POST", path, content=content, headers=headers))

    def _answered(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """Send a request until it is answered. Raise Unreachable after the last attempt."""
        reason = ""
        for attempt in range(self._attempts):
            # Doubles each time; the random part spreads the retries of many pipelines.
            pause = self._backoff * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311
            try:
                response = self._http.request(method, self._at + path, **request)
            except httpx2.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
            else:
                if response.status_code not in TRY_AGAIN:
                    return response
                reason = f"{response.status_code}: {response.text[:200]}"
                pause = retry_after(response.headers.get("Retry-After"), pause)
            if attempt < self._attempts - 1:
                time.sleep(pause)
        key = request.get("headers", {}).get("Idempotency-Key")
        raise Unreachable(str(self._http.base_url), self._attempts, reason, key)


def present(fields: Mapping[str, Any]) -> Body:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def retry_after(header: str | None, otherwise: float) -> float:
    """Return the seconds that a Retry-After header asks for; ``otherwise`` if unreadable."""
    try:
        asked = float(header or "nan")
    except ValueError:
        try:
            moment = parsedate_to_datetime(header or "")
        except ValueError:
            return otherwise
        asked = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return otherwise if math.isnan(asked) else min(max(asked, 0.0), LONGEST_WAIT)


def _approval(key: str | None) -> dict[str, str]:
    """Return the header by which a second person approves with an own key."""
    return {"Accountant-Approver": f"Bearer {key}"} if key else {}


def _read(response: httpx2.Response) -> Reply:
    """Return a successful answer. Raise Refused or Failed for any other."""
    try:
        body = response.json()
    except ValueError:  # perhaps a proxy's error page
        body = None
    if response.is_success and body is not None:
        return Reply(body, response.headers.get("Idempotent-Replay") == "true")
    problem = body if isinstance(body, dict) else {"detail": response.text[:200]}
    if response.is_success:
        problem = {"type": "not-json", "detail": "no JSON came back"}
    if response.status_code == 403 and "decision" in problem:
        raise Refused(problem)
    raise Failed(response.status_code, problem)
