"""policy test: whether a policy says to requests what its cases expect."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from accountant.budget.policy_file import parse_policy, parsed
from accountant.budget.trials.cases import Cases, as_json, never_fired, try_all
from accountant.cli import common
from accountant.cli.policies import File, policy


@policy.command(name="test")
def try_cases(
    file: File,
    cases: Annotated[str, typer.Argument(help="a file of cases; - reads standard input")],
    every_rule: Annotated[
        bool, typer.Option("--every-rule", help="fail if a rule fired in no case")
    ] = False,
    json: common.JsonOption = False,
) -> None:
    """Try a policy file on the requests of a file of cases. Needs no database.

    Exit code 1 if an answer is not what its case expects.
    """
    found, _ = parse_policy(common.read_bytes(file).decode())
    asked = parsed(common.read_bytes(cases).decode(), Cases)
    verdicts = list(try_all(found, asked))
    quiet = never_fired(found, verdicts)
    wrong = [one for one in verdicts if one.wrong]
    if json:
        common.print_json({"cases": list(map(as_json, verdicts)), "never_fired": quiet})
    else:
        table = Table("", "case", "answer", "rules that fired", "what is wrong")
        for one in verdicts:
            fired = ", ".join(dict.fromkeys(one.fired))
            cells = one.case, one.outcome, fired, one.wrong or ""
            table.add_row("no" if one.wrong else "ok", *map(common.plain, cells))
        common.show_table(table)
        common.show(f"{len(verdicts) - len(wrong)} of {len(verdicts)} cases are as expected")
        if quiet:
            common.show(f"rules that fired in no case: {', '.join(quiet)}")
    raise typer.Exit(int(bool(wrong or (every_rule and quiet))))
