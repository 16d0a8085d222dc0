"""What the programs share: reading the published folder. No hashing and no verification here."""

import base64
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(sys.argv[1])
KEYS = (FOLDER / "keys").read_text().split()
CHECKPOINTS = [path.read_text() for path in sorted((FOLDER / "checkpoints").iterdir())]


class Receipt(NamedTuple):
    """A .tlog-proof and the entry that it is about."""

    index: int
    proof: list[bytes]
    checkpoint: str
    entry: bytes


def receipts() -> list[Receipt]:
    """All receipts of the folder."""
    found = []
    for path in sorted((FOLDER / "receipts").glob("*.tlog-proof")):
        head, checkpoint = path.read_text().split("\n\n", 1)
        version, index, *proof = head.split("\n")
        assert version == "c2sp.org/tlog-proof@v1", version
        hashes = [base64.b64decode(line, validate=True) for line in proof]
        entry = path.with_suffix(".json").read_bytes()
        found.append(Receipt(int(index.removeprefix("index ")), hashes, checkpoint, entry))
    return found


def keys_of(checkpoint: str) -> list[str]:
    """Those of the keys that a checkpoint has signature lines of."""
    lines = checkpoint.split("\n\n", 1)[1].splitlines()
    ids = {base64.b64decode(line.split(" ")[2])[:4].hex() for line in lines}
    return [key for key in KEYS if key.split("+")[1] in ids]
