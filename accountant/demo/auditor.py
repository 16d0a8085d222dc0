"""An auditor: takes evidence home and checks it there, without the service.

``note`` writes down the ledger's key and keeps a receipt, early on. ``audit`` is for when the
operator has handed a bundle over: it is checked in a folder of its own, without the service, its
database or any key, by two programs that share no code; the totals that follow must be those that
the service shows. Then one digit is changed, to see whether that is noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from accountant.client import Accountant
from accountant.demo.survey_data import POPULATION

BY: Final = "education"
BUNDLE: Final = "bundle.tar"
FORGED: Final = "forged.tar"
KEY: Final = "key.txt"
RECEIPT: Final = "receipt.tlog-proof"
FULL: Final = "accountant", "verify"
MINIMAL: Final = ("accountant.verify_minimal",)
console = Console(highlight=False)

Report = dict[str, Any]


def main() -> None:
    """Exit code 0: everything agrees; 1: something does not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("act", choices=("note", "audit"))
    parser.add_argument("folder", type=Path, help="the auditor's own folder")
    chosen = parser.parse_args()
    with Accountant.from_environment(POPULATION) as accountant:
        if chosen.act == "note":
            note(accountant, chosen.folder)
        else:
            audit(accountant.accounts(by=BY), chosen.folder)


def note(accountant: Accountant, folder: Path) -> None:
    """Writes down what nobody can change afterwards: the key, and a receipt."""
    granted = next(e for e in accountant.events() if e.type == "grant.reserved.v1").content
    receipt = accountant.receipt(granted["sequence"])
    keys = [e.content for e in accountant.events() if e.type == "signing_key.adopted.v1"]
    key = keys[-1]["command"]["key"]
    (folder / KEY).write_text(key)
    (folder / RECEIPT).write_bytes(receipt)
    console.print(f"noted: the ledger signs as {key}", soft_wrap=True)
    console.print(
        f"kept: a receipt of event {granted['sequence']}, a grant of {granted['by']}'s; whatever "
        "is shown later has to continue it"
    )


def audit(shown: Report, folder: Path) -> None:
    """Checks the bundle twice, and then a forged one."""
    with_key = ("--key", (folder / KEY).read_text())
    full = offline(folder, *FULL, BUNDLE, *with_key, "--checkpoint", RECEIPT, "--by", BY)
    minimal = offline(folder, *MINIMAL, BUNDLE, *with_key)
    problems = compare(full, minimal, shown)
    for problem in problems:
        console.print(problem, style="red", markup=False)
    if problems:
        sys.exit(1)
    console.print(
        f"accountant verify: {full['events']} events; signatures, hashes, every charge derived, "
        "every decision taken and every total added up again: no finding"
    )
    console.print(
        f"verify_minimal, {lines_of_minimal()} lines of plain Python: {minimal['events']} events; "
        "signatures, hashes, every sum and every comparison of a limit: no finding"
    )
    console.print("the ledger continues the receipt; all totals agree with what the service shows")
    (folder / FORGED).write_bytes(forged((folder / BUNDLE).read_bytes()))
    for name, program in (("accountant verify", FULL), ("verify_minimal", MINIMAL)):
        findings = offline(folder, *program, FORGED, *with_key)["findings"]
        if not findings:
            sys.exit(f"{name} did not notice that a digit was changed")
        console.print(f"one digit of a charge changed, {name}: {in_words(findings)}", markup=False)


def offline(folder: Path, *arguments: str) -> Report:
    """What a verifier makes of a bundle in ``folder``: nothing else is at its hand."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith("ACCOUNTANT_")}
    done = subprocess.run(  # noqa: S603 - our own interpreter and modules
        [sys.executable, "-m", *arguments, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=bare,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:  # 1: it ran, and has findings
        sys.exit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def compare(full: Report, minimal: Report, shown: Report) -> list[str]:
    """Every way in which the verifiers and the service disagree."""
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
    if summed != {name: lifetime.get(name) for name in summed} or not summed:
        problems.append("verify_minimal adds the events up to other totals")
    return problems


def forged(bundle: bytes) -> bytes:
    """The bundle with one digit of the first charge of epsilon 0.25 changed."""
    entries = bundle.index(b"tile/entries/")
    return bundle[:entries] + bundle[entries:].replace(b'"epsilon":"25', b'"epsilon":"15', 1)


def in_words(findings: list[Report]) -> str:
    """The first finding, and how many more there are."""
    first = findings[0]
    places = [first[name] for name in ("sequence", "member", "where") if name in first]
    place = places[0] if places else "bundle"
    text = f"{f'event {place}' if isinstance(place, int) else place}: {first['reason']}"
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return (text if len(text) < 160 else text[:159] + "…") + more


def lines_of_minimal() -> int:
    """How much there is to read for whoever trusts no program of ours."""
    found = find_spec(*MINIMAL)
    source = found.origin if found else None
    return len(Path(source).read_text(encoding="utf-8").splitlines()) if source else 0


if __name__ == "__main__":
    main()
