"""report, export, verify, receipt: what can be shown to others."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from accountant.client import calls
from accountant.client.command_line.connecting import connected
from accountant.client.command_line.failures import Misuse
from accountant.client.command_line.output import print_json, say, show, write_out
from accountant.client.errors import Body, Failed
from accountant.client.files import Whole
from accountant.client.sync import Client

Env = Mapping[str, str]
_FORMS: Final = ("html", "json", "csv", "pdf")
_MOST_WORDS: Final = 500
"""Characters of what was found first."""
_VERIFIER: Final = Path(__file__).parents[2] / "verify_minimal.py"


def report(asked: argparse.Namespace, env: Env) -> int:
    """Fetch the report."""
    form = asked.form or (asked.out and Path(asked.out).suffix.removeprefix(".")) or "html"
    if form not in _FORMS:
        raise Misuse(f"{asked.out!r}: name the report's --format: {', '.join(_FORMS)}")
    with connected(asked, env) as client:
        data = client.report(
            form,
            kind=asked.kind,
            dataset=asked.dataset,
            month=asked.month,
            first=asked.first_day,
            last=asked.last_day,
        )
    return _put(data, asked.out)


def receipt(asked: argparse.Namespace, env: Env) -> int:
    """Fetch a receipt."""
    with connected(asked, env) as client:
        data = client.receipt(asked.event)
    return _put(data, asked.out)


def _put(data: bytes, out: str | None) -> int:
    """Write a document to a file, whole or not at all, or to standard output."""
    if out is None:
        write_out(data)
        return 0
    with Whole(out) as file:
        file.begin()
        file.write(data)
        file.keep()
    say(f"wrote {out}")
    return 0


def export(asked: argparse.Namespace, env: Env) -> int:
    """Fetch the ledger as a bundle."""
    part = {"first": asked.first, "last": asked.last}
    with connected(asked, env) as client:
        manifest = client.evidence(asked.file, **part, texts=not asked.without_texts)
    say(f"wrote {asked.file}: checkpoint of {manifest['tree']['size']} events")
    return 0


def verify(asked: argparse.Namespace, env: Env) -> int:
    """Check a bundle: a file, or what the service gives now."""
    if asked.bundle is not None:
        return _verified(asked, env, asked.bundle)
    with tempfile.TemporaryDirectory(prefix="accountant-") as folder:
        file = Path(folder) / "bundle.tar"
        with connected(asked, env) as client:
            client.evidence(file)
        return _verified(asked, env, str(file))


def _recorded(asked: argparse.Namespace, env: Env, report: Body) -> int:
    """Show what the second verifier reports, and record it under the name of the key; return 1 if
    anything is wrong with it.
    """
    found = report["findings"]
    if asked.json:
        print_json(report)
    else:
        show(*([f"{one['where']}: {one['reason']}" for one in found] or ["no findings"]))
        show(*(f"{name}: {report[name]}" for name in ("ledger", "events", "root")))
    reason = f"{found[0]['where']}: {found[0]['reason']}" if found else ""
    with connected(asked, env) as client:
        root = b64decode(report["root"]).hex()
        stated = int(report["events"]), root, len(found)
        sequence, wrong = record(client, *stated, decided=False, reason=reason)
    say(f"recorded as event {sequence}" + (f": {wrong}" if wrong else ""))
    return int(bool(found or wrong))


def record(
    client: Client, size: int, root: str, findings: int, *, decided: bool, reason: str
) -> tuple[int, str]:
    """Record the result of a verification; return the event. That what was in order is not the
    service's ledger is a finding, which is recorded, and returned in words.
    """
    call = partial(calls.state_verification, size, root, decided=decided)
    try:
        told = client.send(call(findings, reason=reason[:_MOST_WORDS] or None))
    except Failed as error:
        if error.code != "another-ledger":
            raise
        told = client.send(call(1, reason=error.detail[:_MOST_WORDS]))
        return int(told["sequence"]), error.detail
    return int(told["sequence"]), ""


def _verified(asked: argparse.Namespace, env: Env, bundle: str) -> int:
    """Run the second verifier, which is a program of its own, on a bundle."""
    with Path(bundle).open("rb"):
        pass  # that it cannot be read is said here, in our words
    key = ["--key", asked.key] if asked.key else []
    form = ["--json"] if asked.json or asked.record else []
    program = [sys.executable, "-I", str(_VERIFIER), *key, *form, "--", bundle]
    done = subprocess.run(program, check=False, capture_output=asked.record)  # noqa: S603 (ours)
    if asked.record:
        if done.returncode in (0, 1):
            return _recorded(asked, env, json.loads(done.stdout))
        sys.stderr.buffer.write(done.stderr)  # it found nothing out
    if not asked.json:
        if not asked.key:
            say("the keys come from the bundle itself: compare one with a key that you received "
                "independently, or give that one with --key")  # fmt: skip
        say("bytes, signatures, order and sums were checked; `accountant verify --local BUNDLE` "
            "takes every decision again, where the service is installed")  # fmt: skip
    return done.returncode
