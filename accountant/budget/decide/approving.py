"""A person approves or declines a request that waits because a rule asks for approval.

The approver names the digest of the event that they read. The request is decided again at that
moment: nothing may block it, and it is then a grant like any other. Its event holds the command as
the admission of a request that waited does, with an ``approval``, and is by the approver. So
whatever reads an admission reads this one, and replay decides it again.

Who another person is: see ``proposing.py``.
"""

from __future__ import annotations

from typing import Final

from accountant.budget import commands as ask
from accountant.budget.changes import Admit, Leave, Reserve
from accountant.budget.commands import AdmitGrant, Approval, Envelope, construct
from accountant.budget.decide.judging import grant_for, judged
from accountant.budget.decide.proposing import First, check_person
from accountant.budget.decide.waiting import SYSTEM
from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.budget.evaluate import Judgement, evaluate
from accountant.budget.explain import in_words
from accountant.budget.grants import Settled
from accountant.budget.outcome import ADMITTED, NOT_APPROVED, Outcome, Repeated, outcome
from accountant.budget.request import Request, waited
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting
from accountant.ledger.events import rfc3339


def expanded(
    state: State, asked: Envelope, command: ask.ApproveGrant, now: int
) -> Envelope | Repeated:
    """Return the admission that an approval makes, or where this approval was answered before."""
    grant = state.grant(command.grant)
    if isinstance(grant, Settled) and asked.key is not None:
        before = state.idempotency.get(asked.by, asked.key)
        if before is not None and before[1] == grant.settled:
            return Repeated(grant.settled)
    waiting = _waiting(state, command.grant, now)
    fields = {
        "grant": waiting.id,
        "client": waiting.by,
        "request": waiting.asks().to_json(),
        "approval": Approval(digest=command.digest, key=command.key, asked_with=command.asked_with),
        "reason": command.reason,
    }
    return Envelope(asked.by, construct(AdmitGrant, fields), asked.key)


def approve(state: State, asked: Envelope, command: AdmitGrant, now: int) -> list[Outcome]:
    """Grant a request that a person approves. Raises Conflict if a rule blocks it, if no rule asks
    for approval, and for an admission that is no approval: ``decide`` has looked for those.
    """
    if command.approval is None:
        raise Conflict("not-due", f"no event lets {command.grant} in now")
    waiting = _waiting(state, command.grant, now)
    plain = Envelope(waiting.by, waiting.asks())
    if (command.client, command.request) != (waiting.by, plain.document):
        raise Invalid("approval-differs", f"this is not what {waiting.id} asks for")
    _check(asked, waiting, command.approval, now)
    request, judgement, body = judged(state, waiting.by, waiting.asks(), now, arrives=0)
    _check_asks(waiting, judgement)
    if judgement.outcome == "block":
        raise _blocked(state, waiting, request, judgement)
    grant = grant_for(state, plain, request, waiting.asks().ttl_seconds, now)
    change = Admit(waiting.sequence, Reserve(grant, request.purpose, request.allotment))
    return [outcome(state, asked, ADMITTED, now, body, change)]


def decline(state: State, asked: Envelope, command: ask.DeclineGrant, now: int) -> list[Outcome]:
    """End the wait of a request that a person declines. Raises Conflict if no rule asks for one."""
    waiting = _waiting(state, command.grant, now)
    _check(asked, waiting, Approval(digest=command.digest, key=command.key), now)
    _check_asks(waiting, looked_at(state, waiting, now)[1])
    return [outcome(state, asked, NOT_APPROVED, now, {}, Leave(waiting.sequence, "declined"))]


def looked_at(state: State, waiting: Waiting, now: int) -> tuple[Request, Judgement]:
    """Return a request that waits, and how it is judged at stamp ``now``. Raises Problem if the
    terms have changed so that it cannot be priced.
    """
    request = waited(state, waiting.by, waiting.asks(), now)
    return request, evaluate(state, request)


def asking(judgement: Judgement) -> list[str]:
    """Return the rules that ask for a person's approval."""
    return [one.rule for one in judgement.fired if one.action == "approve"]


def _waiting(state: State, name: str, now: int) -> Waiting:
    """Return a request that waits. Raises Conflict if it does not, or its time has passed."""
    found = state.grant(name)
    if isinstance(found, Waiting) and not found.due(now):
        return found
    if isinstance(found, Waiting):
        raise Conflict(
            "wait-is-over",
            f"request {name} waited until {rfc3339(found.expires)} and is refused",
            expires=rfc3339(found.expires),
        )
    became = f"it is {found.status}"
    if isinstance(found, Settled):
        became = f"it was {found.status}"
        became += f" as grant g{found.settled}" if found.status == "admitted" else ""
    raise Conflict(
        "no-approval-needed",
        f"{name} waits for nobody: {became}",
        state=found.status.replace(" ", "_"),
    )


def _check(asked: Envelope, waiting: Waiting, said: Approval, now: int) -> None:
    """Raise Problem unless another person than the client decides about what was read."""
    if said.digest != waiting.digest:
        raise Conflict(
            "approval-digest",
            f"request {waiting.id} has the digest {waiting.digest}, not {said.digest}: read it, "
            "and name the digest of what you read",
            digest=waiting.digest,
        )
    if asked.by == SYSTEM:
        raise Forbidden("same-person", "the service itself approves nothing")
    check_person(first_of(waiting, said.asked_with), asked.by, said.key, now)


def first_of(waiting: Waiting, key: ask.KeyMade | None) -> First:
    """Return who asked, with what is known of their key, as the first of two people."""
    return First(waiting.by, waiting.opened, key, *_WORDS)


_WORDS: Final = "asked for", "approve or decline it; whoever asked can release it"


def _check_asks(waiting: Waiting, judgement: Judgement) -> None:
    if not asking(judgement):
        blocking = ", ".join(one.rule for one in judgement.holding)
        raise Conflict(
            "no-approval-needed",
            f"no rule asks for a person's approval of request {waiting.id} now; it waits for "
            f"budget under {blocking}",
            state="waiting",
        )


def _blocked(state: State, waiting: Waiting, request: Request, judgement: Judgement) -> Conflict:
    """Return why a request cannot be approved now: what blocks it, with both sides in words."""
    document = waiting.asks().to_json()
    reason = in_words(state, request, judgement, document).reason
    return Conflict(
        "approval-blocked",
        f"request {waiting.id} cannot be granted now, whoever approves: rule {reason.rule}: "
        f"{reason.text}. It waits until {rfc3339(waiting.expires)}",
        rules=[one.rule for one in judgement.fired if one.action == "block"],
        reason=reason.code,
    )
