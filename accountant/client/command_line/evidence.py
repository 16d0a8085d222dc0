"""report, export, verify, receipt: what can be shown to others."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from accountant.client.command_line.connecting import connected
from accountant.client.command_line.failures import Misuse
from accountant.client.command_line.output import say, write_out
from accountant.client.files import Whole

Env = Mapping[str, str]
_FORMS: Final = ("html", "json", "csv", "pdf")
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
        return _verified(asked, asked.bundle)
    with tempfile.TemporaryDirectory(prefix="accountant-") as folder:
        file = Path(folder) / "bundle.tar"
        with connected(asked, env) as client:
            client.evidence(file)
        return _verified(asked, str(file))


def _verified(asked: argparse.Namespace, bundle: str) -> int:
    """Run the second verifier, which is a program of its own, on a bundle."""
    with Path(bundle).open("rb"):
        pass  # that it cannot be read is said here, in our words
    key = ["--key", asked.key] if asked.key else []
    form = ["--json"] if asked.json else []
    program = [sys.executable, "-I", str(_VERIFIER), *key, *form, "--", bundle]
    done = subprocess.run(program, check=False)  # noqa: S603 (words of our own, and a file)
    if not asked.json:
        if not asked.key:
            say("the keys come from the bundle itself: compare one with a key that you received "
                "independently, or give that one with --key")  # fmt: skip
        say("bytes, signatures, order and sums were checked; `accountant verify --local BUNDLE` "
            "takes every decision again, where the service is installed")  # fmt: skip
    return done.returncode
