"""The auditor: keeps evidence early, and checks a bundle later, without the service.

``note`` keeps the ledger's key and a receipt. ``audit`` runs two verifiers that share no code on
the bundle alone, and compares their totals with those that the service shows. Then it changes one
digit of the bundle, which both must find.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from accountant import verify_minimal
from accountant.client import Client
from examples.survey.running import DemoFailed

BY: Final = "education"
BUNDLE: Final = "bundle.tar"
FORGED: Final = "forged.tar"
KEY: Final = "key.txt"
RECEIPT: Final = "receipt.tlog-proof"
FULL: Final = "accountant", "verify"
MINIMAL: Final = ("accountant.verify_minimal",)

Found = dict[str, Any]
"""The result of a verifier, or the accounts of the service."""


def note(accountant: Client, folder: Path) -> str:
    """Keep the key, and a receipt of the first grant. Return an account."""
    events = [event.content for event in accountant.events()]
    granted = next(event for event in events if event["type"] == "grant.reserved.v1")
    adopted = [event for event in events if event["type"] == "signing_key.adopted.v1"]
    key = adopted[-1]["command"]["key"]
    (folder / KEY).write_text(key)
    (folder / RECEIPT).write_bytes(accountant.receipt(granted["sequence"]))
    return (
        f"noted: the ledger signs as {key}\n"
        f"kept: a receipt of event {granted['sequence']}, a grant of {granted['by']}'s; whatever "
        "is shown later has to continue it"
    )


def audit(shown: Found, folder: Path) -> str:
    """Check the bundle twice, and then a forged one. Return an account. Raise DemoFailed."""
    with_key = ("--key", (folder / KEY).read_text())
    full = offline(folder, *FULL, BUNDLE, *with_key, "--checkpoint", RECEIPT, "--by", BY)
    minimal = offline(folder, *MINIMAL, BUNDLE, *with_key)
    if problems := compare(full, minimal, shown):
        raise DemoFailed("; ".join(problems))
    (folder / FORGED).write_bytes(forged((folder / BUNDLE).read_bytes()))
    noticed = []
    for name, program in (("accountant verify", FULL), ("verify_minimal", MINIMAL)):
        findings = offline(folder, *program, FORGED, *with_key)["findings"]
        if not findings:
            raise DemoFailed(f"{name} did not notice that a digit was changed")
        noticed.append(f"one digit of a charge changed, {name}: {in_words(findings)}")
    source = inspect.getsource(verify_minimal)
    checked = [
        f"accountant verify: {full['events']} events; signatures, hashes, every charge derived, "
        "every decision taken and every total added up again: no finding",
        f"verify_minimal, {len(source.splitlines())} lines of plain Python: {minimal['events']} "
        "events; signatures, hashes, every sum and every comparison of a limit: no finding",
        "the ledger continues the receipt; all totals agree with what the service shows",
    ]
    return "\n".join(checked + noticed)


def offline(folder: Path, *arguments: str) -> Found:
    """Return the result of a verifier, run in ``folder`` without our settings."""
    done = subprocess.run(  # noqa: S603 (our own interpreter and modules)
        [sys.executable, "-m", *arguments, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("ACCOUNTANT_")},
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:  # 1: it ran, and has findings
        raise DemoFailed(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def compare(full: Found, minimal: Found, shown: Found) -> list[str]:
    """Return every way in which the verifiers and the service disagree."""
    problems = [f"accountant verify: {in_words([f])}" for f in full["findings"]]
    problems += [f"verify_minimal: {in_words([f])}" for f in minimal["findings"]]
    problems += [
        f"{part}: the service shows other totals than the events amount to"
        for part in ("sequence", "accounts", "lifetime")
        if full["totals"].get(part) != shown[part]
    ]
    lifetime = {row["dataset"]: Decimal(row["epsilon"]) for row in shown["lifetime"]}
    summed = {
        one["dataset"]: Decimal(one["used"]["epsilon"]) / 10**9
        for one in minimal["totals"]
        if not one["rule"] and one["dataset"] in lifetime
    }
    if summed != lifetime:
        problems.append("verify_minimal adds the events up to other totals")
    return problems


def forged(bundle: bytes) -> bytes:
    """Return the bundle with one digit of the first charge of epsilon 0.25 changed."""
    entries = bundle.index(b"tile/entries/")
    return bundle[:entries] + bundle[entries:].replace(b'"epsilon":"25', b'"epsilon":"15', 1)


def in_words(findings: list[Found]) -> str:
    """Return the first finding, and how many more there are."""
    first = findings[0]
    place = next((first[n] for n in ("sequence", "member", "where") if n in first), "bundle")
    text = f"{f'event {place}' if isinstance(place, int) else place}: {first['reason']}"
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return shorten(text, 160, placeholder="…") + more
