"""proposals, confirm, decline: what takes a second person."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from accountant.client import calls
from accountant.client.command_line import approving, words
from accountant.client.command_line.connecting import connected
from accountant.client.command_line.output import print_json, show
from accountant.client.errors import Body
from accountant.client.transport import Call

Env = Mapping[str, str]


def proposals(asked: argparse.Namespace, env: Env) -> int:
    """List the proposals that can be confirmed, or all."""
    with connected(asked, env) as client:
        call = calls.proposals("any" if asked.all else "proposed", of_keys=asked.keys)
        found = client.send(call)
    if asked.json:
        print_json(found)
        return 0
    for one in found:
        show(*words.proposal(one, " --keys" if asked.keys else ""))
    if not found:
        show("nothing waits for a second person")
    return 0


def confirm(asked: argparse.Namespace, env: Env) -> int:
    """Confirm another person's proposal."""
    named = int(asked.proposal), asked.digest, asked.reason, asked.idempotency_key
    return _closed(asked, env, calls.confirm(*named, of_keys=asked.keys))


def decline(asked: argparse.Namespace, env: Env) -> int:
    """Decline a proposal, or withdraw one's own; or a request that waits for a person."""
    if asked.proposal.startswith("g"):
        return approving.decline(asked, env)
    named = int(asked.proposal), asked.reason, asked.idempotency_key
    return _closed(asked, env, calls.decline(*named, of_keys=asked.keys))


def _closed(asked: argparse.Namespace, env: Env, call: Call[Body]) -> int:
    with connected(asked, env) as client:
        found = client.send(call)
    if asked.json:
        print_json(found)
    else:
        show(*words.closed(found))
    return 0
