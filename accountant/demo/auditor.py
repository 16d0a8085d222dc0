"""An auditor: takes the ledger home and recomputes everything there, without the service.

Three checks: the events continue the hash chain; every decision, taken again from the events alone,
is the one that was recorded; and every total that follows is the one that the service shows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from accountant.client import Accountant, ChainBroken
from accountant.demo.survey_data import POPULATION

BY = "education"
console = Console(highlight=False)


def main() -> None:
    """Exit code 0: everything agrees; 1: something does not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ledger", type=Path, help="where to write the events")
    path = parser.parse_args().ledger
    with Accountant.from_environment(POPULATION) as accountant:
        try:
            events = list(accountant.events())
        except ChainBroken as broken:
            sys.exit(str(broken))
        shown = accountant.accounts(by=BY)
    path.write_bytes(b"".join(event.data + b"\n" for event in events))
    head = events[-1].link.hex()
    console.print(f"{len(events)} events fetched, the hash chain holds; last link {head[:16]}…")
    problems = compare(replay_offline(path), shown, len(events), head)
    for problem in problems:
        console.print(problem, style="red", markup=False)
    if problems:
        sys.exit(1)
    console.print(
        "replayed offline: every decision was taken again and every total added up again;\n"
        "all agree with what the service shows"
    )


def replay_offline(path: Path) -> dict[str, Any]:
    """What `accountant replay` makes of the file: no key, no service and no database at hand."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith("ACCOUNTANT_")}
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", "accountant.cli", "replay", "--json", "--by", BY, str(path)],
        capture_output=True,
        text=True,
        env=bare,
        check=False,
    )
    if done.returncode not in (0, 1):  # 1: it ran, and has findings
        sys.exit(f"accountant replay: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def compare(replayed: dict[str, Any], shown: dict[str, Any], events: int, head: str) -> list[str]:
    """Every way in which the replay and the service disagree."""
    problems = [f"event {f['sequence']}: {f['reason']}" for f in replayed["findings"]]
    if replayed["events"] != events:
        problems.append(f"{events} events were fetched, {replayed['events']} replayed")
    if replayed["head"] != head:
        problems.append("the replayed chain ends in another link")
    problems += [
        f"{part}: the service shows other totals than the events amount to"
        for part in ("sequence", "accounts", "lifetime")
        if replayed["totals"][part] != shown[part]
    ]
    return problems


if __name__ == "__main__":
    main()
