"""The tree against RFC 6962 as it is written down, recursively, and against a published example."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness import consistent

from accountant.ledger.merkle import (
    EMPTY_ROOT,
    MissingHash,
    Read,
    Tree,
    consistency_proof,
    includes,
    inclusion_proof,
    leaf_hash,
    node_hash,
    tree_of,
)

GOLDEN = json.loads(
    (Path(__file__).parent.parent / "golden/ledger/rfc6962_reference_tree.json").read_text()
)
EDGES = [255, 256, 257, 511, 512, 513, 65_535, 65_536, 65_537, 65_792, 70_000]


def leaf(number: int) -> bytes:
    """The leaf hash of the test's entry ``number``."""
    return sha256(b"\x00" + str(number).encode()).digest()


@lru_cache(maxsize=1_000_000)
def mth(low: int, high: int) -> bytes:
    """MTH of the entries ``low`` to before ``high`` (section 2.1)."""
    if high == low:
        return sha256(b"").digest()
    if high - low == 1:
        return leaf(low)
    k = 1
    while 2 * k < high - low:
        k *= 2
    return sha256(b"\x01" + mth(low, low + k) + mth(low + k, high)).digest()


def path(m: int, low: int, high: int) -> list[bytes]:
    """PATH of the ``m``-th of these entries (section 2.1.1)."""
    if high - low == 1:
        return []
    k = 1
    while 2 * k < high - low:
        k *= 2
    if m < k:
        return [*path(m, low, low + k), mth(low + k, high)]
    return [*path(m - k, low + k, high), mth(low, low + k)]


def subproof(m: int, low: int, high: int, whole: bool) -> list[bytes]:
    """SUBPROOF of the first ``m`` of these entries (section 2.1.2)."""
    if m == high - low:
        return [] if whole else [mth(low, high)]
    k = 1
    while 2 * k < high - low:
        k *= 2
    if m <= k:
        return [*subproof(m, low, low + k, whole), mth(low + k, high)]
    return [*subproof(m - k, low + k, high, False), mth(low, low + k)]


class Kept:
    """A tree grown entry by entry, with what a store keeps of it, level by level."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.levels: dict[int, list[bytes]] = {0: []}

    def grow(self, to: int) -> None:
        """Appends entries up to that size."""
        new = [leaf(number) for number in range(self.tree.size, to)]
        self.levels[0] += new
        self.tree, nodes = self.tree.grown(new)
        for node in nodes:
            level = self.levels.setdefault(node.level, [])
            assert node.number == len(level)
            level.append(node.hash)

    def at(self, size: int) -> Read:
        """What a store of that size can read."""

        def read(level: int, first: int, count: int) -> Sequence[bytes]:
            end = min(first + count, size >> 8 * level)
            return self.levels.get(level, [])[first:end]

        return read


@pytest.fixture(scope="module")
def kept() -> Kept:
    """A tree of 70,000 entries: full subtrees of 256 and of 65,536 entries, and some more."""
    made = Kept()
    made.grow(70_000)
    return made


def test_the_reference_tree() -> None:
    """The published tree of eight entries has its published hashes at every size and level."""
    entries = [bytes.fromhex(text) for text in GOLDEN["leaf_inputs"]]
    leaves = [leaf_hash(entry) for entry in entries]
    for size, root in enumerate(GOLDEN["root_by_tree_size"]):
        assert Tree().grown(leaves[:size])[0].root.hex() == root
    level = leaves
    for expected in GOLDEN["node_hashes_by_level"]:
        assert [found.hex() for found in level] == expected
        level = [node_hash(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
    for case in GOLDEN["hasher"]:
        if "leaf" in case:
            assert leaf_hash(bytes.fromhex(case["leaf"])).hex() == case["hash"]
        elif "left" in case:
            pair = bytes.fromhex(case["left"]), bytes.fromhex(case["right"])
            assert node_hash(*pair).hex() == case["hash"]
        else:
            assert EMPTY_ROOT.hex() == case["hash"]


def test_every_small_tree_is_the_tree_of_the_rfc(kept: Kept) -> None:
    """Up to 300 entries every root, and the proofs of the first, the last and some entries in
    between, are those of the RFC's recursion; and they verify.
    """
    tree = Tree()
    for size in range(1, 301):
        tree, _ = tree.grown([leaf(size - 1)])
        read, root = kept.at(size), mth(0, size)
        assert tree.root == root
        assert tree_of(read, size) == tree
        for index in {0, size // 3, size // 2, size - 1}:
            proof = inclusion_proof(read, index, size)
            assert proof == path(index, 0, size)
            assert includes(root, size, index, leaf(index), proof)
        for old in {1, size // 3, size // 2, size - 1, size} - {0}:
            proof = consistency_proof(read, old, size)
            assert proof == subproof(old, 0, size, True)
            assert consistent(old, size, proof, mth(0, old)) == root


@pytest.mark.parametrize("size", EDGES)
def test_large_trees_are_the_tree_of_the_rfc(kept: Kept, size: int) -> None:
    """Around the sizes at which kept levels fill up, roots and proofs are the RFC's."""
    read, root = kept.at(size), mth(0, size)
    assert tree_of(read, size).root == root
    for index in {0, 255, 256, size // 2, size - 2, size - 1} & set(range(size)):
        proof = inclusion_proof(read, index, size)
        assert proof == path(index, 0, size)
        assert includes(root, size, index, leaf(index), proof)
    for old in {1, 128, 255, 256, 257, size // 2, size - 1, size} & set(range(1, size + 1)):
        proof = consistency_proof(read, old, size)
        assert proof == subproof(old, 0, size, True)
        assert consistent(old, size, proof, mth(0, old)) == root


@given(data=st.data())
def test_proofs_prove_one_thing_only(kept: Kept, data: st.DataObject) -> None:
    """A proof that is changed anywhere, or is of another entry, index, size or root, fails."""
    size = data.draw(st.one_of(st.integers(2, 600), st.integers(65_000, 70_000)))
    index, other = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size + 1))
    read, root = kept.at(size), kept_root(kept, size)
    proof = inclusion_proof(read, index, size)
    assert includes(root, size, index, leaf(index), proof)
    if other != index:
        assert not includes(root, size, other, leaf(index), proof)
        assert not includes(root, size, index, leaf(other), proof)
    assert not includes(root, size, index - size, leaf(index), proof)
    assert not includes(root, 4 * size, index, leaf(index), proof)  # which is deeper
    assert not includes(flipped(root, data), size, index, leaf(index), proof)
    for wrong in damaged(proof, data):
        assert not includes(root, size, index, leaf(index), wrong)


@given(data=st.data())
def test_a_proof_is_of_one_size(kept: Kept, data: st.DataObject) -> None:
    """A proof of one tree proves nothing of a tree of another size with another root."""
    one, two = data.draw(st.lists(st.integers(1, 700), min_size=2, max_size=2, unique=True))
    index = data.draw(st.integers(0, min(one, two) - 1))
    proof = inclusion_proof(kept.at(one), index, one)
    assert not includes(kept_root(kept, two), two, index, leaf(index), proof)
    assert not includes(kept_root(kept, two), one, index, leaf(index), proof)


def kept_root(kept: Kept, size: int) -> bytes:
    """The root at ``size``."""
    return tree_of(kept.at(size), size).root


def flipped(data: bytes, draw: st.DataObject) -> bytes:
    """``data`` with one bit changed."""
    at, bit = draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(0, 7))
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def damaged(proof: list[bytes], draw: st.DataObject) -> list[list[bytes]]:
    """The proof with a hash changed, doubled, left out, put elsewhere, added."""
    wrong = [[*proof, bytes(32)], [bytes(32), *proof]]
    if proof:
        at = draw.draw(st.integers(0, len(proof) - 1))
        wrong += [
            [*proof[:at], flipped(proof[at], draw), *proof[at + 1 :]],
            [*proof[:at], *proof[at + 1 :]],
            [*proof[: at + 1], *proof[at:]],
        ]
        if proof[::-1] != proof:
            wrong.append(proof[::-1])
    return wrong


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=8))
def test_any_batches_grow_the_same_tree(sizes: list[int]) -> None:
    """However entries are appended, one by one or many at once, the tree and the nodes that are
    kept are the same, and those are the hashes of full subtrees.
    """
    end, tree, kept = sum(sizes), Tree(), []
    for count in sizes:
        tree, nodes = tree.grown(leaf(n) for n in range(tree.size, tree.size + count))
        kept += nodes
    once, nodes = Tree().grown(map(leaf, range(end)))
    assert (tree, kept) == (once, nodes)
    assert [(n.level, n.number) for n in kept] == [(1, n) for n in range(end // 256)]
    assert all(node.hash == mth(256 * node.number, 256 * (node.number + 1)) for node in kept)


def test_kept_nodes_of_two_levels(kept: Kept) -> None:
    """After 65,536 entries there are 256 kept hashes of level 1 and one of level 2."""
    assert {level: len(found) for level, found in kept.levels.items()} == {0: 70_000, 1: 273, 2: 1}
    assert kept.levels[2] == [mth(0, 65_536)]
    assert kept.levels[1][255] == mth(65_280, 65_536)


def test_nothing_is_proved_of_what_is_not_there(kept: Kept) -> None:
    """Entries beyond the tree, larger old trees and missing hashes are errors, never a proof."""
    read = kept.at(300)
    for index, size in ((-1, 300), (300, 300), (0, 0)):
        with pytest.raises(ValueError, match="no entry"):
            inclusion_proof(read, index, size)
    for old, new in ((-1, 300), (301, 300)):
        with pytest.raises(ValueError, match="does not continue"):
            consistency_proof(read, old, new)
    for size in (301, 512, 70_000):
        with pytest.raises(MissingHash):
            tree_of(read, size)
        with pytest.raises(MissingHash):
            inclusion_proof(read, 0, size)
    for size, peaks in ((-1, ()), (3, (bytes(32),)), (0, (bytes(32),))):
        with pytest.raises(ValueError, match="peaks"):
            Tree(size, peaks)


def test_the_empty_tree_shows_nothing() -> None:
    """A tree without entries includes nothing."""
    assert not includes(EMPTY_ROOT, 0, 0, EMPTY_ROOT, [])
