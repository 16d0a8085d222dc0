"""Sorted trees that never change, against plain dictionaries."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from accountant.budget.waiting.tree import Tree, find, first, least, put, remove, walk

changes = st.lists(
    st.tuples(st.booleans(), st.integers(0, 12), st.tuples(st.integers(0, 5), st.integers(0, 5))),
    max_size=40,
)


@given(changes=changes, most=st.tuples(st.integers(0, 5), st.integers(0, 5)), since=st.integers())
def test_a_tree_is_a_sorted_dictionary(
    changes: list[tuple[bool, int, tuple[int, int]]], most: tuple[int, int], since: int
) -> None:
    """It has what was put in and not removed, in order, and finds the first that fits; trees of
    before stay as they were.
    """
    tree: Tree = None
    plain: dict[tuple[Any, ...], tuple[int, int]] = {}
    kept: list[tuple[Tree, list[tuple[Any, ...]]]] = []
    for adds, number, need in changes:
        kept.append((tree, sorted(plain)))
        if adds:
            tree = put(tree, (number,), number, need)
            plain[number,] = need
        else:
            tree = remove(tree, (number,))
            plain.pop((number,), None)
    for old, keys in [*kept, (tree, sorted(plain))]:
        assert [node.key for node in walk(old)] == keys
    assert [node.key for node in walk(tree, (since,))] == [
        k for k in sorted(plain) if k >= (since,)
    ]
    head = least(tree)
    assert (head and head.key) == min(plain, default=None)
    assert all((found := find(tree, key)) and found.need == need for key, need in plain.items())

    def fits(need: tuple[int, ...]) -> bool:
        return need[1] <= most[1] and need[0] <= most[0]

    wanted = next((k for k in sorted(plain) if k >= (since,) and fits(plain[k])), None)
    found = first(tree, fits, (since,))
    assert (found and found.key) == wanted
