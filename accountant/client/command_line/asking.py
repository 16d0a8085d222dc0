"""grant, grants, accounts, preview, explain: what is asked of the budget."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from accountant.client import calls
from accountant.client.command_line import words
from accountant.client.command_line.connecting import connected
from accountant.client.command_line.documents import request_of
from accountant.client.command_line.failures import REFUSED, Misuse
from accountant.client.command_line.output import print_json, show
from accountant.client.errors import Body, Unreachable

Env = Mapping[str, str]


def grant(asked: argparse.Namespace, env: Env) -> int:
    """Reserve budget."""
    call = calls.reserve_as("/grants", request_of(asked), asked.idempotency_key)
    with connected(asked, env) as client:
        try:
            reserved = client.send(call)
        except Unreachable as failure:
            failure.add_note(
                "the budget may be reserved: ask again, in the same words, with "
                f"--idempotency-key {failure.idempotency_key}"
            )
            raise
    if asked.json:
        print_json(reserved.body | {"repeated": reserved.repeated})
    else:
        show(*words.reserved(reserved.body, repeated=reserved.repeated))
    return REFUSED if reserved.body["state"] == calls.WAITS else 0  # nothing may run yet


def grants(asked: argparse.Namespace, env: Env) -> int:
    """List the open grants of this key."""
    with connected(asked, env) as client:
        found = [one.body for one in client.open_grants("me", asked.dataset)]
    if asked.json:
        print_json(found)
    else:
        show(*words.open_grants(found))
    return 0


def accounts(asked: argparse.Namespace, env: Env) -> int:
    """Show the accounts."""
    with connected(asked, env) as client:
        found = client.accounts(asked.dataset, asked.by).body
    if asked.json:
        print_json(found)
    else:
        show(*words.accounts(found))
    return 0


def preview(asked: argparse.Namespace, env: Env) -> int:
    """Show a decision that is not taken."""
    if asked.client is not None:
        raise Misuse("--client goes with --local: a service asks for the client of the key")
    body = request_of(asked)
    if "items" in body:
        return _preview_batch(asked, env, body["items"])
    with connected(asked, env) as client:
        found = client.send(calls.preview_of(body)).body
    if asked.json:
        print_json(found)
    else:
        show(*words.preview(found))
    return REFUSED if found["decision"]["outcome"] == "block" else 0


def _preview_batch(asked: argparse.Namespace, env: Env, items: Sequence[Body]) -> int:
    with connected(asked, env) as client:
        found = client.send(calls.preview_batch(items))
    if asked.json:
        print_json(found.body)
    else:
        show(*words.previews(found.body))
    return REFUSED if found.granted < len(found.items) else 0


def explain(asked: argparse.Namespace, env: Env) -> int:
    """Show a decision that was taken."""
    with connected(asked, env) as client:
        found = client.decision(f"d{asked.event}").body
    if asked.json:
        print_json(found)
    else:
        show(*words.decision(found))
    return REFUSED if found["type"] in words.REFUSALS else 0
