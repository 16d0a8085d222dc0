"""approvals, approve, and decline of a request that waits for a person."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from accountant.client import calls
from accountant.client.command_line import words
from accountant.client.command_line.connecting import connected
from accountant.client.command_line.failures import Misuse
from accountant.client.command_line.output import print_json, show

Env = Mapping[str, str]


def approvals(asked: argparse.Namespace, env: Env) -> int:
    """List the requests that wait for a person."""
    with connected(asked, env) as client:
        found = client.send(calls.approvals())
    if asked.json:
        print_json(found)
        return 0
    for one in found:
        show(*words.approval(one, client.population))
    if not found:
        show("no request waits for a person")
    return 0


def approve(asked: argparse.Namespace, env: Env) -> int:
    """Approve another person's request."""
    call = calls.approve(asked.grant, asked.digest, asked.reason, asked.idempotency_key)
    with connected(asked, env) as client:
        found = client.send(call)
    if asked.json:
        print_json(found)
    else:
        show(f"{asked.grant}: approved, and granted as {found['id']} until {found['expires']}")
    return 0


def decline(asked: argparse.Namespace, env: Env) -> int:
    """Decline another person's request."""
    if asked.digest is None:
        raise Misuse("a request is declined by the digest of what you read: --digest")
    call = calls.decline_grant(asked.proposal, asked.digest, asked.reason, asked.idempotency_key)
    with connected(asked, env) as client:
        found = client.send(call)
    if asked.json:
        print_json(found)
    else:
        show(f"{found['id']}: declined, event {found['sequence']}")
    return 0
