"""Compare a charge with what is left in the accounts of a limit, and keep what was compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from accountant.budget.accounts.peak import Peak
from accountant.budget.accounts.unlocking import unlocked, whole
from accountant.budget.rules.base import Compared, Used

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from accountant.budget.accounts.epochs import Epoch
    from accountant.privacy.filters import Capacity

MOST_BESIDE: Final = 9
"""Accounts that an event lists beside those that decide: with the first there are ten."""
Kept = dict[str, Any]
"""What an event keeps of one account."""


def tightest(used: Sequence[Used], capacity: Capacity) -> tuple[bool, Kept]:
    """Return whether the charge fits in all accounts of a rule, and what the event keeps of the one
    that decides.
    """
    fits, kept, _ = compare_all(used, capacity)
    return fits, kept


def compare_all(
    used: Sequence[Used], capacity: Capacity, *, beside: bool = False
) -> tuple[bool, Kept, list[Kept]]:
    """Return whether the charge fits in all accounts of a rule, what the event keeps of the account
    that decides, and what it keeps of the others in which it does not fit: the peak, and the
    dataset if there are several accounts. They stand in the order of what they have spent, the most
    first, of equals the first; an account in which it fits is told only if it fits in all. With
    ``beside``, what is kept for allotments counts as if it were spent.
    """
    if len(used) == 1:
        [one] = used
        fits, peak = one.peak(capacity, beside=beside)
        return fits, _kept(one, peak, beside=beside), []
    found = [(one, *one.peak(capacity, beside=beside)) for one in used]
    misfits = [each for each in found if not each[1]]
    among = misfits or found
    among.sort(key=lambda each: _spent(each[0].epoch, each[2]), reverse=True)
    worst, *others = [
        _kept(one, peak, beside=beside) | {"dataset": one.dataset} for one, _, peak in among
    ]
    return not misfits, worst, others if misfits else []


def cut(found: Sequence[Compared], limits: Collection[str], most: int) -> list[Compared]:
    """Return comparisons of which all ``limits`` together list at most ``most`` accounts beside
    those that decide: an event has a size. The others are counted, unless none is to be listed.
    """
    left, kept = most, list[Compared]()
    for one in found:
        if one.rule in limits and (beside := one.seen.get("beside")):
            listed, more = beside[:left], len(beside[left:])
            seen = {name: value for name, value in one.seen.items() if name != "beside"}
            seen |= {"beside": listed} if listed else {}
            kept.append(replace(one, seen=seen | ({"more": more} if more and most else {})))
            left -= len(listed)
        else:
            kept.append(one)
    return kept


def _kept(one: Used, peak: Peak, *, beside: bool) -> Kept:
    """Return what the event keeps of a peak: what is used apart from what is kept there for
    allotments, or from what is locked there, if anything is.
    """
    if one.beside is None and one.lock is None:
        return peak.kept
    if beside and one.beside is not None:
        used, kept = one.beside.split(peak)
        return used.kept | ({"kept": list(map(str, kept))} if any(kept) else {})
    if one.lock is None:  # what is kept is left aside
        return peak.kept
    most, part = whole(one.epoch.capacity), unlocked(one.epoch.capacity, one.lock.share(peak.cell))
    locked = [a - b for (_, a), (_, b) in zip(most.sides, part.sides, strict=True)]
    if not any(locked):
        return peak.kept
    rest = [None if u is None else u - each for u, each in zip(peak.used, locked, strict=True)]
    return Peak(peak.cell, tuple(rest)).kept | {"locked": list(map(str, locked))}


def _spent(epoch: Epoch, peak: Peak) -> tuple[tuple[bool, int], ...]:
    """Return by what peaks are ordered: what is spent, then the sums; infinity is the most."""
    epsilon, _, *along = peak.used
    each = epoch.gate.spent(epoch.limit, epsilon, along), epsilon, *along
    return tuple((one is None, one or 0) for one in each)
