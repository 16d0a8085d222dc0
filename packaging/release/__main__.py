"""Builds a release in dist/: ``make release``.

Both distributions, each twice to see that the same tree gives the same bytes; each wheel installed
in an environment of its own and used there; the bill of materials of what the service's environment
then has; and the SHA-256 of every file. Nothing is uploaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import bill
import stated
import trial

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "packaging" / "client"
LOCK = ROOT / "deploy" / "container" / "requirements.lock"


def main() -> None:
    """Makes the release, or says what is in its way."""
    draft = sys.argv[1:] == ["--draft"]
    if faults := stated.faults(ROOT, draft=draft):
        raise SystemExit("\n".join(faults))
    os.environ["SOURCE_DATE_EPOCH"] = stated.git(ROOT, "log", "-1", "--format=%ct")
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as again:
        first, second = built(folder), built(Path(again))
        different = [
            one.name for one, other in zip(first, second, strict=True) if not same(one, other)
        ]
    if different:
        raise SystemExit(f"the same tree gave other bytes: {', '.join(different)}")
    client, service = (one for one in first if one.suffix == ".whl")
    with tempfile.TemporaryDirectory() as place:
        trial.client(Path(place) / "client", client, LOCK)
        python = trial.service(Path(place) / "service", [client, service], LOCK)
        version = stated.version(ROOT)
        made = bill.of(python, ROOT / "pyproject.toml", LOCK, [client, service])
        (folder / f"privacy-accountant-{version}.cdx.json").write_text(made)
    files = sorted(one for one in folder.iterdir())
    sums = "".join(f"{sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)
    (folder / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def built(folder: Path) -> list[Path]:
    """The wheel and the source of each distribution, the client first."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for place in (CLIENT, ROOT):
        before = set(folder.iterdir())
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
        found += sorted(set(folder.iterdir()) - before)
    return found


def same(one: Path, other: Path) -> bool:
    """Whether two builds gave the same file."""
    return one.name == other.name and one.read_bytes() == other.read_bytes()


if __name__ == "__main__":
    main()
