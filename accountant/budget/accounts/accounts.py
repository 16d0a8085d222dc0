"""All accounts of a ledger by their keys; accounts that have used the same are one.

A charge goes to several accounts at once: each limit's, and the lifetimes. Those that were opened
by the same charge, over the same currencies, stay equal for as long as every charge goes to all of
them. So they are one ``Account`` that several keys hold, and what goes to all of them is booked
once. As soon as something goes to some of its keys only, these take a copy of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.sums import Sums
from accountant.budget.grants import AccountKey, Bookings
from accountant.privacy.units import Axis, Charge

_MOST_GROUPED: Final = 4_096

Keys = tuple[AccountKey, ...]
Group = tuple[Account, Keys]
"""An account with the keys that hold it, all of them."""


class Accounts(dict[AccountKey, Account]):
    """A dictionary of accounts. To change an account, take it from ``alone``, ``together`` or
    ``holding``: they copy an account that other keys hold too.
    """

    __slots__ = ("_grouped",)

    def __init__(self, accounts: Iterable[tuple[AccountKey, Account]] = ()) -> None:
        super().__init__(accounts)
        self._grouped: dict[int, tuple[Keys, list[Group], list[int]]] = {}

    def __setitem__(self, key: AccountKey, account: Account) -> None:
        """Set the account of ``key``; ``account.holders`` counts it already."""
        super().__setitem__(key, account)
        self._grouped.clear()

    def open(self, keys: Iterable[AccountKey], empty: Callable[[AccountKey], Account]) -> Keys:
        """Open an account for each of ``keys`` that has none; return those keys. Keys that keep the
        same currencies share one.
        """
        if id(keys) in self._grouped:  # ``together`` has found them all
            return ()
        opened = tuple([key for key in keys if key not in self])
        alike: dict[Axis, Account] = {}
        for key in opened:
            account = empty(key)
            if type(account) is Account:  # one of a window looks further than the others
                twin = alike.setdefault(account.axis, account)
                twin.holders += twin is not account
                account = twin
            self[key] = account
        return opened

    def close(self, keys: Keys) -> None:
        """Remove the accounts of ``keys``: the charge that opened them was rolled back."""
        for key in keys:
            self.pop(key).holders -= 1
        self._grouped.clear()

    def alone(self, key: AccountKey) -> Account:
        """Return the account of ``key``, shared with no other key."""
        return self._part((key,))

    def together(self, keys: Keys) -> list[Group]:
        """Return the accounts of ``keys``, shared with no other keys. The result is cached by the
        identity of ``keys``: a route is charged many times.
        """
        found = self._grouped.get(id(keys))
        if found is not None and found[0] is keys:
            return found[1]
        groups: dict[int, list[AccountKey]] = {}
        for key in keys:
            groups.setdefault(id(self[key]), []).append(key)
        made = [(self._part(tuple(members)), tuple(members)) for members in groups.values()]
        if len(self._grouped) >= _MOST_GROUPED:
            self._grouped.clear()
        place = {key: number for number, (_, members) in enumerate(made) for key in members}
        self._grouped[id(keys)] = keys, made, [place[key] for key in keys]
        return made

    def places(self, keys: Keys) -> list[int]:
        """Return, for each of ``keys``, the place of its account in what ``together`` returned."""
        return self._grouped[id(keys)][2]

    def holding(self, bookings: Bookings) -> list[tuple[Account, Keys, Charge]]:
        """Return the accounts that hold a grant, shared with no other keys, and their bookings: of
        each unit for itself.
        """
        groups: dict[tuple[int, int, str], tuple[list[AccountKey], Charge]] = {}
        for key, booked in bookings:
            place = id(self[key]), id(booked), key.unit
            groups.setdefault(place, ([], booked))[0].append(key)
        return [(self._part(tuple(keys)), tuple(keys), booked) for keys, booked in groups.values()]

    def leave(self, reserved: Mapping[AccountKey, Sums], now: int) -> None:
        """Leave to the cells that there are what everyone was charged, but not what open grants
        hold (``reserved``). Keys that share an account may have other grants: they part.
        """
        groups: dict[object, list[AccountKey]] = {}
        for key, account in self.items():
            held = reserved.get(key)
            sums = () if held is None else (*held.everyone, *held.everyone_infinite)
            groups.setdefault((id(account), sums if any(sums) else ()), []).append(key)
        for keys in groups.values():
            self._part(tuple(keys)).leave(reserved.get(keys[0]), now)

    def _part(self, keys: Keys) -> Account:
        """Return the account that ``keys`` share; copy it if other keys share it too."""
        account = self[keys[0]]
        if account.holders != len(keys):
            account.holders -= len(keys)
            account = account.copy()
            account.holders = len(keys)
            for key in keys:
                self[key] = account
        return account

    def distinct(self) -> list[Account]:
        """Return each account once."""
        return list({id(account): account for account in self.values()}.values())

    def share(self) -> None:
        """Merge equal accounts into one."""
        alike: dict[object, list[Account]] = {}
        for key, account in self.items():
            if type(account) is not Account:
                continue
            kept = account.used.parts_kept  # a snapshot says how many arrays there are
            sums = tuple(account.bound), tuple(account.held), account.lasting
            about = account.axis, *sums, kept
            known = alike.setdefault(about, [])
            twin = next((one for one in known if one is account or one.used == account.used), None)
            if twin is None:
                known.append(account)
            elif twin is not account:
                account.holders -= 1
                twin.holders += 1
                self[key] = twin
