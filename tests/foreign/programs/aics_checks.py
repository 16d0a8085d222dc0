"""aics-tlog (Python) verifies our checkpoints, tiles and receipts."""

from aics_tlog import (
    FileSystemTileReader,
    consistency_proof_from_tiles,
    inclusion_proof_from_tiles,
    parse_checkpoint,
    parse_note,
    parse_vkey,
    read_entry,
    tree_root_from_tiles,
    verify_checkpoint,
    verify_consistency,
    verify_leaf_inclusion,
)
from reading import CHECKPOINTS, FOLDER, keys_of, receipts


def main() -> None:
    """Every checkpoint with its root and the one before it, entries from tiles, and receipts."""
    tiles, heads = FileSystemTileReader(FOLDER / "log"), []
    for text in CHECKPOINTS:
        note = parse_note(text)
        for key in keys_of(text):
            assert verify_checkpoint(note, parse_vkey(key)).log_ok
        heads.append(parse_checkpoint(note.text))
    size = heads[-1].size
    for number, head in enumerate(heads):
        assert tree_root_from_tiles(tiles, head.size, size) == head.root
        if number:
            old = heads[number - 1]
            proof = consistency_proof_from_tiles(tiles, old.size, head.size, size)
            roots = old.root, head.root
            assert verify_consistency(old.size, head.size, *roots, proof)
    for receipt in receipts():
        assert read_entry(tiles, receipt.index, size) == receipt.entry
        assert inclusion_proof_from_tiles(tiles, receipt.index, size) == receipt.proof
        root = parse_checkpoint(parse_note(receipt.checkpoint).text).root
        assert verify_leaf_inclusion(receipt.entry, receipt.index, size, receipt.proof, root)
    print(f"{len(CHECKPOINTS)} checkpoints, {len(receipts())} receipts")  # noqa: T201


main()
