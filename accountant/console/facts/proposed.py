"""Changes that wait for a second person, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Command = Mapping[str, Any]


def _policy(command: Command) -> str:
    return f"Adopt the policy {command['policy']['policy']}?"


def _dataset(command: Command) -> str:
    return f"Register the dataset {command['id']} anew, or a second time?"


def _extended(command: Command) -> str:
    return f"Add {' and '.join(sorted(command['added']))} whose members owe nothing so far?"


def _returned(command: Command) -> str:
    return f"Give back what grant {command['grant']} did not use?"


def _key(command: Command) -> str:
    """Say what a key would reach, and for how long, where that is bounded."""
    days, reached = command.get("days"), command.get("populations")
    renews = command["type"] == "renew_key"
    what = "another secret for the key" if renews else "a key"
    parts = [f"Make {what} of the role {command['role']}, {command['name']}"]
    parts += [f"for {' and '.join(reached)} only"] if reached else []
    parts += [f"for {days} {'day' if days == 1 else 'days'}"] if days else []
    return f"{', '.join(parts)}?"


_QUESTIONS: Final[dict[str, Callable[[Command], str]]] = {
    "adopt_policy": _policy,
    "register_dataset": _dataset,
    "register_population": lambda command: "Change the population?",
    "append_values": lambda command: "Add values whose members owe nothing so far?",
    "extend_population": _extended,
    "commit_grant": _returned,
    "release_grant": _returned,
    "close_sparse_vector": _returned,
    "recover": lambda command: "Recover the ledger under another name?",
    "accept_time": lambda command: "Accept the clock of the service?",
    "create_link": lambda command: f"Let {command['name']} sign in as {command['role']}?",
    "create_key": _key,
    "renew_key": _key,
}


def question(command: Command) -> str:
    """Return what a second person is asked to decide, of the command that was proposed."""
    ask = _QUESTIONS.get(command["type"])
    return f"{command['type'].replace('_', ' ').capitalize()}?" if ask is None else ask(command)
