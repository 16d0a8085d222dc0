"""commit, release, record, deliver: what is reported of what ran."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from accountant.client import calls
from accountant.client.command_line import words
from accountant.client.command_line.connecting import connected
from accountant.client.command_line.documents import mechanisms_of, read_bytes, request_of
from accountant.client.command_line.failures import REFUSED, WRONG, Misuse, told
from accountant.client.command_line.output import print_json, say, show
from accountant.client.errors import Unreachable
from accountant.client.results import Document
from accountant.client.sync import Client
from accountant.client.transport import Call

Env = Mapping[str, str]


def commit(asked: argparse.Namespace, env: Env) -> int:
    """Report what was executed under a grant."""
    ran = mechanisms_of(asked.mechanism) if asked.mechanism else None
    return _settle(
        asked, env, calls.commit(asked.grant, ran, idempotency_key=asked.idempotency_key)
    )


def release(asked: argparse.Namespace, env: Env) -> int:
    """Attest that nothing was executed under a grant."""
    key = asked.idempotency_key
    return _settle(asked, env, calls.release(asked.grant, asked.reason, idempotency_key=key))


def republish(asked: argparse.Namespace, env: Env) -> int:
    """Record that an answer of a committed grant is published again."""
    datasets = asked.dataset[0] if len(asked.dataset) == 1 else asked.dataset
    answer = read_bytes(asked.answer)
    call = calls.republish(asked.grant, datasets, answer, asked.idempotency_key)
    with connected(asked, env) as client:
        found = client.send(call)
    return _shown(asked, found, [f"answer {found.answer}: published again at no charge"])


def record(asked: argparse.Namespace, env: Env) -> int:
    """Record what already ran."""
    call = calls.record_as(request_of(asked), asked.idempotency_key)
    with connected(asked, env) as client:
        found = _reported(client, call)
    return _shown(asked, found, words.recorded(found.body) if found else ())


def _settle(asked: argparse.Namespace, env: Env, call: Call[Any]) -> int:
    with connected(asked, env) as client:
        found = _reported(client, call)
    return _shown(asked, found, words.settled(found.body) if found else ())


def _reported(client: Client, call: Call[Any]) -> Any:
    """Return the answer to a report; None if it waits in the spool. Raise AccountantError."""
    try:
        return client.report_what_ran(call)
    except Unreachable as failure:
        failure.add_note(
            "it may be booked: report it again, in the same words, with "
            f"--idempotency-key {failure.idempotency_key}"
        )
        raise


def _shown(asked: argparse.Namespace, found: Document | None, lines: Iterable[str]) -> int:
    if found is None:
        say(words.WAITS)
    if asked.json:
        print_json({"waits": True} if found is None else found.body)
    else:
        show(*lines)
    return 0


def deliver(asked: argparse.Namespace, env: Env) -> int:
    """Report what waits in the spool. Exit code 1 if a report was rejected."""
    folder = asked.spool or env.get("ACCOUNTANT_SPOOL")
    if not folder:
        raise Misuse("name the folder: ACCOUNTANT_SPOOL or --spool", "not-configured")
    with connected(asked, env, spool=folder) as client:
        sent, rejected, stopped = client.deliver()
        left = sum(1 for _ in client.spool.waiting(client.population)) if client.spool else 0
    for file in rejected:
        say(f"the service rejects this report; it is put aside with the reason: {file}")
    if asked.json:
        print_json({"delivered": sent, "rejected": list(map(str, rejected)), "waiting": left})
    else:
        show(f"delivered: {sent}, rejected: {len(rejected)}, still waiting: {left}")
    if stopped is not None:
        say(told(stopped)[0])
        return WRONG
    return REFUSED if rejected else 0
