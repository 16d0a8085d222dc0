"""One population's accounts, as a pipeline or an auditor sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from accountant.client.errors import Failed
from accountant.client.grants import Grant, Session
from accountant.client.ledger import Checkpoint, LedgerEvent, checked
from accountant.client.requests import Mechanism, Subjects, asking
from accountant.client.transport import Connected, Transport

PAGE = 500


class Accountant(Connected):
    """The service at ``url``, asked with ``key`` about ``population``.

    Every request that can spend carries an idempotency key, a fresh one unless you name it; retries
    after connection errors and 503 reuse it. Name one yourself where the whole process may be
    started again for the same work: then a restart is not charged twice either, and ``with``
    refuses to run on a grant that had been given before (MayHaveRun), for an earlier run may have
    used it; that the first answer was merely lost on its way cannot be told apart.
    """

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
        self.population = population
        super().__init__(
            population, Transport(url, key, timeout=timeout, attempts=attempts, backoff=backoff)
        )

    @classmethod
    def from_environment(cls, population: str, env: Mapping[str, str] = os.environ) -> Self:
        """Reads ACCOUNTANT_URL and ACCOUNTANT_KEY. Raises KeyError, naming what is missing."""
        return cls(env["ACCOUNTANT_URL"], env["ACCOUNTANT_KEY"], population)

    def grant(
        self,
        dataset: str,
        mechanisms: Sequence[Mechanism],
        *,
        subjects: Subjects | None = None,
        purpose: str | None = None,
        justification: str | None = None,
        ttl_seconds: int | None = None,
        idempotency_key: str | None = None,
    ) -> Grant:
        """Asks for budget before anything runs. Raises Refused."""
        more = {"mechanisms": mechanisms, "ttl_seconds": ttl_seconds}
        body = asking(dataset, subjects, purpose, justification, **more)
        path = f"{self._at}/grants"
        reply = self._transport.post(path, body, idempotency_key)
        return Grant(self._transport, path, reply, named=idempotency_key is not None)

    def sparse_vector(
        self,
        dataset: str,
        mechanism: Mechanism,
        *,
        subjects: Subjects | None = None,
        purpose: str | None = None,
        justification: str | None = None,
        ttl_seconds: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Opens a sparse vector session: its whole cost is reserved. Raises Refused."""
        more = {"mechanism": mechanism, "ttl_seconds": ttl_seconds}
        body = asking(dataset, subjects, purpose, justification, **more)
        path = f"{self._at}/sparse-vector"
        reply = self._transport.post(path, body, idempotency_key)
        return Session(self._transport, path, reply, named=idempotency_key is not None)

    def record(
        self,
        dataset: str,
        mechanisms: Sequence[Mechanism],
        *,
        subjects: Subjects | None = None,
        purpose: str | None = None,
        justification: str | None = None,
        ran_at: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Records what has already run: always recorded, ``overrun`` says if it was too much,
        ``flags`` which rules fired.
        """
        more = {"mechanisms": mechanisms, "ran_at": ran_at}
        body = asking(dataset, subjects, purpose, justification, **more)
        answer = self._transport.post(f"{self._at}/invocations", body, idempotency_key).body
        return dict(answer)

    def batch(
        self, items: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[dict[str, Any]]:
        """The answers to many items, in their order, from one commit: grants, commits and releases
        all or nothing (else Refused, whose ``problem`` names the ``item``), or records only.
        ``grant_item``, ``commit_item``, ``release_item`` and ``record_item`` make them.
        """
        body = {"items": list(items)}
        answer = self._transport.post(f"{self._at}/batch", body, idempotency_key).body
        return list(answer["items"])

    def preview(
        self,
        dataset: str,
        mechanisms: Sequence[Mechanism],
        *,
        subjects: Subjects | None = None,
        purpose: str | None = None,
        justification: str | None = None,
    ) -> dict[str, Any]:
        """The decision that ``grant`` would get, and how many like it fit; records nothing."""
        body = asking(dataset, subjects, purpose, justification, mechanisms=mechanisms)
        return dict(self._transport.post(f"{self._at}/preview", body).body)

    def commit(self, grant: str, mechanisms: Sequence[Mechanism] | None = None) -> dict[str, Any]:
        """Commits a grant by its id, for instance from another process of the same pipeline."""
        body = {} if mechanisms is None else {"mechanisms": mechanisms}
        return dict(self._transport.post(f"{self._at}/grants/{grant}/commit", body).body)

    def release(self, grant: str, reason: str) -> dict[str, Any]:
        """Attests for a grant, by its id, that none of it was executed on the data."""
        body = {"reason": reason}
        return dict(self._transport.post(f"{self._at}/grants/{grant}/release", body).body)

    def open_grants(
        self, client: str = "me", dataset: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Grants that are not settled yet, in order: your own, or of another ``client`` for who
        may see them.
        """
        query: dict[str, str | int] = {"state": "open", "client": client, "limit": PAGE}
        query |= {} if dataset is None else {"dataset": dataset}
        last = -1
        while (page := self._transport.get(f"{self._at}/grants", query | {"after": last}))[
            "grants"
        ]:
            yield from page["grants"]
            last = page["last"]

    def grant_state(self, grant: str) -> dict[str, Any]:
        """A grant as it stands now."""
        return dict(self._transport.get(f"{self._at}/grants/{grant}"))

    def decision(self, decision: str) -> dict[str, Any]:
        """A decision in full, by its id: every rule with both sides of its comparison."""
        return dict(self._transport.get(f"{self._at}/decisions/{decision}"))

    def accounts(self, dataset: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Per rule: limit, spent, reserved and left; lifetime totals; split ``by`` a dimension."""
        query = {name: v for name, v in (("dataset", dataset), ("by", by)) if v is not None}
        return dict(self._transport.get(f"{self._at}/accounts", query))

    def checkpoint(self) -> Checkpoint:
        """The last published checkpoint; its note is worth keeping. Not for pipelines' keys, unless
        the log is public. Raises Failed (nothing-published) before the first.
        """
        return Checkpoint.from_note(self._transport.fetch(f"{self._at}/log/checkpoint"))

    def receipt(self, sequence: int) -> bytes:
        """Proof that an event stands in the ledger, to keep beside the event (C2SP tlog-proof). A
        pipeline gets receipts of its own events.
        """
        return self._transport.fetch(f"{self._at}/receipts/{sequence}")

    def event(self, sequence: int) -> bytes:
        """One event's canonical bytes; a pipeline gets its own."""
        return self._transport.fetch(f"{self._at}/events/{sequence}")

    def events(self, *kept: Checkpoint) -> Iterator[LedgerEvent]:
        """The whole ledger in order, its tree made again as it arrives: read to the end, it is the
        ledger of the last published checkpoint, if there is one, and of all that you have ``kept``.
        Raises LedgerBroken if not. Signatures are not checked here (ledger.py).
        """
        return checked(self._pages(), [*kept, *self._published()])

    def _published(self) -> list[Checkpoint]:
        try:
            return [self.checkpoint()]
        except Failed as failed:
            if failed.code != "nothing-published":
                raise
            return []

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        last = -1
        while True:
            page = self._transport.get(f"{self._at}/events", {"after": last, "limit": PAGE})
            if not page["events"]:
                return
            yield page["events"]
            last = page["last"]
