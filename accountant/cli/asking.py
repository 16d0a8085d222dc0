"""accounts, explain, preview."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import INFINITE, SURE, Currency

# What works on the service is loaded by the command that needs it: half of a second each.
if TYPE_CHECKING:
    from accountant.budget.explain import Explained

_MOST_DIGITS: Final = 15
"""The most digits of an event's sequence."""


@common.app.command()
def accounts(
    population: common.PopulationOption,
    dataset: Annotated[str | None, typer.Option(help="show only this dataset")] = None,
    by: common.ByOption = None,
    json: common.JsonOption = False,
    local: common.LocalOption = False,
) -> None:
    """Show the limit of each rule and the spent, reserved and remaining amounts."""
    from accountant.reporting.statement import accounts_json  # noqa: PLC0415

    with common.local_service() as service:
        document = accounts_json(service.state(population), dataset, by)
    if json:
        common.print_json(document)
    else:
        show_accounts(document)


def show_accounts(document: dict[str, Any]) -> None:
    """Print the accounts as a table on standard output."""
    table = Table(title=f"ε of {document['population']} at event {document['sequence']}")
    for name in ("rule", "scope", "group"):
        table.add_column(name, overflow="fold")
    for name in ("limit", "spent", "reserved", "left"):
        table.add_column(name, justify="right", overflow="fold", no_wrap=True)
    for line in document["accounts"]:
        names = [line["rule"], line["scope"].removeprefix("dataset ")]
        for balance in [line["total"], *line["groups"]]:
            left = "over" if balance["void"] else balance["remaining"]
            cells = [*names, balance["group"], line["limit"]["epsilon"], balance["spent"]]
            cells += [balance["reserved"], left]
            table.add_row(*map(common.plain, cells), style="red" if balance["over"] else None)
            names = ["", ""]
        table.add_section()
    common.show_table(table)
    for line in document["accounts"]:
        if len(line["ladder"]) > 1:
            used = ", ".join(f"{rung['gate']} {rung['used']}" for rung in line["ladder"])
            common.show(f"{line['rule']}, {line['scope']}, used by each filter: {used}")
    for row in document["lifetime"]:
        name = "all datasets, one person" if row["dataset"] == "*" else row["dataset"]
        common.show(f"lifetime, {name}: ε {row['epsilon']}, δ {row['delta']}")


@common.app.command()
def preview(
    file: Annotated[str, typer.Argument(help="a request as for POST …/grants; - reads stdin")],
    population: common.PopulationOption,
    client: Annotated[str, typer.Option(help="the client that would ask")] = "preview",
    json: common.JsonOption = False,
    local: common.LocalOption = False,
) -> None:
    """Show the decision that a request would get, without recording it.

    Exit code 1 if it would be blocked.
    """
    from accountant.api.views import preview_view  # noqa: PLC0415
    from accountant.budget.commands import AskGrant  # noqa: PLC0415

    command = AskGrant.model_validate(parse(common.read_bytes(file)))
    with common.local_service() as service:
        document = preview_view(service.preview(population, client, command))
    decision = document["decision"]
    if json:
        common.print_json(document)
    else:
        note = f" ({document['note']})" if "note" in document else ""
        common.show(f"decision: {decision['outcome']}{note}")
        for rule in decision["rules"]:
            _show_rule(rule["rule"], rule["action"] if rule["fired"] else "ok", rule["text"])
        common.show(f"requests like this that the limits admit: {document['fits']}")
    raise typer.Exit(int(decision["outcome"] == "block"))


@common.app.command()
def explain(
    event: Annotated[str, typer.Argument(help="an event, grant or decision: 42, g42 or d42")],
    population: common.PopulationOption,
    json: common.JsonOption = False,
    local: common.LocalOption = False,
) -> None:
    """Show the whole decision of an event, with both sides of every comparison.

    Reads only the event and the policy that was in force. Exit code 1 if the request was refused.
    """
    from accountant.api.views import in_full, listed_as  # noqa: PLC0415
    from accountant.budget.batches import REFUSED as REFUSED_BATCH  # noqa: PLC0415
    from accountant.budget.outcome import REFUSED  # noqa: PLC0415

    number = event[1:] if event[:1] in ("d", "g") else event
    if not (number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        raise Invalid("unknown-event", f"{event!r} is not an event: write 42, g42 or d42")
    with common.local_service() as service:
        found, explained = service.explain_alone(population, int(number))
    if json:
        document = in_full(found, explained, found.body["command"])
        if "exhausted" in document:
            document["exhausted"]["listed"] = listed_as(explained.exhausted)
            document["exhausted"].pop("address", None)
        common.print_json({"policy": found.body.get("policy"), **document})
    else:
        _show_decision(found, explained)
    raise typer.Exit(int(found.type in (REFUSED, REFUSED_BATCH)))


def _show_decision(event: Event, explained: Explained) -> None:
    """Print the decision, the charge of each mechanism, and each rule with its comparisons; then
    every exhausted account.
    """
    from accountant.console.facts.exhausted import exhausted as in_words  # noqa: PLC0415

    decision = explained.decision
    common.show(f"event {event.sequence} ({event.type}), {rfc3339(event.time)}, {event.by}")
    policy = event.body.get("policy")
    under = "without a policy" if policy is None else f"by the policy of event {policy}"
    common.show(f"decision: {decision.outcome}, {under}")
    request = explained.request
    for mechanism, price in zip(request.mechanisms, request.priced, strict=True):
        epsilon, delta = map(price.charge.amount, SURE)
        what = f"{mechanism.count} x {mechanism.kind}" if mechanism.count > 1 else mechanism.kind
        costs = f"epsilon {epsilon}"
        if epsilon == INFINITE and price.charge.is_bounded:
            costs = "no epsilon by itself"
        common.show(f"  {what}: {costs}, delta {delta} ({price.verdict})")
    for rule in decision.findings:
        _show_rule(rule.rule, rule.action if rule.fired else "ok", rule.text)
        for side in rule.numbers.get("comparisons", ()):
            common.show(f"         {_integers(side)}")
    if (exhausted := in_words(explained.exhausted)) is not None:
        common.show(f"exhausted accounts: {exhausted.accounts}")
        for full in exhausted.entries:
            common.show(f"  {full.rule}, {full.data}: {full.cells}")
        if exhausted.shortened:
            common.show("  (long lists of names are cut: --json has all)")


def _show_rule(rule: str, mark: str, text: str) -> None:
    common.show(f"  {mark:>5}  {rule}: {text}")


def _integers(side: dict[str, Any]) -> str:
    """Write one comparison as it was made: used + charge against the capacity, in units."""
    currency = Currency(side["currency"])
    used, charge, capacity = (
        amount if amount == INFINITE else str(int(Decimal(amount) * currency.per_one))
        for amount in (side["used"], side["charge"], side["capacity"])
    )
    holds = "<=" if side["holds"] else ">"
    return f"{currency}: {used} + {charge} {holds} {capacity} (in 1e-{currency.digits})"
