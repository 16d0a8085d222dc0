"""What a run did, from the ledger's events alone, and what it must have done.

Noise is random, decisions are not: the parameters alone decide which requests are allowed, flagged
or refused. Only the number of positives in the sparse vector session varies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.survey.survey_data import DATASETS, POPULATION, labels

Events = Sequence[dict[str, Any]]

EXPECTED: Final = {
    # 7 refreshes of 6 counts at epsilon 0.25, beside the survey's 1.02, fill marriages up to 2.77
    # of 3; from 2.4 on (refreshes 6 and 7) they are flagged; the eighth would reach 3.02.
    "dashboard grant.reserved.v1 allow": 30,
    "dashboard grant.reserved.v1 flag": 12,
    "dashboard grant.committed.v1": 42,
    "dashboard grant.refused.v1 lifetime": 1,
    "survey-team grant.reserved.v1 allow": 3,
    "survey-team grant.committed.v1": 2,
    "survey-team sparse_vector.closed.v1": 1,
    "careless grant.refused.v1 built-in:claim-understated": 1,
    "careless grant.refused.v1 reasons": 1,
    "careless grant.refused.v1 no-bare-answers": 1,
    "careless grant.refused.v1 built-in:sparse-vector-broken": 1,
    # One is asked for twice with one key, one is open at the crash.
    "careless grant.reserved.v1 allow": 2,
    "careless grant.committed.v1": 1,
    "careless invocation.recorded.v1 overrun": 1,
    ":accountant grant.expired.v1": 1,
}
"""How often each client must cause each type of event and outcome that spends."""
_SPENDING: Final = (" grant.", " invocation.", " sparse_vector.closed.")
_WORDS: Final = {
    "grant.reserved.v1 allow": "[green]granted",
    "grant.reserved.v1 flag": "[yellow]granted, flagged: nearly used up",
    "invocation.recorded.v1 overrun": "[red]ran without asking: recorded, over budget",
    "grant.expired.v1": "[yellow]left open by a crash: expired and charged",
    "grant.refused.v1 lifetime": "[red]refused: lifetime limit would be passed",
    "grant.refused.v1 reasons": "[red]refused: no purpose",
    "grant.refused.v1 no-bare-answers": "[red]refused: no noise at all",
    "grant.refused.v1 built-in:claim-understated": "[red]refused: claimed too little",
    "grant.refused.v1 built-in:sparse-vector-broken": "[red]refused: broken algorithm",
}
"""The kinds of events in words; the type says enough of all others."""


def differences(events: Events) -> list[str]:
    """Return every way in which the ledger tells another story than it must."""
    found = Counter(key for key in map(_key, events) if any(kind in key for kind in _SPENDING))
    return [
        f"{key} happened {found[key]} times, not {EXPECTED.get(key, 0)}"
        for key in sorted(EXPECTED | found)
        if found[key] != EXPECTED.get(key, 0)
    ]


def show(console: Console, events: Events, accounts: dict[str, Any]) -> None:
    """Print a row for equal events of one client, in the order of the first, and the totals."""
    table = _table("What happened", "after>", "client", "event", "times>")
    start = datetime.fromisoformat(events[0]["time"])
    times = Counter(map(_key, events))
    first = {_key(event): event["time"] for event in reversed(events)}
    for key, count in times.items():
        after = (datetime.fromisoformat(first[key]) - start).total_seconds()
        client, _, kind = key.partition(" ")
        words = _WORDS.get(kind) or kind.removesuffix(".v1").replace(".", " ").replace("_", " ")
        client = "the service" if client.startswith(":") else client
        table.add_row(f"{after:.1f} s", client, words, str(count))
    console.print(table)
    [closed] = [event for event in events if event["type"] == "sparse_vector.closed.v1"]
    answers = f"{closed['negatives']} free answers and {closed['positives']} that cost"
    console.print(f"The sparse vector session gave {answers}.\n")
    _show_totals(console, accounts)


def _show_totals(console: Console, accounts: dict[str, Any]) -> None:
    """Print the epsilon spent by each group of women on each dataset, and over all."""
    found = {line["dataset"]: line for line in accounts["accounts"]}
    lines = {dataset: found[dataset] for dataset in (*DATASETS, "*")}  # "*": the rule `person`
    heads = [
        f"{dataset.replace('*', 'all datasets')}\nlimit {line['limit']['epsilon']}>"
        for dataset, line in lines.items()
    ]
    table = _table(f"ε spent per woman of {POPULATION}, by education", "education", *heads)
    for i, group in enumerate(labels("education")):
        balances = [line["groups"][i] for line in lines.values()]
        table.add_row(group, *(Text(b["spent"], "red" if b["over"] else "") for b in balances))
    table.add_section()
    table.add_row("left for everyone", *(line["total"]["remaining"] for line in lines.values()))
    console.print(table)
    for dataset in DATASETS:
        for balance in lines[dataset]["groups"]:
            if balance["over"]:
                console.print(
                    f"{dataset}, {balance['group']}: over the limit, because of a run without a "
                    f"grant. The guarantee for these women is now ε {balance['spent']}.",
                    style="red",
                )


def _table(title: str, *columns: str) -> Table:
    """Return a table; a column that ends in ">" is aligned to the right."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left")
    return table


def _key(event: dict[str, Any]) -> str:
    """Return the client, type and outcome of an event."""
    key, fired = f"{event['by']} {event['type']}", event.get("fired", [])
    match event["type"]:
        case "grant.refused.v1":
            return f"{key} {fired[0][0]}"  # a rule that blocks comes first
        case "invocation.recorded.v1" if event.get("overrun"):
            return f"{key} overrun"
        case "invocation.recorded.v1" | "grant.reserved.v1":
            return f"{key} {'flag' if fired else 'allow'}"
    return key
