"""metamorphic-log (Rust) verifies our checkpoints and receipts, with proofs made by aics-tlog."""

import hashlib

import metamorphic_log
from aics_tlog import FileSystemTileReader, consistency_proof_from_tiles
from reading import CHECKPOINTS, FOLDER, KEYS, receipts


def main() -> None:
    """Every checkpoint, that each continues the one before it, and every receipt."""
    tiles = FileSystemTileReader(FOLDER / "log")
    heads = [metamorphic_log.checkpoint_verify(note, KEYS) for note in CHECKPOINTS]
    size = heads[-1].size
    for number in range(1, len(heads)):
        old, new = heads[number - 1 : number + 1]
        proof = consistency_proof_from_tiles(tiles, old.size, new.size, size)
        before, now = CHECKPOINTS[number - 1 : number + 1]
        metamorphic_log.checkpoint_verify_consistency(before, now, KEYS, proof)
    for receipt in receipts():
        leaf = hashlib.sha256(b"\0" + receipt.entry).digest()
        metamorphic_log.checkpoint_verify_inclusion(
            receipt.checkpoint, KEYS, receipt.index, leaf, receipt.proof
        )
    print(f"{len(CHECKPOINTS)} checkpoints, {len(receipts())} receipts")  # noqa: T201


main()
