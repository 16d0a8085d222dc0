"""Freezes a release: ``python tests/frozen/made.py 0.2.0`` makes the folder of that name once.

It holds the surface that others build on, the home of a service with events of nearly all types,
and a backup of it. None of it is ever made again: what a release wrote, and what it promised, is
what later versions are held to.
"""

from __future__ import annotations

import io
import json
import lzma
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[1] / one) for one in (".", "evidence"))

from house import House, eventful
from support import START, Clock
from surface import surface

from accountant.reporting.statement import accounts_json
from accountant.store.backup import back_up

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Makes the folder, unless it is there."""
    version = sys.argv[1]
    folder = HERE / version
    folder.mkdir()
    text = json.dumps(surface(), indent=1, sort_keys=True, ensure_ascii=False)
    (folder / "surface.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    with tempfile.TemporaryDirectory() as place:
        clock = Clock(START)
        house = eventful(House(Path(place) / "home", clock))
        house.sign()
        totals = accounts_json(house.service.state("fair"), by="sex") | {"now": clock.now}
        (folder / "totals.json").write_text(json.dumps(totals, indent=1) + "\n")
        copy = io.BytesIO()
        back_up(house.url, house.home, copy, version=version)
        (folder / "backup").write_bytes(copy.getvalue())
        house.close()
        with tarfile.open(folder / "home.tar.xz", "w:xz") as archive:
            archive.add(house.home, "home")


if __name__ == "__main__":
    main()
