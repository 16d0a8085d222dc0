"""Each event as a sentence: what happened, by whom, at what cost.

A new type of event needs a line in ``_TELLING``; a test holds the table to all types there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct

from accountant.budget.ancestors import related_in
from accountant.budget.batches import as_single
from accountant.budget.facts import client_in, grant_in, mechanisms_of, request_in, stated_by
from accountant.budget.outcome import REGISTRATIONS
from accountant.console.amounts import up
from accountant.console.facts.asked import cost
from accountant.console.facts.proposed import question
from accountant.ledger.events import Event
from accountant.privacy.units import INFINITE, Charge, Currency
from accountant.reporting.numbers import counted, day, minute
from accountant.reporting.words import groups_in_words, shortened

Tone = Literal["within", "near", "over", "info"]
MOST: Final = 300
"""Characters of a text that a client wrote, in a sentence."""


WARNS: Final = "threshold-passed"
"""The code of a rule that tells how much was used, and never blocks."""


class Sentence(Struct, frozen=True):
    """An event in words, and its badge. ``decision``: rules judged it."""

    sequence: int
    time: str
    tone: Tone
    icon: str
    word: str
    text: str
    decision: bool = False


Told = tuple[Tone, str, str, str]
"""The tone, the icon and the word of a badge, and the sentence."""


def sentence(event: Event, time: str) -> Sentence:
    """Return an event in words, its texts opened (reporting/texts.py); ``time``: RFC 3339."""
    single = as_single(event)
    tell = _TELLING.get(event.type) or _TELLING.get(single.type) or _unknown
    tone, icon, word, text = tell(single)
    return Sentence(event.sequence, time, tone, icon, word, text, "total" in event.body)


def _unknown(event: Event) -> Told:
    return "info", "finding", "Event", event.type


def asked(event: Event) -> str:
    """Return what a judged event is about: "0.250 on marriages, age: 20-24"."""
    command = request_in(event.body)
    costs = cost(Charge.from_json(event.body["total"]), command)
    dataset = command["dataset"]
    named = dataset if isinstance(dataset, str) else " and ".join(dataset)
    group = groups_in_words(command.get("subjects"))
    about = "" if group == "everyone" else f", {group}"
    purpose = command.get("purpose")
    why = f", for “{shortened(purpose, 80)}”" if isinstance(purpose, str) else ""
    return f"{costs} on {named}{about}{why}"


def _fired(event: Event) -> str:
    """Return the rules that fired; without those that only warn, where others did."""
    fired = event.body.get("fired", ())
    grave = [rule for rule, code in fired if code != WARNS]
    return " and ".join(dict.fromkeys(grave or (rule for rule, _ in fired)))


def _reserved(event: Event) -> Told:
    if rules := _fired(event):
        text = f"{client_in(event)} was granted {asked(event)}; rule {rules} flagged it."
        return "near", "near", "Flagged", text
    return "within", "within", "Granted", f"{client_in(event)} was granted {asked(event)}."


def _refused(event: Event) -> Told:
    text = f"{client_in(event)} asked for {asked(event)}: refused by {_fired(event) or 'a rule'}."
    return "over", "over", "Refused", text


def _recorded(event: Event) -> Told:
    ran = counted(
        sum(m.get("count", 1) for m in mechanisms_of(event.body["command"])), "invocation"
    )
    text = f"{event.by} recorded {ran} that had run without a grant: {asked(event)}."
    if event.body.get("overrun"):
        return "over", "over", "Overrun", f"{text} That is over the limit of rule {_fired(event)}."
    if rules := _fired(event):
        return "near", "near", "Flagged", f"{text} Rule {rules} flagged it."
    return "info", "within", "Recorded", text


def _waiting(event: Event) -> Told:
    text = f"{event.by} asked for {asked(event)}. The request waits, held up by {_fired(event)}."
    return "info", "request", "Waits", text


def _settled(event: Event) -> Told:
    grant, by = grant_in(event), event.by
    charge = event.body.get("charge")
    spent = f"{_loss(Charge.from_json(charge)) if charge else up('0', 3)} is"
    if event.type == "grant.expired.v1":
        text = f"Grant {grant} expired without a report: {spent} charged in full."
        return "near", "finding", "Charged", text
    if event.type == "grant.released.v1":
        reason = event.body["command"].get("reason")
        why = f" (“{shortened(reason, MOST)}”)" if isinstance(reason, str) else ""
        return "info", "within", "Released", f"{by} gave grant {grant} back unused{why}."
    return "within", "within", "Spent", f"{by} reported what ran of grant {grant}: {spent} spent."


def _loss(charge: Charge) -> str:
    epsilon = charge.amount(Currency.EPSILON)
    if epsilon != INFINITE:
        return up(epsilon, 3)
    return "a loss without an epsilon of its own" if charge.is_bounded else "an unbounded loss"


def _answered(event: Event) -> Told:
    body = event.body
    so_far = f"{counted(body['positives'], 'positive answer')} and {body['negatives']:,} negative"
    return "info", "within", "Answered", f"{event.by} gave {so_far} so far in {grant_in(event)}."


def _noted(event: Event) -> Told:
    text = f"{event.by} reported on grant {grant_in(event)} after it had expired; the charge stays."
    return "info", "finding", "Noted", text


def _ended(word: str, what: str) -> Callable[[Event], Told]:
    def tell(event: Event) -> Told:
        return "info", "request", word, f"{what.format(by=event.by, grant=grant_in(event))}."

    return tell


def _timed_out(event: Event) -> Told:
    text = f"{client_in(event)} waited in vain for {asked(event)}: refused by {_fired(event)}."
    return "over", "over", "Timed out", text


def _admitted(event: Event) -> Told:
    command = event.body["command"]
    how = f", approved by {event.by}" if "approval" in command else ""
    text = f"{client_in(event)} was granted {asked(event)}, after it had waited{how}."
    return "within", "within", "Granted", text


def _policy(event: Event) -> Told:
    policy, loosens = event.body["command"]["policy"]["policy"], event.body.get("loosens")
    text = f"{_by_two(event)} adopted the policy {policy}"
    text += f". That loosens what is promised: {'; '.join(loosens)}." if loosens else "."
    return "info", "proposal", "Policy", text


def _by_two(event: Event) -> str:
    first = stated_by(event)
    return event.by if first == event.by else f"{first} and {event.by}"


def _population(event: Event) -> Told:
    return "info", "proposal", "People", f"{_by_two(event)} registered the population."


def _extended(event: Event) -> Told:
    added = event.body.get("added") or {}
    what = (
        " and ".join(f"{len(v):,} of {n}" for n, v in sorted(added.items())) or "what never changes"
    )
    new = " whose members owe nothing so far" if event.body["command"].get("attested_new") else ""
    return "info", "proposal", "People", f"{_by_two(event)} added values: {what}{new}."


def _dataset(event: Event) -> Told:
    text = f"{_by_two(event)} registered {event.body['command']['id']}."
    if charged := related_in(event).words:
        text += f" This charged {charged}."
    return "info", "proposal", "Dataset", text


def _proposed(event: Event) -> Told:
    until = minute(event.body["expires"])
    text = f"{event.by} proposed a change: {question(event.body['command'])} Lapses on {until}."
    return "info", "proposal", "Proposal", text


def _declined(event: Event) -> Told:
    command = event.body["command"]
    reason = command.get("reason")
    why = f" (“{shortened(reason, MOST)}”)" if isinstance(reason, str) else ""
    return "info", "over", "Declined", f"{event.by} declined proposal {command['proposal']}{why}."


def _declined_request(event: Event) -> Told:
    reason = event.body["command"].get("reason")
    why = f" (“{shortened(reason, MOST)}”)" if isinstance(reason, str) else ""
    return "over", "over", "Declined", f"{event.by} declined request {grant_in(event)}{why}."


def _batch(event: Event) -> Told:
    command: dict[str, Any] = event.body["command"]
    size = command.get("size", len(command.get("items", ())))
    return "info", "proposal", "Batch", f"{event.by} sent a batch of {counted(size, 'item')}."


def _filed(event: Event) -> Told:
    command = event.body["command"]
    of = f" of {command['dataset']}" if "dataset" in command else ""
    days = f"{day(command['first'])} to {day(command['last'])}"
    text = (
        f"{event.by} filed the {command['report']} report{of} for {days}, as {command['format']}."
    )
    return "info", "proposal", "Report", text


def _refused_batch(event: Event) -> Told:
    return "over", "over", "Refused", f"{event.by} sent a batch, which was refused as a whole."


def _part(event: Event) -> Told:
    held, size = len(event.body["items"]), event.body["command"]["size"]
    text = f"{event.by} asked for {counted(held, 'item')} of a batch of {size}, which was refused."
    return "info", "proposal", "Part", text


def _verified(event: Event) -> Told:
    said = event.body["command"]
    what = f"verified the first {counted(said['size'], 'event')}"
    reason = said.get("reason")
    why = f" (“{shortened(reason, MOST)}”)" if isinstance(reason, str) else ""
    if said["findings"]:
        text = f"{event.by} {what}, with {counted(said['findings'], 'finding')}{why}."
        return "over", "over", "Findings", text
    return "within", "within", "Verified", f"{event.by} {what}, without a finding{why}."


def _plain(tone: Tone, icon: str, word: str, text: str) -> Callable[[Event], Told]:
    """Return what tells an event by a text with fields of it: by, and those of its command."""

    def tell(event: Event) -> Told:
        fields = {**event.body.get("command", {}), "by": event.by}
        return tone, icon, word, text.format_map({n: _short(v) for n, v in fields.items()})

    return tell


def _short(value: Any) -> str:
    return shortened(
        value if isinstance(value, str) else "(sealed)" if "sealed" in str(value) else str(value),
        MOST,
    )


_TELLING: Final[dict[str, Callable[[Event], Told]]] = {
    "grant.reserved.v1": _reserved,
    "grant.refused.v1": _refused,
    "invocation.recorded.v1": _recorded,
    "grant.waiting.v1": _waiting,
    "grant.admitted.v1": _admitted,
    "grant.timed_out.v1": _timed_out,
    "grant.cancelled.v1": _ended("Cancelled", "{by} does not want request {grant} any more"),
    "grant.declined.v1": _declined_request,
    "grant.committed.v1": _settled,
    "grant.released.v1": _settled,
    "grant.expired.v1": _settled,
    "grant.noted.v1": _noted,
    "sparse_vector.answered.v1": _answered,
    "sparse_vector.closed.v1": _settled,
    "answer.republished.v1": _ended(
        "Again", "{by} published an answer of {grant} again, at no charge"
    ),
    "batch.opened.v1": _batch,
    "batch.refused.v1": _refused_batch,
    "batch.part.v1": _part,
    "population.registered.v1": _population,
    "population.extended.v1": _extended,
    **dict.fromkeys(REGISTRATIONS, _dataset),
    "policy.adopted.v1": _policy,
    "change.proposed.v1": _proposed,
    "change.declined.v1": _declined,
    "signing_key.adopted.v1": _plain(
        "info", "proposal", "Key", "The ledger is signed by a new key."
    ),
    "publication.stopped.v1": _plain(
        "over",
        "over",
        "Alarm",
        "The witness {witness} contradicted this ledger; publication stopped.",
    ),
    "publication.resumed.v1": _plain(
        "near", "finding", "Resumed", "{by} let publication go on: “{reason}”."
    ),
    "ledger.recovered.v1": _plain("over", "finding", "Recovered", "{by} recovered the ledger."),
    "ledger.carried_over.v1": _plain(
        "info", "finding", "Recovered", "Signed totals were carried over."
    ),
    "clock.accepted.v1": _plain(
        "near", "request", "Clock", "{by} accepted the clock at {clock}: “{reason}”."
    ),
    "text.erased.v1": _plain("info", "finding", "Erased", "{by} erased texts of event {event}."),
    "report.filed.v1": _filed,
    "ledger.verified.v1": _verified,
    "engine.adopted.v1": _plain(
        "info", "finding", "Bounds", "{by} adopted newer bounds for prices."
    ),
    "charge.revalued.v1": _plain(
        "near", "finding", "Revalued", "{by}: event {event} cost more than was booked for it."
    ),
}
