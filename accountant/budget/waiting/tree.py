"""Sorted trees that never change: what is put into one, or removed, makes another.

A tree is a treap (Seidel, Aragon, "Randomized search trees", Algorithmica 1996): sorted by key, a
heap by rank, which follows from the key, so that it is some 2 log n deep on average. Each node
knows the least ``need`` of everything below it in each place, so that ``first`` passes over what
needs more than there is. Old trees stay valid: to take a change back is to keep the tree before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

Key = tuple[Any, ...]
Need = tuple[int, ...]
_SCATTER: Final = 0x9E3779B97F4A7C15  # Knuth, Art of Computer Programming 3, 6.4
_MASK: Final = 2**64 - 1


class Node:
    """A key with its value, and the trees on both sides of it. Never changed, but for a side that
    ``built`` left as a list, which becomes a tree when it is looked at.
    """

    __slots__ = ("_left", "_right", "key", "least", "need", "rank", "value")

    def __init__(
        self, key: Key, value: Any, need: Need, least: Need, rank: int, left: Side, right: Side
    ) -> None:
        self.key, self.value, self.need, self.least, self.rank = key, value, need, least, rank
        self._left, self._right = left, right

    @property
    def left(self) -> Tree:
        """What comes before the key."""
        side = self._left
        if side is None or isinstance(side, Node):
            return side
        self._left = found = built(side)
        return found

    @property
    def right(self) -> Tree:
        """What comes after it."""
        side = self._right
        if side is None or isinstance(side, Node):
            return side
        self._right = found = built(side)
        return found


Tree = Node | None
Item = tuple[Key, Any, Need]
Side = Node | Sequence[Item] | None


def put(tree: Tree, key: Key, value: Any = None, need: Need = ()) -> Node:
    """Return a tree with ``key`` too; its value and need take the place of earlier ones."""
    return _put(tree, key, value, need, (hash(key) * _SCATTER ^ hash(key) >> 7) & _MASK)


def _put(tree: Tree, key: Key, value: Any, need: Need, rank: int) -> Node:
    if tree is None:
        return Node(key, value, need, need, rank, None, None)
    if key == tree.key:
        return _node(key, value, need, tree.rank, tree.left, tree.right)
    if rank > tree.rank:
        return _node(key, value, need, rank, *_split(tree, key))
    if key < tree.key:
        return _with(tree, _put(tree.left, key, value, need, rank), tree.right)
    return _with(tree, tree.left, _put(tree.right, key, value, need, rank))


def built(items: Sequence[Item]) -> Tree:
    """Return the tree of keys with their values and needs, which are sorted by key and are not
    changed any more. It is balanced: a node has the rank of the largest of as many draws as there
    are nodes in its tree. Only what is looked at becomes nodes.
    """
    if not items:
        return None
    size = len(items)
    middle = size // 2
    key, value, need = items[middle]
    lowest = tuple(map(min, zip(*(item[2] for item in items), strict=True))) if need else need
    rank = _MASK * size // (size + 1)
    return Node(key, value, need, lowest, rank, items[:middle] or None, items[middle + 1 :] or None)


def remove(tree: Tree, key: Key) -> Tree:
    """Return a tree without ``key``."""
    if tree is None:
        return None
    if key == tree.key:
        return _merged(tree.left, tree.right)
    if key < tree.key:
        return _with(tree, remove(tree.left, key), tree.right)
    return _with(tree, tree.left, remove(tree.right, key))


def find(tree: Tree, key: Key) -> Tree:
    """Return the node of ``key``, if there is one."""
    while tree is not None and key != tree.key:
        tree = tree.left if key < tree.key else tree.right
    return tree


def first(tree: Tree, admits: Callable[[Need], bool], since: Key = ()) -> Tree:
    """Return the first node from ``since`` on whose need is admitted. What is admitted must be
    admitted with less in any place too.
    """
    if tree is None or not admits(tree.least):
        return None
    if tree.key >= since:
        if (found := first(tree.left, admits, since)) is not None:
            return found
        if admits(tree.need):
            return tree
    return first(tree.right, admits, since)


def least(tree: Tree) -> Tree:
    """Return the node with the least key."""
    while tree is not None and tree.left is not None:
        tree = tree.left
    return tree


def walk(tree: Tree, since: Key = ()) -> Iterator[Node]:
    """Yield the nodes from ``since`` on, in order."""
    above: list[Node] = []
    while tree is not None or above:
        while tree is not None:
            if tree.key >= since:
                above.append(tree)
                tree = tree.left
            else:
                tree = tree.right
        if above:
            node = above.pop()
            yield node
            tree = node.right


def _node(key: Key, value: Any, need: Need, rank: int, left: Tree, right: Tree) -> Node:
    lowest = need
    for side in (left, right):
        if side is not None and need:
            lowest = tuple(map(min, lowest, side.least))
    return Node(key, value, need, lowest, rank, left, right)


def _with(node: Node, left: Tree, right: Tree) -> Node:
    return _node(node.key, node.value, node.need, node.rank, left, right)


def _split(tree: Tree, key: Key) -> tuple[Tree, Tree]:
    """Return what comes before ``key``, and what comes after it."""
    if tree is None:
        return None, None
    if key == tree.key:
        return tree.left, tree.right
    if key < tree.key:
        before, after = _split(tree.left, key)
        return before, _with(tree, after, tree.right)
    before, after = _split(tree.right, key)
    return _with(tree, tree.left, before), after


def _merged(left: Tree, right: Tree) -> Tree:
    if left is None or right is None:
        return right if left is None else left
    if left.rank > right.rank:
        return _with(left, left.left, _merged(left.right, right))
    return _with(right, _merged(left, right.left), right.right)
