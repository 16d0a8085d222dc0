"""The reports of an officer and of a population in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from accountant.reporting.numbers import NO_BOUND, counted, down, minute, up
from accountant.reporting.periods.document import (
    Document,
    Section,
    Table,
    evidence,
    loss,
    numbers,
    signatures,
    signed,
    subtitle,
    table,
    texts,
)
from accountant.reporting.periods.head import HeadFacts
from accountant.reporting.periods.officer import (
    SORTS,
    AccountFacts,
    ClientFacts,
    OfficerFacts,
)
from accountant.reporting.periods.people import DimensionFacts, LimitFacts, PeopleFacts
from accountant.reporting.schema import NotableFacts, SeenFacts
from accountant.reporting.verdict import in_words

MOST_ROWS: Final = 200
"""Rows of a table that are printed; JSON and CSV have all."""
STATES: Final = {
    "within": "✓ within",
    "near": "◆ near the limit",
    "used_up": "■ used up",
    "over_if_reservations_run": "▲ over, if reservations are charged",
    "over": "✕ over the limit",
}


def officer_told(facts: OfficerFacts) -> Document:
    """Return the report of an officer."""
    head = facts.head
    return Document(
        title=f"Privacy report of {head.population}",
        subtitle=subtitle(head),
        lede=_lede(facts),
        todo=facts.todo,
        nothing="Nothing. All accounts are within their limits, and nobody waits for a decision.",
        sections=(
            _accounts(head, facts.accounts),
            _requests(facts),
            _refusals(facts),
            _findings(facts),
            _decided(facts),
            _policy(facts),
            _keys(facts),
            evidence(head),
            signatures(),
        ),
        last=head.last,
    )


def _lede(facts: OfficerFacts) -> str:
    over = sum(row.status == "over" for row in facts.accounts)
    asked = sum(facts.requests.get(name, 0) for name in ("admitted", "refused", "recorded"))
    if not facts.head.inside:
        text = "Nothing happened in this period."
    else:
        text = _decisions(asked, facts.requests.get("refused", 0))
    if over:
        return f"{counted(over, 'account is', 'accounts are')} over the limit. {text}"
    return f"No account is over its limit. {text}" if facts.accounts else text


def _decisions(asked: int, refused: int) -> str:
    """Return how many requests were decided, and how many of these refused."""
    if not asked:
        return "No request came to a decision."
    if asked == 1:
        return f"1 request came to a decision: it was {'refused' if refused else 'not refused'}."
    of_them = f"{refused:,} of them {'was' if refused == 1 else 'were'}" if refused else "none was"
    return f"{asked:,} requests came to a decision, {of_them} refused."


def _accounts(head: HeadFacts, accounts: tuple[AccountFacts, ...]) -> Section:
    if not accounts:
        return Section("Accounts", ("No limit promises anything about any dataset yet.",))
    said = (
        "Epsilon that the group which has used most had spent under each limit when the period "
        "began, and at its end. Spent amounts are rounded up, what is left is rounded down."
    )
    if any(row.restarted for row in accounts):
        said += " Where a limit was changed (marked *), it counts in another way than before."
    columns = (
        *texts("Dataset", "State"),
        *numbers("Limit", "At the start", "Change", "At the end", "Reserved", "Left"),
        *texts("Rule"),
    )
    rows = [
        (
            in_words(row.dataset),
            STATES[row.status],
            row.limit,
            loss(row.opening) + ("*" if row.restarted else ""),
            signed(row.change, 3),
            loss(row.spent),
            loss(row.reserved),
            down(row.remaining, 3),
            _rule(row),
        )
        for row in accounts[:MOST_ROWS]
    ]
    return Section("Accounts", (said,), tables=table("", columns, rows, _more(len(accounts))))


def _rule(row: AccountFacts) -> str:
    text = row.rule if row.action == "block" else f"{row.rule} ({row.action} only)"
    return f"{text}, over {row.window}" if row.window else text


def _more(total: int, most: int | None = None, kept: int | None = None) -> str:
    """Say how many rows are left out, and that CSV and JSON have ``kept`` of them, None for all."""
    most = MOST_ROWS if most is None else most
    if total <= most:
        return ""
    have = "all" if kept is None or kept >= total else f"{kept:,}"
    return (
        f"{counted(total - most, 'more row')} of {total:,}: the CSV and JSON reports have {have}."
    )


def _requests(facts: OfficerFacts) -> Section:
    if not facts.requests:
        return Section("Requests", ("There were none.",))
    ended = [(name.capitalize(), f"{number:,}") for name, number in facts.requests.items()]
    clients = table(
        "By client",
        (*texts("Client"), *numbers("Let through", "Recorded after it ran", "Refused")),
        (_client(one) for one in facts.clients[:MOST_ROWS]),
        _more(len(facts.clients)),
    )
    return Section("Requests", facts=tuple(ended), tables=clients)


def _client(one: ClientFacts) -> tuple[str, ...]:
    return one.client, f"{one.admitted:,}", f"{one.recorded:,}", f"{one.refused:,}"


def _refusals(facts: OfficerFacts) -> Section:
    if not facts.requests.get("refused"):
        return Section("Refusals", ("No request was refused.",))
    rules = table(
        "By rule",
        (*texts("Rule"), *numbers("Requests")),
        ((name, f"{number:,}") for name, number in facts.refused_by.items()),
    )
    blocked = next(one for one in facts.seen if one.sort == "blocked")
    return Section("Refusals", tables=(*rules, *_events("The latest", blocked)))


def _findings(facts: OfficerFacts) -> Section:
    sorts = {one.sort: one for one in facts.seen}
    found = [(name, sorts[name]) for name in SORTS if sorts[name].total]
    if not found:
        return Section("Overruns and findings", ("There were none.",))
    each = [_events(_FINDINGS[name], one) for name, one in found]
    return Section("Overruns and findings", tables=tuple(one for tables in each for one in tables))


_FINDINGS: Final = {
    "overrun": "Ran over a limit",
    "against_rule": "Ran against a rule",
    "understated": "Claimed too little",
    "unverifiable": "Made a claim that nothing verifies",
    "flagged": "Let through and flagged",
    "expired": "Expired without a report, and charged in full",
    "given_back": "Given back as never executed",
    "revalued": "Cost more than was booked",
    "attested_new": "Groups whose members were attested to be in no data before",
}


def _events(caption: str, seen: SeenFacts) -> tuple[Table, ...]:
    columns = (*texts("Event", "Time", "Client", "Dataset"), *numbers("Epsilon"), *texts("What"))
    shown = seen.latest[: MOST_ROWS // 4]
    more = f"The latest {len(shown)} of {seen.total:,}." if seen.total > len(shown) else ""
    return table(f"{caption}: {seen.total:,}", columns, map(_event, shown), more)


def _event(one: NotableFacts) -> tuple[str, ...]:
    text = one.text + (f" (for “{one.purpose}”)" if one.purpose else "")
    where, epsilon = one.dataset or "–", up(one.epsilon, 3)
    if one.bounded and epsilon == NO_BOUND:
        epsilon = "none by itself"
    return str(one.sequence), minute(one.time), one.client, where, epsilon, text


def _decided(facts: OfficerFacts) -> Section:
    heading = "Decided by people"
    if not facts.decided:
        return Section(heading, ("Nothing was changed, proposed or declined.",))
    rows = [
        (
            str(one.sequence),
            minute(one.time),
            one.what + (f": “{one.reason}”" if one.reason else ""),
            one.by,
            one.confirmed_by or "–",
        )
        for one in facts.decided[:MOST_ROWS]
    ]
    columns = texts("Event", "Time", "What", "By", "Confirmed by")
    more = _more(facts.decided_total, len(rows), len(facts.decided))
    return Section(heading, tables=table("", columns, rows, more))


def _policy(facts: OfficerFacts) -> Section:
    if facts.policy is None:
        return Section("Policy", ("No policy is in force: every request is refused.",))
    said = f"In force at the end: {facts.policy}."
    if facts.policy_before is None:
        said += " None was when the period began."
    elif not facts.changes:
        said += " It was when the period began, and was not changed."
    rules = table(
        "Its rules", texts("Rule", "What it says"), ((r.id, r.sentence) for r in facts.rules)
    )
    rows = (
        (
            str(one.sequence),
            minute(one.time),
            one.policy,
            " and ".join(filter(None, (one.by, one.confirmed_by))),
            ", ".join(one.loosened) or "–",
            ", ".join(one.opened_epochs) or "–",
        )
        for one in facts.changes
    )
    columns = texts("Event", "Time", "Policy", "By", "Loosened", "New epoch")
    return Section("Policy", (said,), tables=(*table("Adopted", columns, rows), *rules))


def _keys(facts: OfficerFacts) -> Section:
    if not facts.keys:
        return Section("Keys", ("None was made or revoked.",))
    rows = ((minute(o.time), o.what, o.name, o.role or "–", o.by) for o in facts.keys)
    columns = texts("Time", "What", "Name", "Role", "By")
    shown = len(facts.keys)
    return Section("Keys", tables=table("", columns, rows, _more(facts.keys_total, shown, shown)))


def people_told(facts: PeopleFacts) -> Document:
    """Return the report of a population."""
    head = facts.head
    who = "everybody" if facts.cells == 1 else f"{counted(facts.cells, 'group')} of people"
    return Document(
        title=f"Privacy report of the population {head.population}",
        subtitle=subtitle(head),
        lede=f"What {who} had lost on {counted(facts.datasets, 'dataset')}, before and after.",
        todo=(),
        nothing="",
        sections=(
            _lifetime(facts),
            *map(_limited, facts.limits),
            *_left_out(facts),
            _accounts(head, facts.accounts),
            evidence(head),
            signatures(),
        ),
        last=head.last,
    )


def _lifetime(facts: PeopleFacts) -> Section:
    said = (
        "All that was ever booked on each group, over all datasets, as a plain sum of epsilons at "
        "the people who have most; also where no limit counts it."
    )
    if not facts.lifetime:
        said = "The population is not divided into groups; its accounts are below."
    tables = [one for split in facts.lifetime for one in _groups(split, limited=False)]
    return Section("By group, over all datasets", (said,), tables=tuple(tables))


def _left_out(facts: PeopleFacts) -> list[Section]:
    more = facts.limits_total - len(facts.limits)
    if not facts.lifetime or more <= 0:
        return []
    text = (
        f"{counted(more, 'limit is', 'limits are')} not told by group, of {facts.limits_total:,}: "
        "those that are farthest from their ends. They stand among the accounts below."
    )
    return [Section("By group: left out", (text,))]


def _limited(one: LimitFacts) -> Section:
    said = (
        f"What of {one.limit} is spent and reserved under rule {one.rule}, by group. A group has "
        "as much as those of its people who have most."
    )
    tables = [found for split in one.dimensions for found in _groups(split, limited=True)]
    return Section(f"By group: {in_words(one.dataset)}", (said,), tables=tuple(tables))


def _groups(split: DimensionFacts, *, limited: bool) -> Iterable[Table]:
    columns = (*texts(split.dimension), *numbers("At the start", "At the end"))
    if limited:
        columns = (*columns, *numbers("Left"), *texts("State"))
    rows = []
    for one in split.groups[:MOST_ROWS]:
        row: tuple[str, ...] = (one.group, loss(one.opening), loss(one.closing))
        if limited:
            row = (*row, down(one.remaining or "0", 3), STATES[one.status or "within"])
        rows.append(row)
    more = _more(split.values, kept=len(split.groups))
    return table(f"By {split.dimension}", columns, rows, more)
