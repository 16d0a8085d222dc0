"""The account that a run gives at its end: what happened, and what is left."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from accountant.demo.story import Events, happened_in_order, session
from accountant.demo.survey_data import DATASETS, POPULATION, labels

_WORDS: Final = {
    "population.registered.v1": ("population registered", ""),
    "dataset.registered.v1": ("dataset registered", ""),
    "policy.adopted.v1": ("policy adopted", ""),
    "signing_key.adopted.v1": ("signing key adopted", ""),
    "grant.reserved.v1 allow": ("granted", "green"),
    "grant.reserved.v1 flag": ("granted, flagged: nearly used up", "yellow"),
    "grant.committed.v1": ("committed", ""),
    "sparse_vector.answered.v1": ("sparse vector answers counted", ""),
    "sparse_vector.closed.v1": ("sparse vector session closed", ""),
    "invocation.recorded.v1 overrun": ("ran without asking: recorded, over budget", "red"),
    "grant.expired.v1": ("left open by a crash: expired and charged", "yellow"),
    "grant.refused.v1 lifetime": ("refused: lifetime limit would be passed", "red"),
    "grant.refused.v1 reasons": ("refused: no purpose", "red"),
    "grant.refused.v1 no-bare-answers": ("refused: no noise at all", "red"),
    "grant.refused.v1 built-in:claim-understated": ("refused: claimed too little", "red"),
    "grant.refused.v1 built-in:sparse-vector-broken": ("refused: broken algorithm", "red"),
}


def show(console: Console, events: Events, accounts: dict[str, Any]) -> None:
    """Prints the timeline and the totals."""
    closed = session(events)
    console.print(_timeline(events))
    console.print(
        f"The sparse vector session gave {closed['negatives']} free answers and "
        f"{closed['positives']} that cost.",
        highlight=False,
    )
    console.print()
    console.print(_totals(accounts))


def _timeline(events: Events) -> Table:
    """Equal events together, in the order of their first."""
    table = Table(title="What happened", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("after", justify="right")
    table.add_column("who")
    table.add_column("what")
    table.add_column("times", justify="right")
    start = datetime.fromisoformat(events[0]["time"])
    for (client, kind, outcome), (first, times) in happened_in_order(events).items():
        key = f"{kind} {outcome}".rstrip()
        words, style = _WORDS.get(key, (key, ""))
        after = (datetime.fromisoformat(first["time"]) - start).total_seconds()
        who = "the service" if client.startswith(":") else client
        table.add_row(f"{after:.1f} s", who, Text(words, style), str(times))
    return table


def _totals(accounts: dict[str, Any]) -> Group:
    """Epsilon spent by each group of women in each dataset, and over all."""
    lines = {line["dataset"]: line for line in accounts["accounts"] if line["rule"] == "lifetime"}
    lines["*"] = next(line for line in accounts["accounts"] if line["rule"] == "person")
    columns = [*DATASETS, "*"]
    table = Table(
        title=f"ε spent per woman of {POPULATION}, by education",
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("education")
    for dataset in columns:
        limit = lines[dataset]["limit"]["epsilon"]
        name = "all datasets" if dataset == "*" else dataset
        table.add_column(f"{name}\nlimit {limit}", justify="right")
    for i, group in enumerate(labels("education")):
        balances = [lines[dataset]["groups"][i] for dataset in columns]
        cells = [Text(b["spent"], "red" if b["over"] else "") for b in balances]
        table.add_row(group, *cells)
    table.add_section()
    left = [lines[dataset]["total"]["remaining"] for dataset in columns]
    table.add_row("left for everyone", *left)
    over = [
        f"{dataset}, {b['group']}: over the limit, by what had run without asking. The limit's "
        f"promise to these women is broken; ε {b['spent']} is what holds."
        for dataset in DATASETS
        for b in lines[dataset]["groups"]
        if b["over"]
    ]
    return Group(table, *(Text(text, "red") for text in over))
