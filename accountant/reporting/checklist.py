"""The checklist after NIST SP 800-226, "Guidelines for Evaluating Differential Privacy Guarantees":
what the ledger can answer of a deployment, where to look, and what people have to answer.

It follows the factors of the publication's pyramid, from the guarantee down to the data. The words
are ours.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from accountant.reporting.numbers import counted
from accountant.reporting.periods.document import Document, Section, table, texts
from accountant.reporting.schema import Report
from accountant.reporting.verdict import in_words

SOURCE: Final = (
    "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025)"
)


class Asked(NamedTuple):
    """A question: what the ledger says to it, where that is written, and what is left to people."""

    question: str
    ledger: str
    where: str
    people: str = "–"


def checklist(report: Report) -> Document:
    """Return the checklist of a ledger as of its last event."""
    head = report.ledger
    day = head.last_time[:10] if head.last_time else "1970-01-01"
    parts = {
        "The guarantee": _guarantee(report),
        "Algorithms and their correctness": _algorithms(report),
        "Utility and bias": _utility(),
        "Trust and side channels": _trust(report),
        "Security and access": _security(report),
        "Collection of the data": _collection(),
    }
    columns = texts("Question", "What the ledger says", "Where", "For people to answer")
    asked = sum(len(one) for one in parts.values())
    left = sum(one.people != "–" for each in parts.values() for one in each)
    return Document(
        title=f"Checklist of {report.ledger_name} after NIST SP 800-226",
        subtitle=f"As of event {head.last_sequence}, {day}. {SOURCE}.",
        lede=f"{asked} questions about the guarantee; {left} of them need an answer by people too.",
        todo=(),
        nothing="",
        sections=tuple(
            Section(name, tables=table("", columns, (tuple(one) for one in each)))
            for name, each in parts.items()
        ),
        last=day,
    )


def _guarantee(report: Report) -> tuple[Asked, ...]:
    people = report.population
    main = [one for one in report.limits if not one.divides]
    each = "; ".join(
        f"{in_words(one.dataset)}: epsilon {one.limit.epsilon}, delta {one.limit.delta}"
        + (f" over {one.window}" if one.window else "")
        for one in main[:20]
    )
    more = f"; and {len(main) - 20} more" if len(main) > 20 else ""
    void = [one for one in main if one.status == "over"]
    spent = f"{len(void)} of {len(main)} limits were exceeded" if void else "no limit was exceeded"
    bare = [one.id for one in report.datasets if one.status == "no_limit"]
    covered = f"{len(bare)} datasets have no limit" if bare else "every dataset has a limit"
    return (
        Asked(
            "How large are epsilon and delta?",
            f"{each}{more}" if each else "No limit is in force.",
            "report; docs/reference/rules.md",
            "Why these amounts? (docs/how-to/choose-epsilon.md)",
        ),
        Asked(
            "What is the unit of privacy?",
            f"{people.unit}. {people.neighbouring_in_words}" if people else "None is registered.",
            "docs/reference/units.md",
            "Does that cover all that one person contributes?",
        ),
        Asked(
            "Do losses of several releases add up, and is the total bounded?",
            f"All charges to a person add up, whoever asks; {covered}; {spent}.",
            "accountant accounts; docs/explanation/privacy-accounting.md",
        ),
        Asked(
            "Does a budget refresh?",
            _refreshes([one.window for one in main if one.window]),
            "docs/reference/rules.md",
            "Is the lifetime total acceptable, too?",
        ),
    )


def _refreshes(windows: list[str]) -> str:
    if not windows:
        return "No: every limit counts for all time."
    return f"Yes, in {len(windows)} limits ({', '.join(sorted(set(windows))[:5])})."


def _without_noise(report: Report) -> str:
    """Return how many charges nothing bounds. Training has no epsilon by itself, and is bounded in
    another currency.
    """
    rows = [row for data in report.datasets for row in data.by_kind if row.unbounded]
    lost = sum(row.unbounded for row in rows if not row.bounded)
    trained = sum(row.unbounded for row in rows if row.bounded)
    said = "No charge is without a bound."
    if lost:
        said = "1 charge has no bound." if lost == 1 else f"{lost} charges have no bound."
    if trained:
        said += f" {trained} have no epsilon by themselves, and a bound in another currency."
    return said


def _algorithms(report: Report) -> tuple[Asked, ...]:
    kinds = sorted({one.name or "not named" for data in report.datasets for one in data.by_kind})
    doubtful = {one.sort: one.total for one in report.notable}
    return (
        Asked(
            "Which mechanisms were used?",
            ", ".join(kinds) or "None yet.",
            "report, by kind; docs/reference/mechanisms.md",
            "Which library draws the noise, in which version?",
        ),
        Asked(
            "Is each loss derived rather than claimed?",
            f"Claims that nothing verifies: {counted(doubtful.get('unverifiable', 0), 'request')}; "
            f"{doubtful.get('understated', 0)} claimed less than their mechanism costs.",
            "accountant explain; docs/reference/mechanisms.md",
            "Are stated sensitivities right for the data?",
        ),
        Asked(
            "Was anything released without noise?",
            _without_noise(report),
            "report",
            "Was anything published that nobody recorded?",
        ),
        Asked(
            "Can the account be checked by somebody else?",
            "Yes: every charge and decision is decided again from the events, by two verifiers.",
            "accountant verify; docs/evidence.md",
        ),
    )


def _utility() -> tuple[Asked, ...]:
    return (
        Asked(
            "How accurate are the answers?",
            "The ledger does not see them.",
            "docs/how-to/answer-a-query.md",
            "What error is acceptable, and was it met?",
        ),
        Asked(
            "Whom does the noise hurt most?",
            "Amounts by subject group are in the report of the population.",
            "accountant report --kind population",
            "Are small groups worse off by noise, clamping or thresholds?",
        ),
    )


def _trust(report: Report) -> tuple[Asked, ...]:
    given = sum(one.released + one.in_part for one in report.trusted)
    return (
        Asked(
            "Who is trusted with the data: a central curator, or nobody?",
            "Kinds of local mechanisms are named in the report.",
            "report, by kind",
            "Who can read the raw data?",
        ),
        Asked(
            "What rests on the word of a client?",
            f"{counted(given, 'grant was', 'grants were')} given back as never run, whole or in "
            "part.",
            "report, taken on trust; docs/reference/rules.md (trusted)",
            "Is it acceptable for these clients?",
        ),
        Asked(
            "Do numbers in a computer, timing or failures leak?",
            "Prices are proved bounds in whole numbers. The noise is not drawn here.",
            "SECURITY.md; docs/how-to/opendp.md",
            "Is the noise drawn by a library that is safe against floating point and timing?",
        ),
        Asked(
            "Do refusals leak?",
            "Decisions depend on the requests only, never on the data.",
            "docs/explanation/privacy-accounting.md",
        ),
    )


def _security(report: Report) -> tuple[Asked, ...]:
    changes = report.policy.latest_changes if report.policy else ()
    two = sum(one.confirmed_by is not None for one in changes)
    checkpoint = report.ledger.checkpoint
    signed, witnesses = "nothing is signed", ""
    if checkpoint:
        signed = f"the first {checkpoint.size:,} events are signed"
        some = counted(checkpoint.cosigned, "witness", "witnesses")
        witnesses = f", {some if checkpoint.cosigned else 'no witness'} confirmed it"
    return (
        Asked(
            "Who may ask, decide and change the rules?",
            f"Keys have roles; {counted(two, 'policy', 'policies')} of the latest {len(changes)} "
            "took two people.",
            "docs/reference/access.md; docs/how-to/confirm-a-change.md",
            "Who holds the keys, and who may reach the data beside the ledger?",
        ),
        Asked(
            "Would a change of the record be seen?",
            f"{signed[0].upper()}{signed[1:]}{witnesses}.",
            "docs/evidence.md; SECURITY.md",
        ),
        Asked(
            "Does the record hold personal data?",
            "No: groups are selections by public attributes; free texts can be erased.",
            "docs/adr/0013-free-text-beside-the-ledger.md",
            "Do purposes and reasons name nobody?",
        ),
    )


def _collection() -> tuple[Asked, ...]:
    return (
        Asked(
            "How are the data collected and kept?",
            "The ledger does not see the data.",
            "–",
            "Is no more collected than needed, is it deleted in time, who consented?",
        ),
    )
