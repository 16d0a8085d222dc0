"""Makes the bundle that has to verify for ever: ``python tests/evidence/golden.py FOLDER``.

It is made once for each version of the bundle's format, and never again: keys and salts are drawn.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from house import House, eventful
from support import START, Clock

from accountant.auditing.verify import verify
from accountant.publishing.recovery import recover
from accountant.reporting.statement import accounts_json


def made(home: Path) -> bytes:
    """A bundle with events of every type that a service writes today, a recovery among them."""
    house = House(home, Clock(START))
    eventful(house)
    house.sign()
    copy = home / "copy.db"
    house.copy_database(copy)
    house.grant("0.5", purpose="lost with the disk")
    house.publisher.publish("fair")
    again = house.put_back(copy)
    recover(
        again.service.ledgers,
        again.vault,
        "example.org/ledger",
        "fair",
        by="operator:o",
        reason="a disk died, and Monday's backup was put back",
    )
    after = again.again()
    after.commit(after.grant("0.125", purpose="after the recovery"))
    data = after.bundle()
    for each in (house, again, after):
        each.close()
    return data


def main() -> None:
    """Writes the bundle, and what its events amount to."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        data = made(Path(home))
    verdict = verify([io.BytesIO(data)])
    if verdict.count or verdict.state is None:
        raise SystemExit("\n".join(map(str, verdict.findings)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bundle-1.tar").write_bytes(data)
    totals = accounts_json(verdict.state, by="sex")
    (folder / "bundle-1.json").write_text(json.dumps(totals, indent=1) + "\n")


if __name__ == "__main__":
    main()
