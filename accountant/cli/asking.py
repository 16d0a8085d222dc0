"""accounts, explain, preview, report."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.batches import REFUSED as REFUSED_BATCH
from accountant.budget.commands import AskGrant
from accountant.budget.errors import Invalid
from accountant.budget.explain import Explained
from accountant.budget.outcome import REFUSED
from accountant.cli.common import (
    JsonOption,
    PopulationOption,
    app,
    errors,
    local_service,
    out,
    plain,
    print_json,
    publisher_of,
)
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import INFINITE, Charge, Currency
from accountant.reporting.files import FORMATS, rendered, report_of, write_whole
from accountant.reporting.statement import accounts_json

REFUSALS: Final = (REFUSED, REFUSED_BATCH)
MOST_DIGITS: Final = 15
"""Of an event's sequence."""


@app.command()
def accounts(
    context: typer.Context,
    population: PopulationOption,
    dataset: Annotated[str | None, typer.Option(help="only this dataset")] = None,
    by: Annotated[str | None, typer.Option(help="split by this dimension")] = None,
    json: JsonOption = False,
) -> None:
    """Show per rule what is limited, spent, reserved and left."""
    with local_service(context) as service, service.state(population) as state:
        document = accounts_json(state, dataset, by)
    if json:
        print_json(document)
        return
    show_accounts(document)


def show_accounts(document: dict[str, Any]) -> None:
    """The statement as a table on standard output."""
    table = Table(title=f"ε of {document['population']} at event {document['sequence']}")
    for name in ("rule", "scope", "group"):
        table.add_column(name, overflow="fold")
    for name in ("limit", "spent", "reserved", "left"):
        table.add_column(name, justify="right", overflow="fold")
    for line in document["accounts"]:
        scope = "all datasets" if line["dataset"] == "*" else line["dataset"]
        names = [line["rule"], f"{scope}, {line['client']}" if line["client"] else scope]
        for balance in [line["total"], *line["groups"]]:
            left = "over" if balance["void"] else balance["remaining"]
            cells = [*names, balance["group"], line["limit"]["epsilon"], balance["spent"]]
            cells += [balance["reserved"], left]
            table.add_row(*map(plain, cells), style="red" if balance["over"] else None)
            names = ["", ""]
        table.add_section()
    out.print(table)
    for line in document["accounts"]:
        if len(line["ladder"]) > 1:
            rungs = ", ".join(f"{rung['gate']} {rung['used']}" for rung in line["ladder"])
            out.print(plain(f"{line['rule']}, {line['scope']}, used under every gate: {rungs}"))
    for row in document["lifetime"]:
        name = "all datasets, one person" if row["dataset"] == "*" else row["dataset"]
        out.print(plain(f"lifetime, {name}: ε {row['epsilon']}, δ {row['delta']}"))


@app.command()
def preview(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="a request as for POST …/grants; - reads stdin")],
    population: PopulationOption,
    client: Annotated[str, typer.Option(help="who would ask")] = "preview",
    json: JsonOption = False,
) -> None:
    """Show what a request would be answered, without recording. Exit code 1 if it is blocked."""
    from accountant.api.answers import preview_view  # noqa: PLC0415 (imported late: with Starlette)

    command = AskGrant.model_validate(parse(read_bytes(file)))
    with local_service(context) as service:
        document = preview_view(service.preview(population, client, command))
    decision = document["decision"]
    if json:
        print_json(document)
    else:
        out.print(f"decision: {decision['outcome']}", highlight=False)
        for rule in decision["rules"]:
            mark = rule["action"] if rule["fired"] else "ok"
            out.print(plain(f"  {mark:>5}  {rule['rule']}: {rule['text']}"))
        out.print(f"requests like this that fit: {document['fits']}", highlight=False)
    raise typer.Exit(int(decision["outcome"] == "block"))


@app.command()
def explain(
    context: typer.Context,
    event: Annotated[str, typer.Argument(help="an event, a grant or a decision: 42, g42 or d42")],
    population: PopulationOption,
    json: JsonOption = False,
) -> None:
    """Show the whole decision of an event, with both sides of every comparison.

    Only the event and the policy that was in force are read. Exit code 1 if it was refused.
    """
    number = event[1:] if event[:1] in ("d", "g") else event
    if not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
        raise Invalid("unknown-event", f"{event!r} is no event: name it as 42, g42 or d42")
    from accountant.api.answers import amounts, priced  # noqa: PLC0415 (as above)

    with local_service(context) as service:
        found, explained = service.explain_alone(population, int(number))
    decision = explained.decision
    if json:
        print_json(
            {
                "id": f"d{found.sequence}",
                "type": found.type,
                "sequence": found.sequence,
                "time": rfc3339(found.time),
                "client": found.by,
                "policy": found.body.get("policy"),
                "charge": amounts(found.body["total"]),
                "mechanisms": priced(explained),
            }
            | decision.to_json()
        )
    else:
        _show_decision(found, explained)
    raise typer.Exit(int(found.type in REFUSALS))


def _show_decision(event: Event, explained: Explained) -> None:
    """A decision in lines: what was decided, what it costs, and each rule with its comparisons."""
    decision = explained.decision
    out.print(plain(f"event {event.sequence} ({event.type}), {rfc3339(event.time)}, {event.by}"))
    policy = event.body.get("policy")
    under = "without a policy" if policy is None else f"by the policy of event {policy}"
    out.print(plain(f"decision: {decision.outcome}, {under}"))
    for one in explained.mechanisms:
        charge = Charge.from_json(one["charge"])
        epsilon, delta = charge.amount(Currency.EPSILON), charge.amount(Currency.DELTA)
        count = f"{one['count']} x " if one["count"] > 1 else ""
        out.print(
            plain(f"  {count}{one['kind']}: epsilon {epsilon}, delta {delta} ({one['verdict']})")
        )
    for rule in decision.findings:
        mark = rule.action if rule.fired else "ok"
        out.print(plain(f"  {mark:>5}  {rule.rule}: {rule.text}"))
        for side in rule.numbers.get("comparisons", ()):
            out.print(plain(f"         {_integers(side)}"))


def _integers(side: dict[str, Any]) -> str:
    """One comparison as it was made: used + charge against the capacity, in units."""
    currency = Currency(side["currency"])
    used, charge, capacity = (
        amount if amount == INFINITE else str(int(Decimal(amount) * currency.per_one))
        for amount in (side["used"], side["charge"], side["capacity"])
    )
    holds = "<=" if side["holds"] else ">"
    return f"{currency}: {used} + {charge} {holds} {capacity} (in 1e-{currency.digits})"


def read_bytes(file: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``."""
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


@app.command()
def report(
    context: typer.Context,
    population: PopulationOption,
    form: Annotated[
        str | None, typer.Option("--format", help="html, json or csv; default: as --out ends")
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="default: standard output")] = None,
) -> None:
    """Write the compliance report."""
    form = form or (to and to.suffix.removeprefix(".")) or "html"
    if form not in FORMATS:
        raise Invalid("unknown-format", f"no report format is called {form!r}: html, json or csv")
    with local_service(context) as service:
        published = publisher_of(context, service).last_published(population)
        text = rendered(report_of(service, population, published), form)
    if to is None:
        typer.echo(text, nl=False)
        return
    write_whole(to, text)
    errors.print(f"wrote {to}", markup=False, highlight=False)
