"""The errors that answers become. None of them ever holds the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Body = dict[str, Any]
"""A JSON object."""
_OURS: Final = "urn:accountant:problem:"
_UNHEARD: Final = frozenset(
    {"unauthenticated", "role-not-allowed", "outside-scope", "unknown-population", "no-such-page",
     "method-not-allowed"}
)  # fmt: skip
"""What the service says of the key and the address, before it reads a request."""


class AccountantError(Exception):
    """Base of all errors that the client raises about the service."""

    @property
    def judged(self) -> bool:
        """True if the service has judged the request: the same one will not do better."""
        return False


class _Problem(AccountantError):
    """A problem document: ``code`` and ``detail`` say what is wrong."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.code = str(problem.get("type", "unknown")).removeprefix(_OURS)
        self.detail = str(problem.get("detail", ""))
        self.problem = dict(problem)


class Failed(_Problem):
    """The request was not answered: malformed, not allowed, in conflict, or a fault."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.status = status

    @property
    def judged(self) -> bool:
        """False where nobody has looked at the request: for a key that is not valid, another
        address, a fault, a page of a proxy.
        """
        ours = str(self.problem.get("type", "")).startswith(_OURS)
        return ours and self.status < 500 and self.code not in _UNHEARD

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
        self.decision_page: str = problem.get("decision_page", "")
        """Where people read the decision, if the service has an address for them."""

    @property
    def judged(self) -> bool:
        """True: a refusal stays."""
        return True

    def __str__(self) -> str:
        return f"{self.detail} [{self.code}, decision {self.decision.get('id')}]"

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules that block, or ask for a person's approval."""
        holds = ("block", "approve")
        fired = (r for r in self.decision["rules"] if r["fired"] and r["action"] in holds)
        return tuple(rule["rule"] for rule in fired)


class Unreachable(AccountantError):
    """No answer came, or only "later", after all retries. The service may or may not have acted.

    Retrying with the same ``idempotency_key`` is safe: it is never charged twice.
    """

    def __init__(self, url: str, attempts: int, reason: str, idempotency_key: str | None) -> None:
        self.idempotency_key = idempotency_key
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"{url} gave no answer in {times}: {reason}")


class NeedsApproval(AccountantError):
    """A person has to approve the request, which waits for that, and holds no budget. Nothing may
    run.

    To wait for it in the program, ask with ``wait``. Or ask again later, with the same
    ``idempotency_key``.
    """

    def __init__(self, waiting: Mapping[str, Any]) -> None:
        self.waiting = dict(waiting)
        self.id, self.until = str(waiting["id"]), str(waiting["until"])
        self.rules = tuple(map(str, waiting.get("asks", ())))
        asks = f" (asked for by {', '.join(self.rules)})" if self.rules else ""
        super().__init__(
            f"request {self.id} waits until {self.until} for a person's approval{asks}: ask with "
            "wait=… to wait here, or again later with the same idempotency key"
        )


class MayHaveRun(AccountantError):
    """The grant was given before, under the same idempotency key, to an earlier run.

    That run may have drawn its noise. Drawing again would be a second answer for one charge: commit
    this grant, and ask for the new run under a new key.
    """

    def __init__(self, grant: str) -> None:
        self.grant = grant
        super().__init__(f"grant {grant} was given to an earlier run, which may have used it")
