"""Write the documentation as a site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from handbook.building import build
from handbook.catalogue import ROOT


def main() -> int:
    """Build the site; return the exit code, 1 if a link leads nowhere."""
    parser = argparse.ArgumentParser(prog="python -m handbook", description=__doc__)
    where = "folder to write, or to replace; default: docs-site"
    parser.add_argument("--out", type=Path, default=ROOT / "docs-site", metavar="DIR", help=where)
    out: Path = parser.parse_args().out
    try:
        site = build(out)
    except ValueError as error:
        sys.stderr.write(f"handbook: {error}\n")
        return 1
    sys.stdout.write(f"{len(site.pages)} pages; open {out / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
