"""Run every kind of query on real data, against a service of its own. Exit code 0: every claim
holds.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Final

from rich.console import Console
from rich.text import Text

from accountant.client import AccountantError
from examples.queries import FAMILIES, closing, report
from examples.queries.results import PROOF, RECEIPTS, Claim, Results
from examples.queries.service import service
from examples.survey.running import DemoFailed

OUTPUT: Final = Path(__file__).with_name("output")
console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


def main(words: Sequence[str] | None = None) -> int:
    """Run the examples; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=__doc__)
    where = "folder for pictures and results; default: examples/output"
    parser.add_argument("--out", type=Path, default=OUTPUT, metavar="DIR", help=where)
    output: Path = parser.parse_args(words).out
    # As an exception does, which stops the service on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.environ |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}  # nothing leaves this machine
    started = time.monotonic()
    try:
        results = run(output)
    except (DemoFailed, AccountantError, OSError, TimeoutExpired) as error:
        console.print(f"The examples failed: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped; the service is stopped too.")
        return 130
    report.show(console, results)
    report.write(output, results)
    console.print(f"Pictures, receipts and results: {output}", soft_wrap=True)
    return ended(results.claims, time.monotonic() - started)


def ended(claims: Sequence[Claim], seconds: float) -> int:
    """Say whether all claims hold; return the exit code."""
    wrong = sum(not claim.holds for claim in claims)
    if wrong or not claims:
        told = f"{wrong} of {len(claims)} claims do not hold, after {seconds:.0f} s."
        console.print(told, style="red")
        return 1
    console.print(f"All {len(claims)} claims hold, in {seconds:.0f} s.", style="green")
    return 0


def run(output: Path) -> Results:
    """Run all families against a fresh service."""
    _empty(output)
    console.print("[bold]▸ starting a service on an empty ledger, in a temporary folder[/]")
    with service(console.width) as ledgers:
        results = Results(ledgers, output, tell)
        for family in FAMILIES:
            results.source = family.SOURCE
            summary = (family.__doc__ or "").splitlines()[0]
            console.print(f"[bold]▸ {summary}[/]")
            family.run(results)
        console.print("[bold]▸ What the service has booked, and how far off the answers are.[/]")
        closing.check(results)
        results.keep_receipts()
    return results


def tell(line: str) -> None:
    """Print what was just done."""
    console.print(Text(line, "dim"))


def _empty(output: Path) -> None:
    """Make the folder, without the results of an earlier run. What somebody else has put there
    stays; pictures are written over.
    """
    output.mkdir(parents=True, exist_ok=True)
    old = [output / name for name in report.FILES]
    for each in [*old, *(output / RECEIPTS).glob(f"*{PROOF}")]:
        each.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
