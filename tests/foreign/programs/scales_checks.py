"""tlog-scales (Python) reads our tiles, makes proofs of its own from them and checks ours."""

import hashlib

from reading import CHECKPOINTS, FOLDER, keys_of, receipts
from tlog_scales.backend import LocalBackend
from tlog_scales.reader import TilesReader
from tlog_scales.signing import Vkey
from tlog_scales.tlog import Checkpoint, InclusionProof


def main() -> None:
    """Every checkpoint with its root, and every receipt."""
    reader = TilesReader(LocalBackend(FOLDER / "log"))
    last = reader.get_checkpoint()
    for text in CHECKPOINTS:
        head = Checkpoint.from_text(text)
        for key in keys_of(text):
            head.verify(Vkey.from_string(key))
        assert reader.mth(0, head.size) == head.root_hash
    for receipt in receipts():
        leaf = hashlib.sha256(b"\0" + receipt.entry).digest()
        proof = InclusionProof(receipt.index, last.size, receipt.proof)
        proof.check(leaf, last.root_hash)
    print(f"{len(CHECKPOINTS)} checkpoints, {len(receipts())} receipts")  # noqa: T201


main()
