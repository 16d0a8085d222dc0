"""One population as a pipeline, an auditor or an administrator sees it, and its reservations."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import urlencode

from accountant.client.ledger import Checkpoint, LedgerEvent, checked
from accountant.client.transport import AccountantError, Body, Connection, Failed, present

PAGE = 500  # The most grants or events in one page

Mechanism = Mapping[str, Any]
"""A mechanism as the service's OpenAPI document describes it; amounts are decimal strings."""
Datasets = str | Sequence[str]
"""A dataset by its id, or all datasets that one query reads."""
Group = Mapping[str, Sequence[str] | Mapping[str, str]]
Subjects = Group | Sequence[Group]
"""A subject group: ``{"age": ["20-24"]}``, a range with from and to, or a list of these."""


class About(TypedDict, total=False):
    """The optional fields of every request. None is not sent."""

    subjects: Subjects | None
    purpose: str | None
    justification: str | None


class Asked(About, total=False):
    """Also of a request for a reservation: the seconds until it expires; its key if no item."""

    ttl_seconds: int | None
    idempotency_key: str | None


class Ran(About, total=False):
    """Also of a record of a past run: its time (RFC 3339); its key if it is no item."""

    ran_at: str | None
    idempotency_key: str | None


def grant_item(dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Asked]) -> Body:
    """Return the request for a grant as an item of a batch."""
    return _item("ask_grant", dataset=dataset, mechanisms=mechanisms, **more)


def commit_item(grant: str, mechanisms: Sequence[Mechanism] | None = None) -> Body:
    """Return the commit of a grant, whole or of the listed mechanisms, as an item of a batch."""
    return _item("commit_grant", grant=grant, mechanisms=mechanisms)


def release_item(grant: str, reason: str) -> Body:
    """Return the release of a grant as an item of a batch."""
    return _item("release_grant", grant=grant, reason=reason)


def record_item(dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Ran]) -> Body:
    """Return the record of what already ran as an item of a batch."""
    return _item("record_invocations", dataset=dataset, mechanisms=mechanisms, **more)


def _item(kind: str, **fields: Any) -> Body:
    return present({"type": kind, **fields})


class MayHaveRun(AccountantError):
    """The grant was given before, under the same idempotency key, to an earlier run.

    That run may have drawn its noise. Drawing again would be a second answer for one charge: commit
    this grant, and ask for the new run under a new key.
    """

    def __init__(self, grant: str) -> None:
        super().__init__(f"grant {grant} was given to an earlier run, which may have used it")


class _Reservation:
    """The base of grants and sessions: the service's answer and its settlement."""

    def __init__(self, connection: Connection, path: str, **asked: Any) -> None:
        self._connection = connection
        self.answer, self.repeated = connection._post(path, **asked)
        """``repeated``: the request was answered before; it is charged once."""
        # Only a key that the caller chose can have been used by an earlier run.
        self._earlier_run = self.repeated and asked.get("idempotency_key") is not None
        self.id: str = self.answer["id"]
        self._path = f"{path}/{self.id}"
        self.settled = False

    @property
    def outcome(self) -> str:
        """``allow``, or ``flag`` if the request was granted but a rule flags it."""
        return "flag" if self.answer["flags"] else "allow"

    @property
    def flags(self) -> tuple[str, ...]:
        """The ids of the rules that flag it."""
        return tuple(flag["rule"] for flag in self.answer["flags"])

    @property
    def decision_id(self) -> str:
        """The id of the whole decision, for ``Accountant.decision``."""
        return str(self.answer["decision"])

    @property
    def charge(self) -> dict[str, str]:
        """The charge that is reserved, in every currency."""
        return dict(self.answer["charge"])

    @property
    def epsilon(self) -> Decimal:
        """The epsilon that is reserved (possibly infinite)."""
        return Decimal(self.charge["epsilon"].replace("infinite", "Infinity"))

    def receipt(self) -> bytes:
        """Return a proof, to keep, that the reservation is in the ledger (C2SP tlog-proof)."""
        return self._connection._fetch(f"/receipts/{self.answer['sequence']}")

    def __enter__(self) -> Self:
        if self._earlier_run:
            raise MayHaveRun(self.id)
        return self

    def _settle(self, call: str, **body: Any) -> Body:
        answer = self._connection._post(f"{self._path}/{call}", **body).body
        self.settled = True
        return answer


class Grant(_Reservation):
    """Permission to run the mechanisms of one request, until it expires.

    As a context manager it commits when the block ends, **also when the block ends with an
    exception**: once noise may have been drawn from the data, the privacy is spent, whether or not
    the answer was published. The exception propagates. If nothing was executed on the data, call
    ``release`` before the block ends.

    Entering raises MayHaveRun if an earlier run may have got this grant under the same named key.
    """

    def commit(
        self, mechanisms: Sequence[Mechanism] | None = None, *, approver_key: str | None = None
    ) -> Body:
        """Report what was executed: everything, or only the listed mechanisms. A policy may ask for
        a second person's key where much is given back.
        """
        return self._settle("commit", mechanisms=mechanisms, approver_key=approver_key)

    def release(self, reason: str, *, approver_key: str | None = None) -> Body:
        """Attest that nothing was executed on the data; the budget is given back. A policy may ask
        for a second person's key where it is much.
        """
        return self._settle("release", reason=reason, approver_key=approver_key)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.settled:
            return
        try:
            self.commit()
        except AccountantError as failure:
            if error is None:  # nothing may be published: the service has not recorded the run
                raise
            error.add_note(f"grant {self.id} was not committed and will be charged: {failure}")


class Session(_Reservation):
    """An open sparse vector session: count the answers as they are given, then close it.

    As a context manager it closes when the block ends without an exception, and the epsilon of
    unused positives is given back. After an exception it stays open: uncounted answers may have
    been given, so the session expires and is charged in full.
    """

    positives = 0
    negatives = 0

    def count(self, *, positives: int = 0, negatives: int = 0) -> Body:
        """Count the answers given since the last count, before they are shown."""
        path = f"{self._path}/answers"
        answer = self._connection._post(path, positives=positives, negatives=negatives).body
        self.positives, self.negatives = answer["positives"], answer["negatives"]
        return answer

    def close(self, *, approver_key: str | None = None) -> Body:
        """End the session. Return what is charged. A policy may ask for a second person's key where
        much is given back.
        """
        return self._settle("close", approver_key=approver_key)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and not self.settled:
            self.close()


class Accountant(Connection):
    """The service at ``url``, asked with the API key ``key`` about ``population``.

    Every request that can spend carries an idempotency key, by default a fresh one; retries after
    connection errors and 503 reuse it. Give a key where the whole process may be restarted for the
    same work: then a restart is not charged again, and ``with`` raises MayHaveRun for a grant that
    was given before, since the earlier run may have used it. (The client cannot tell whether the
    first answer was merely lost on its way.)
    """

    @classmethod
    def from_environment(cls, population: str, env: Mapping[str, str] = os.environ) -> Self:
        """Read ACCOUNTANT_URL and ACCOUNTANT_KEY. Raise KeyError with the name of a missing one."""
        return cls(env["ACCOUNTANT_URL"], env["ACCOUNTANT_KEY"], population)

    @property
    def population(self) -> str:
        """The population's id."""
        return self._at.rpartition("/")[2]

    def grant(
        self, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Asked]
    ) -> Grant:
        """Ask for budget before anything runs. Raise Refused."""
        return Grant(self, "/grants", dataset=dataset, mechanisms=mechanisms, **more)

    def sparse_vector(
        self, dataset: Datasets, mechanism: Mechanism, **more: Unpack[Asked]
    ) -> Session:
        """Open a sparse vector session, which reserves its whole cost. Raise Refused."""
        return Session(self, "/sparse-vector", dataset=dataset, mechanism=mechanism, **more)

    def record(
        self, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Ran]
    ) -> Body:
        """Record what already ran. It is always recorded; ``overrun`` in the answer says whether it
        exceeded a limit, ``flags`` which rules fired.
        """
        return self._post("/invocations", dataset=dataset, mechanisms=mechanisms, **more).body

    def batch(self, items: Sequence[Body], *, idempotency_key: str | None = None) -> list[Body]:
        """Send many items in one commit and return their answers in order. Grants, commits and
        releases are answered all or none (otherwise Refused, whose ``problem`` names the ``item``);
        records may not be mixed with them. ``grant_item``, ``commit_item``, ``release_item`` and
        ``record_item`` make items.
        """
        answer = self._post("/batch", idempotency_key=idempotency_key, items=items)
        return list(answer.body["items"])

    def preview(
        self, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[About]
    ) -> Body:
        """Return the decision that ``grant`` would get, and how many such requests fit."""
        return self._post("/preview", dataset=dataset, mechanisms=mechanisms, **more).body

    def commit(self, grant: str, mechanisms: Sequence[Mechanism] | None = None) -> Body:
        """Commit a grant by its id, for instance from another process of the same pipeline."""
        return self._post(f"/grants/{grant}/commit", mechanisms=mechanisms).body

    def release(self, grant: str, reason: str) -> Body:
        """Attest for a grant, by its id, that nothing was executed on the data."""
        return self._post(f"/grants/{grant}/release", reason=reason).body

    def open_grants(self, client: str = "me", dataset: str | None = None) -> Iterator[Body]:
        """Yield the open grants in order: your own, or another client's if you may see them."""
        return self._listed("grants", state="open", client=client, dataset=dataset)

    def grant_state(self, grant: str) -> Body:
        """Return a grant as it is now."""
        return self._get(f"/grants/{grant}")

    def decision(self, decision: str) -> Body:
        """Return a decision in full by its id: every rule with both sides of its comparison."""
        return self._get(f"/decisions/{decision}")

    def accounts(self, dataset: str | None = None, by: str | None = None) -> Body:
        """Return the sums and limits of all rules, and lifetimes, split ``by`` a dimension."""
        return self._get("/accounts", dataset=dataset, by=by)

    def checkpoint(self) -> Checkpoint:
        """Return the last published checkpoint, whose note is worth keeping. Pipelines' keys may
        read it only if the log is public. Raise Failed (nothing-published) before the first one.
        """
        return Checkpoint.from_note(self._fetch("/log/checkpoint"))

    def receipt(self, sequence: int) -> bytes:
        """Return the proof that an event is in the ledger (C2SP tlog-proof), to keep."""
        return self._fetch(f"/receipts/{sequence}")

    def event(self, sequence: int) -> bytes:
        """Return one event's canonical bytes. A pipeline gets its own events."""
        return self._fetch(f"/events/{sequence}")

    def events(self, *kept: Checkpoint) -> Iterator[LedgerEvent]:
        """Yield the whole ledger in order and recompute its tree. Raise LedgerBroken where it does
        not continue the last published checkpoint, if there is one, and all checkpoints ``kept``;
        read to the end for a complete check. Signatures are not checked (see ledger.py).
        """
        published: list[Checkpoint] = []
        try:
            published.append(self.checkpoint())
        except Failed as failed:
            if failed.code != "nothing-published":
                raise
        return checked(self._listed("events"), [*kept, *published])

    def _listed(self, name: str, **query: str | None) -> Iterator[Body]:
        """Yield all ``grants`` or ``events``, read in pages."""
        after = -1
        while (page := self._get(f"/{name}", after=after, limit=PAGE, **query))[name]:
            yield from page[name]
            after = page["last"]


class Registrar(Connection):
    """Registers a population with its datasets and adopts its policy. Needs an admin's key.

    Every call may be repeated: registering what is already registered changes nothing.
    """

    def population(
        self,
        *,
        privacy_unit: str,
        neighbouring: str,
        membership: str,
        dimensions: Mapping[str, Sequence[str]],
        fixed: Mapping[str, str] | None = None,
    ) -> Body:
        """Register the population, or append values to its dimensions. ``fixed`` says of those that
        look like times of events why they never change.
        """
        body: dict[str, Any] = {"privacy_unit": privacy_unit, "neighbouring": neighbouring}
        body |= {"membership": membership, "dimensions": dimensions} | present({"fixed": fixed})
        return self._put_json("", body)

    def dataset(
        self,
        dataset: str,
        *,
        namespace: str,
        name: str,
        owner: str | None = None,
        parents: Sequence[str] | None = None,
        also: Sequence[str] | None = None,
        approver_key: str | None = None,
    ) -> Body:
        """Register a dataset about the population under a short id. If other populations have the
        same data, ``also`` names all of them ("population/dataset"), and that needs a second
        person's key.
        """
        body = present({"namespace": namespace, "name": name, "owner": owner})
        body |= present({"parents": parents, "also": also})
        return self._put_json(f"/datasets/{dataset}", body, approver_key)

    def policy(
        self, text: str, *, approver_key: str | None = None, closes: Sequence[str] = ()
    ) -> Body:
        """Adopt a policy file. Loosening the policy in force needs a second person's key; limits in
        which nothing would fit any more have to be named by ``closes``.
        """
        query = f"?{urlencode({'closes': closes}, doseq=True)}" if closes else ""
        return self._put(f"/policy{query}", text.encode(), "application/yaml", approver_key)

    def _put_json(
        self, path: str, body: Mapping[str, Any], approver_key: str | None = None
    ) -> Body:
        content = json.dumps(body, ensure_ascii=False).encode()
        return self._put(path, content, "application/json", approver_key)
