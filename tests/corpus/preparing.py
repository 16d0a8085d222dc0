"""What the generator needs of the program, and nothing else does: requests as a ledger holds them,
and a second look at the events that came of them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from driver import Ledger, policy_of

from accountant.budget.commands import command_from_json
from accountant.budget.errors import Problem
from accountant.budget.replay import replay

Json = dict[str, Any]


def stored_form(command: Json) -> Json:
    """A command as a ledger holds it: defaults left out, amounts in their one spelling."""
    return command_from_json(command).to_json()


def mechanism_form(mechanism: Json) -> Json:
    """A mechanism as a ledger holds it."""
    asking = {"type": "record_invocations", "dataset": "d", "mechanisms": [mechanism]}
    [found] = stored_form(asking)["mechanisms"]
    return dict(found)


def policy_command(text: str, approved_by: str | None) -> Json:
    """The command that adopts a policy file; without the policy where the file is malformed."""
    command: Json = {"type": "adopt_policy"}
    with suppress(Problem):
        command["policy"] = policy_of(text)
    return command | ({"approved_by": approved_by} if approved_by else {})


def unsound(ledger: Ledger) -> list[str]:
    """What is wrong with the events that a ledger has produced: each is decided again. That no
    event proposes what two people decided is so in every ledger of the corpus (``driver``).
    """
    last = list(replay(ledger.state.ledger, ledger.stored))[-1]
    again = Ledger(ledger.state.ledger)
    again.state = last.state
    found = [
        f"event {finding.sequence}: {finding.reason}"
        for finding in last.findings
        if "has no proposal" not in finding.reason
    ]
    return found if again.totals() == ledger.totals() else [*found, "the totals differ"]
