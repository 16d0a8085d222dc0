"""Which atoms may be the tightest, whatever is booked on all of them alike."""

from __future__ import annotations

from typing import NamedTuple

from accountant.budget.express.atoms import Atom, Member
from accountant.privacy.units import LARGEST


class View(NamedTuple):
    """Of the atoms of one box of cells, those that matter."""

    frontier: list[Member]
    """Those that no other exceeds in epsilon and in the gate's own currency (``frontier``)."""
    most: tuple[Atom, Atom, Atom]
    """One that has used most, in each currency."""
    top: Member | None
    """The first that has used most of all in every currency: the tightest at any capacity."""


def view(members: list[Member]) -> View:
    """What matters of ``members``, which come in the order of their first cells."""
    if len(members) == 1:
        return View(members, (members[0][0],) * 3, members[0])
    rows = [rows_of(atom) for atom, _ in members]
    e = d = s = 0
    for i, (epsilon, delta, second) in enumerate(rows):
        e = i if epsilon > rows[e][0] else e
        d = i if delta > rows[d][1] else d
        s = i if second > rows[s][2] else s
    if rows[e][1] == rows[d][1] and rows[e][2] == rows[s][2]:
        return View([members[e]], (members[e][0],) * 3, members[e])
    most = (members[e][0], members[d][0], members[s][0])
    return View([members[i] for i in frontier(rows)], most, None)


def frontier(rows: list[tuple[int, int, int]]) -> list[int]:
    """``accounts.frontier`` in the order of cells; where none exceeds the first that has most
    epsilon, only that one.
    """
    first = max(range(len(rows)), key=lambda i: rows[i][0])
    if all(row[2] <= rows[first][2] for row in rows):
        return [first]
    found: list[int] = []
    left = list(range(len(rows)))
    while left:
        most = max(rows[i][0] for i in left)
        top = max((i for i in left if rows[i][0] == most), key=lambda i: rows[i][2])
        found.append(top)
        left = [i for i in left if rows[i][2] > rows[top][2]]
    return sorted(found)


def rows_of(atom: Atom) -> tuple[int, int, int]:
    """An atom's three sums, with those that have no bound above all others."""
    e, e_infinite, d, d_infinite, s, s_infinite = atom
    return (
        LARGEST + e_infinite if e_infinite else e,
        LARGEST + d_infinite if d_infinite else d,
        LARGEST + s_infinite if s_infinite else s,
    )
