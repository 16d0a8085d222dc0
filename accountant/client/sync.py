"""The blocking client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from accountant.client import calls, results
from accountant.client.calls import About, Asked, Datasets, Ran, Settles
from accountant.client.environment import key_of
from accountant.client.errors import (
    AccountantError,
    Body,
    Failed,
    NeedsApproval,
    Unreachable,
)
from accountant.client.files import Bundle
from accountant.client.ledger import Checkpoint, Continuation, LedgerEvent
from accountant.client.mechanisms import Mechanism
from accountant.client.reservations import NOTHING, Reservation, Uses, uncommitted, untracked
from accountant.client.spool import Delivered, Spool
from accountant.client.transport import Call, Connection, hopeless, in_words

if TYPE_CHECKING:
    import httpx2

    from accountant.client.plain import Plain

T = TypeVar("T")
P = ParamSpec("P")


class Sender(Connection):
    """A connection that waits for its answers; closes as a context manager. Not thread-safe."""

    _open: httpx2.Client | Plain | None = None
    _opener = 0

    @property
    def _http(self) -> httpx2.Client | Plain:
        if self._open is None or self._opener != os.getpid():
            # Loads httpx2: half of the time that the client takes to load.
            from accountant.client.plain import opened  # noqa: PLC0415

            # A child process would read answers to its parent from the parent's connection.
            self._open, self._opener = opened(self.url, self._options), os.getpid()
        return self._open

    def close(self) -> None:
        """Close the connections."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, call: Call[T]) -> T:
        """Send a call until it is answered. Raise Unreachable after the last attempt, or after the
        first if no attempt can succeed.
        """
        reason, attempt = "", 0
        import httpx2  # noqa: PLC0415 (half of the time that the client takes to load)

        while attempt < self._attempts:
            pause = self._pause(attempt)
            attempt += 1
            try:
                response = self._received(call)
            except httpx2.RequestError as error:
                reason = in_words(error)
                if hopeless(error):
                    break
            else:
                later = self._after(response, attempt - 1)
                if later is None:
                    return call.read(response)
                pause, reason = later
            if attempt < self._attempts:
                time.sleep(pause)
        raise self._gave_up(attempt, reason, call)

    def _received(self, call: Call[Any]) -> httpx2.Response:
        """Send a call once. The body of a good answer goes into the call's file, if it has one."""
        http, request = self._http, self._request(call)
        if call.into is None:
            return http.request(**request)
        with http.stream(**request) as response:
            if response.is_success:
                call.into.begin()
                for part in response.iter_bytes():
                    call.into.write(part)
            else:
                response.read()
        return response


class Grant(Reservation):
    """Permission to run the mechanisms of one request, until it expires.

    As a context manager it settles when the block ends. It commits what was used: all that was
    granted, **also when the block ends with an exception**, for once noise may have been drawn the
    privacy is spent, whether or not the answer was published. A pipeline that says before each
    draw what it draws (``use``) pays for that alone; with ``tracked`` and no ``use`` nothing ran,
    and the grant is released.

    Entering raises MayHaveRun if an earlier run may have got this grant under the same named key.
    """

    def __init__(self, client: Client, reserved: calls.Reserved, uses: Uses) -> None:
        super().__init__(reserved)
        self._client, self._uses = client, uses

    def use(self, mechanism: Mechanism | None = None, times: int | None = None) -> None:
        """Say that noise of a granted mechanism is about to be drawn, all its ``count`` or so many
        ``times``; of all mechanisms if none is named. Raise ValueError for what was not granted.
        """
        self._uses.use(mechanism, times)

    def commit(
        self, mechanisms: Sequence[Mechanism] | None = None, **more: Unpack[Settles]
    ) -> results.Settlement:
        """Report what was executed: everything, or only the listed mechanisms. A policy may ask for
        a second person's key where much is given back.
        """
        found = self._client.send(calls.commit(self.id, mechanisms, **more))
        self.settled = True
        return found

    def release(self, reason: str, **more: Unpack[Settles]) -> results.Settlement:
        """Attest that nothing was executed on the data; the budget is given back. A policy may ask
        for a second person's key where it is much.
        """
        found = self._client.send(calls.release(self.id, reason, **more))
        self.settled = True
        return found

    def receipt(self) -> bytes:
        """Return a proof, to keep, that the reservation is in the ledger (C2SP tlog-proof)."""
        return self._client.receipt(self.sequence)

    def __enter__(self) -> Self:
        self._entered()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.settled:
            return
        ran = self._uses.ran()
        nothing = ran is not None and not ran
        call = calls.release(self.id, NOTHING) if nothing else calls.commit(self.id, ran)
        try:
            self._client.report_what_ran(call)
            self.settled = True
        except AccountantError as failure:
            if error is None:  # nothing may be published: the service has not recorded the run
                raise
            error.add_note(uncommitted(self.id, failure))


class Session(Reservation):
    """An open sparse vector session: count the answers as they are given, then close it.

    As a context manager it closes when the block ends without an exception, and the epsilon of
    unused positives is given back. After an exception it stays open: uncounted answers may have
    been given, so the session expires and is charged in full.
    """

    positives = 0
    negatives = 0

    def __init__(self, client: Client, reserved: calls.Reserved) -> None:
        super().__init__(reserved)
        self._client = client

    def count(self, *, positives: int = 0, negatives: int = 0) -> results.Counted:
        """Count the answers given since the last count, before they are shown."""
        found = self._client.send(calls.count(self.id, positives, negatives))
        self.positives, self.negatives = found.positives, found.negatives
        return found

    def close(self, **more: Unpack[Settles]) -> results.Settlement:
        """End the session. Return what is charged. A policy may ask for a second person's key where
        much is given back.
        """
        found = self._client.send(calls.close(self.id, **more))
        self.settled = True
        return found

    def receipt(self) -> bytes:
        """Return a proof, to keep, that the reservation is in the ledger (C2SP tlog-proof)."""
        return self._client.receipt(self.sequence)

    def __enter__(self) -> Self:
        self._entered()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and not self.settled:
            self.close()


class Client(Sender):
    """The service at ``url``, asked with the API key ``key`` about ``population``.

    Every request that can spend carries an idempotency key, by default a fresh one; retries after
    connection errors and 503 reuse it. Give a key where the whole process may be restarted for the
    same work: then a restart is not charged again, and ``with`` raises MayHaveRun for a grant that
    was given before, since the earlier run may have used it. (The client cannot tell whether the
    first answer was merely lost on its way.)

    With a ``spool``, a folder, what ran is written there before it is reported: ``record`` and the
    end of a ``with`` block then succeed while the service is away, and ``deliver`` reports later.
    """

    def __init__(
        self,
        url: str,
        key: str,
        population: str,
        *,
        spool: str | os.PathLike[str] | Spool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(url, key, population, **options)
        self.spool = spool if isinstance(spool, Spool | None) else Spool(spool)

    @classmethod
    def from_env(
        cls, population: str | None = None, env: Mapping[str, str] = os.environ, **options: Any
    ) -> Self:
        """Read ACCOUNTANT_URL and ACCOUNTANT_KEY (or the file ACCOUNTANT_KEY_FILE), and
        ACCOUNTANT_POPULATION and ACCOUNTANT_SPOOL where they are not given. Raise KeyError with the
        name of a missing one.
        """
        options = {"spool": env.get("ACCOUNTANT_SPOOL") or None} | options
        about = population or env["ACCOUNTANT_POPULATION"]
        return cls(env["ACCOUNTANT_URL"], key_of(env), about, **options)

    def grant(
        self,
        dataset: Datasets,
        mechanisms: Sequence[Mechanism],
        *,
        tracked: bool = False,
        **more: Unpack[Asked],
    ) -> Grant:
        """Ask for budget before anything runs. Raise Refused. ``tracked``: see Grant.

        With ``wait`` it returns once budget is free and a person has approved, if one has to,
        perhaps for fewer invocations, if ``at_least`` says so (``answer["count"]``); raise Refused
        when it is declined, or the time is over. Without it raise NeedsApproval.
        """
        call = calls.reserve("/grants", dataset=dataset, mechanisms=mechanisms, **more)
        waits = more.get("wait") is not None
        return self._granted(call, Uses(mechanisms, tracked=tracked), waits=waits)

    def _granted(self, call: Call[calls.Reserved], uses: Uses, *, waits: bool) -> Grant:
        reserved = self.until_decided(call, waits=waits)
        uses.grant(reserved.body.get("count"))
        return Grant(self, reserved, uses)

    def until_decided(self, call: Call[calls.Reserved], *, waits: bool = True) -> calls.Reserved:
        """Send a request for a reservation; return once it does not wait any more. Raise
        NeedsApproval if it ``waits`` for nobody here, and a person has to approve it.
        """
        first = reserved = self.send(call)
        if not waits and reserved.body["state"] == calls.WAITS:
            raise NeedsApproval(reserved.body)
        while reserved.body["state"] == calls.WAITS:
            self.send(calls.polled(reserved.body["id"]))
            reserved = self.send(call)
        return reserved._replace(earlier=first.earlier)

    def charged(
        self, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Asked]
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Return a decorator: each call of the function asks for a grant, runs only if it is given,
        and is committed when it ends, also by an exception.
        """
        untracked(more)
        if more.get("idempotency_key") is not None:
            raise ValueError("a function that may be called twice needs a key for each call")

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @wraps(function)
            def paid(*args: P.args, **kwargs: P.kwargs) -> T:
                with self.grant(dataset, mechanisms, **more):
                    return function(*args, **kwargs)

            return paid

        return decorate

    def sparse_vector(
        self, dataset: Datasets, mechanism: Mechanism, **more: Unpack[Asked]
    ) -> Session:
        """Open a sparse vector session, which reserves its whole cost. Raise Refused."""
        call = calls.reserve("/sparse-vector", dataset=dataset, mechanism=mechanism, **more)
        return self._opened(call)

    def _opened(self, call: Call[calls.Reserved]) -> Session:
        return Session(self, self.send(call))

    def record(
        self, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[Ran]
    ) -> results.Recorded | None:
        """Record what already ran. It is always recorded; ``overrun`` in the answer says whether it
        exceeded a limit, ``flags`` which rules fired. None: it waits in the spool.
        """
        return self.report_what_ran(calls.record(dataset, mechanisms, **more))

    def deliver(self) -> Delivered:
        """Report what waits in the spool, in order. Each report is booked once, however often it is
        sent. Those that the service rejects are put aside, with the reason, and so are files that
        are damaged. Where the service does not get to judge them (it is away, or the key or the
        address is wrong) the rest stay.
        """
        sent = 0
        rejected: list[Path] = self.spool.damaged() if self.spool else []
        for file, _, call in self.spool.waiting(self.population) if self.spool else ():
            try:
                self.send(call)
            except AccountantError as failure:
                if not failure.judged:
                    return Delivered(sent, rejected, failure)
                rejected.append(self.spool.reject(file, failure))  # type: ignore[union-attr]
            else:
                sent += 1
                self.spool.forget(file)  # type: ignore[union-attr]
        return Delivered(sent, rejected, None)

    def report_what_ran(self, call: Call[T]) -> T | None:
        """Send what ran; with a spool, write it down first. None: it waits there. It waits there
        as well after an error, unless the service has judged the report.
        """
        if self.spool is None:
            return self.send(call)
        try:
            file = self.spool.keep(self.population, call)
        except OSError as failure:  # a full disk does not keep a report from the service
            try:
                return self.send(call)
            except Unreachable as unreachable:
                unreachable.add_note(f"and the spool could not keep it: {failure}")
                raise
        try:
            found = self.send(call)
        except Unreachable:
            return None
        except AccountantError as failure:
            if failure.judged:
                self.spool.forget(file)
            else:
                failure.add_note(f"the report waits in the spool, to be delivered: {file}")
            raise
        self.spool.forget(file)
        return found

    def batch(self, items: Sequence[Body], *, idempotency_key: str | None = None) -> list[Body]:
        """Send many items in one commit and return their answers in order. Grants, commits and
        releases are answered all or none (otherwise Refused, whose ``problem`` names the ``item``);
        records may not be mixed with them. ``grant_item``, ``commit_item``, ``release_item`` and
        ``record_item`` make items.
        """
        return self.send(calls.batch(items, idempotency_key))

    def preview(
        self, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[About]
    ) -> results.Preview:
        """Return the decision that ``grant`` would get, and how many such requests fit."""
        return self.send(calls.preview(dataset, mechanisms, **more))

    def preview_batch(self, items: Sequence[Body]) -> results.Previews:
        """Return what each of several requests would get, after those before it that would be
        granted. Nothing is recorded, and nobody waits for it. ``grant_item`` makes items.
        """
        return self.send(calls.preview_batch(items))

    def commit(
        self, grant: str, mechanisms: Sequence[Mechanism] | None = None, **more: Unpack[Settles]
    ) -> results.Settlement:
        """Commit a grant by its id, for instance from another process of the same pipeline."""
        return self.send(calls.commit(grant, mechanisms, **more))

    def release(self, grant: str, reason: str, **more: Unpack[Settles]) -> results.Settlement:
        """Attest for a grant, by its id, that nothing was executed on the data."""
        return self.send(calls.release(grant, reason, **more))

    def republish(
        self,
        grant: str,
        dataset: Datasets,
        answer: bytes | str,
        *,
        idempotency_key: str | None = None,
    ) -> results.Republished:
        """Record that an answer of a committed grant is published again, unchanged: its bytes, or
        their SHA-256 in hex. It costs nothing.
        """
        return self.send(calls.republish(grant, dataset, answer, idempotency_key))

    def open_grants(
        self, client: str | None = "me", dataset: str | None = None
    ) -> Iterator[results.GrantState]:
        """Yield the open grants in order: your own, or another client's if you may see them."""
        after = -1
        while (page := self.send(calls.open_grants(client, dataset, after)))[0]:
            yield from page[0]
            after = page[1]

    def grant_state(self, grant: str) -> results.GrantState:
        """Return a grant as it is now."""
        return self.send(calls.grant_state(grant))

    def decision(self, decision: str) -> results.Decision:
        """Return a decision in full by its id: every rule with both sides of its comparison."""
        return self.send(calls.decision(decision))

    def accounts(self, dataset: str | None = None, by: str | None = None) -> results.Accounts:
        """Return the sums and limits of all rules, split ``by`` a dimension."""
        return self.send(calls.accounts(dataset, by))

    def describe(self) -> Body:
        """Return the population with its dimensions, datasets and policy."""
        return self.send(calls.population())

    def checkpoint(self) -> Checkpoint:
        """Return the last published checkpoint, whose note is worth keeping. Pipelines' keys may
        read it only if the log is public. Raise Failed (nothing-published) before the first one.
        """
        return Checkpoint.from_note(self.send(calls.checkpoint()))

    def receipt(self, sequence: int) -> bytes:
        """Return the proof that an event is in the ledger (C2SP tlog-proof), to keep."""
        return self.send(calls.receipt(sequence))

    def event(self, sequence: int) -> bytes:
        """Return one event's canonical bytes. A pipeline gets its own events."""
        return self.send(calls.event(sequence))

    def report(
        self,
        form: str = "html",
        *,
        kind: str | None = None,
        dataset: str | None = None,
        month: str | None = None,
        first: str | None = None,
        last: str | None = None,
    ) -> bytes:
        """Return the compliance report as ``html``, ``json`` or ``csv``; of a ``month`` (2026-10),
        or of the days from ``first`` to ``last``, a report to sign, as ``pdf`` too: of the ``kind``
        officer, statement (of a ``dataset``) or population. Not for pipelines.
        """
        period = {"kind": kind, "dataset": dataset, "month": month, "from": first, "to": last}
        return self.send(calls.report(form, period))

    def evidence(
        self,
        path: str | os.PathLike[str],
        *,
        first: int | None = None,
        last: int | None = None,
        texts: bool = True,
    ) -> Body:
        """Write the ledger to ``path`` as an evidence bundle, up to a checkpoint that is signed
        now; the file appears when it is whole. Return the bundle's manifest. ``first`` and ``last``
        are events; a part has whole packs of 256. Not for pipelines. Raise OSError.
        """
        with Bundle(path) as file:
            manifest = self.send(calls.evidence(file, first, last, texts=texts))
            file.keep()
        return manifest

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
        check = Continuation([*kept, *published])
        for item in self._listed():
            yield check.next(item)
        check.end()

    def _listed(self) -> Iterator[Body]:
        after = -1
        while (page := self.send(calls.events(after)))[0]:
            yield from page[0]
            after = page[1]
