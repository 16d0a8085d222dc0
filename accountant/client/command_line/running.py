"""run: a command under a grant, settled by its exit code.

Once noise may have been drawn the privacy is spent. So whatever happens commits the grant, unless
it is certain that nothing ran: the child was never started, or says so itself by its exit code.
What this program cannot settle, because it was killed or the service is away, expires, and is then
charged in full.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from accountant.client import calls
from accountant.client.command_line import words
from accountant.client.command_line.connecting import connected
from accountant.client.command_line.documents import request_of
from accountant.client.command_line.failures import WRONG, Misuse, told
from accountant.client.command_line.output import say, visible
from accountant.client.command_line.parsers import grant_id
from accountant.client.command_line.signals import Signals
from accountant.client.errors import AccountantError, Failed, MayHaveRun, Unreachable
from accountant.client.sync import Client
from accountant.client.transport import Call

Env = Mapping[str, str]
_REASON: Final = 300  # Characters of a reason that are recorded
_NOT_FOUND, _NOT_STARTED, _BY_SIGNAL = 127, 126, 128  # Exit codes, as shells have them
_ENDED: Final = {
    "committed": "it is committed",
    "released": "nothing ran then, and it is released",
    "expired": "it has expired and is charged in full",
}


class Held(NamedTuple):
    """What is reserved, and until when."""

    id: str
    expires: str


def run(asked: argparse.Namespace, env: Env) -> int:
    """Reserve, run, settle. Return the command's exit code."""
    if not asked.argv:
        raise Misuse("name the command to run: accountant run … -- COMMAND [argument ...]")
    if asked.file == "-":
        raise Misuse("standard input is the command's: put the request into a file")
    call = calls.reserve_as("/grants", request_of(asked), asked.idempotency_key)
    with connected(asked, env) as client, Signals() as signals:
        grant = _reserved(client, call, waits=asked.wait is not None)
        client.close()  # a connection would not outlast the command
        return _run(asked, env, client, signals, grant)


def _reserved(client: Client, call: Call[calls.Reserved], *, waits: bool) -> Held:
    """Return the grant. Raise Refused, MayHaveRun, AccountantError: then nothing may run."""
    try:
        answer = client.until_decided(call, waits=waits)
    except Unreachable as failure:
        failure.add_note("nothing was started; if the budget was reserved, it will be charged")
        raise
    grant = Held(grant_id(answer.body["id"]), str(answer.body["expires"]))
    if answer.earlier:
        raise _may_have_run(client, grant)
    for line in words.flagged(answer.body):
        say(f"{grant.id}: {line.strip()}")
    return grant


def _may_have_run(client: Client, grant: Held) -> MayHaveRun:
    """Return the error for a grant of an earlier run, with how that one ended."""
    error = MayHaveRun(grant.id)
    try:
        state = client.grant_state(grant.id).state
    except AccountantError:
        state = ""
    if state in _ENDED:
        error.add_note(_ENDED[state])
    else:
        error.add_note(
            f"it is charged in full at {grant.expires}, unless you settle it: accountant commit "
            f"{grant.id}, or accountant release {grant.id} --reason … if nothing ran"
        )
    error.add_note("nothing was started now; for another run use another --idempotency-key")
    return error


def _run(asked: argparse.Namespace, env: Env, client: Client, signals: Signals, grant: Held) -> int:
    if signals.noted:
        reason = "stopped by a signal before the command was started"
        return _settle(client, grant, _BY_SIGNAL + signals.noted[0], nothing=reason)
    try:
        child = subprocess.Popen(asked.argv, env=_environment(env, client, grant))  # noqa: S603
    except (OSError, ValueError) as error:
        reason = f"the command could not be started: {error}"
        say(f"{reason} [not-started]")
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_STARTED
        return _settle(client, grant, code, nothing=reason)
    code = signals.waited(child)
    if code < 0:  # a command that was killed attests nothing
        return _settle(client, grant, _BY_SIGNAL - code)
    attested = f"the command ended with exit code {code}, which says that nothing ran"
    return _settle(client, grant, code, nothing=attested if code in asked.nothing_ran else None)


def _environment(env: Env, client: Client, grant: Held) -> dict[str, str]:
    """Return the child's environment: this one's, and its grant."""
    own = {"ACCOUNTANT_GRANT": grant.id, "ACCOUNTANT_URL": client.url}
    return dict(env) | own | {"ACCOUNTANT_POPULATION": client.population}


def _settle(client: Client, grant: Held, code: int, nothing: str | None = None) -> int:
    """Commit the grant, or release it if nothing ran, and say so. Return the exit code."""
    call: Call[Any] = calls.commit(grant.id)
    if nothing is not None:
        call = calls.release(grant.id, visible(nothing)[:_REASON])
    try:
        found = client.report_what_ran(call)
        ended = words.settled(found.body) if found else (f"{grant.id}: {words.WAITS}",)
        line = "; ".join(map(str.strip, ended))
    except Exception as failure:  # noqa: BLE001 the command has run, and its exit code counts
        return _unsettled(grant, code, failure)
    say(line)
    return code


def _unsettled(grant: Held, code: int, failure: Exception) -> int:
    """Tell why a grant was not settled here. Return the exit code."""
    if isinstance(failure, Failed) and failure.code == "grant-settled":
        say(f"{grant.id}: settled by the command itself")
        return code
    if isinstance(failure, Failed) and failure.code == "grant-expired":
        say(f"{grant.id}: expired before the command ended, and is charged in full")
        return code
    failure.add_note(f"{grant.id} is open until {grant.expires}, and then charged in full")
    say(told(failure)[0])
    return code or WRONG
