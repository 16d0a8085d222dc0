"""What can go wrong, by what a pipeline does about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_PREFIX: Final = "urn:accountant:problem:"


class AccountantError(Exception):
    """Base of everything that the client raises about an answer of the service."""


class Refused(AccountantError):
    """The service decided against the request. Nothing may run.

    Asking again with the same key gives the same refusal; a smaller question, or more noise, needs
    a new request.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.code = code_of(problem)
        self.detail = str(problem.get("detail", ""))
        self.decision: dict[str, Any] = problem["decision"]
        self.charge: dict[str, str] = dict(problem.get("charge", {}))
        self.would_fit: dict[str, Any] = dict(problem.get("would_fit", {}))
        """What would have fitted when this was answered: ``count``, ``scale``, ``times`` or
        ``delta``, as far as there is any."""
        self.problem = dict(problem)
        super().__init__(f"{self.detail} [{self.code}, decision {self.decision.get('id')}]")

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules that block."""
        fired = (r for r in self.decision["rules"] if r["fired"] and r["action"] == "block")
        return tuple(rule["rule"] for rule in fired)


class Failed(AccountantError):
    """The request could not be answered: malformed, not allowed, in conflict, or a fault."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = code_of(problem)
        self.detail = str(problem.get("detail", ""))
        self.problem = dict(problem)
        super().__init__(f"{self.detail or 'no explanation came'} [{status} {self.code}]")


class Unreachable(AccountantError):
    """No answer came, or only "later", also after retries. Whether the service acted is not known.

    ``idempotency_key`` makes it safe to ask once more: the same key is never charged twice.
    """

    def __init__(self, url: str, attempts: int, reason: str, idempotency_key: str | None) -> None:
        self.idempotency_key = idempotency_key
        super().__init__(f"{url} gave no answer in {attempts} attempts: {reason}")


class MayHaveRun(AccountantError):
    """The grant was given before, under the same key, to an earlier run of the pipeline.

    That run may have drawn its noise. Drawing again would be a second answer for one charge: commit
    this grant, and ask for the new run under a new key.
    """

    def __init__(self, grant: str) -> None:
        super().__init__(f"grant {grant} was given to an earlier run, which may have used it")


def code_of(problem: Mapping[str, Any]) -> str:
    """The stable name of a problem document."""
    return str(problem.get("type", "unknown")).removeprefix(_PREFIX)
