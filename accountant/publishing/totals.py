"""What had been used when a head was signed: kept beside it, for the day when the events are lost.

A checkpoint only binds the events. If the database is then put back to an older state, the sums
must not go back with it; so with each signed head goes, for every account, what its most charged
cell had used.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from accountant.budget.accounts import charge_from
from accountant.budget.commands import MAX_CARRIED, CarriedAccount, CarryOver
from accountant.budget.state import State
from accountant.ledger.events import canonical
from accountant.store.ledgers import Signed, StoreError

MAX_SIZE: Final = 60_000
"""Bytes of accounts in one event, which has some more of its own."""


def totals_of(state: State, signed: Signed) -> bytes:
    """Every account of ``state`` at its most charged cell, with the head that they belong to."""
    accounts = [
        {
            "rule": key.rule,
            "epoch": key.epoch,
            "dataset": key.dataset,
            "client": key.client,
            "used": charge_from(account.axis, account.used.most()).to_json(),
        }
        for key, account in sorted(state.accounts.items())
        if _in_force(state, key.rule, key.epoch)
    ]
    document = {"checkpoint": signed.note.decode(), "accounts": accounts}
    return canonical(document)


def _in_force(state: State, rule: str, epoch: int) -> bool:
    current = state.adopted.epochs.get(rule) if state.adopted else None
    return rule == "" or (current is not None and current.number == epoch)


def carried(data: bytes) -> list[CarryOver]:
    """The commands that carry over what was kept. Raises StoreError if it is damaged."""
    try:
        document: dict[str, Any] = orjson.loads(data)
        accounts = [CarriedAccount.model_validate(body) for body in document["accounts"]]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the totals kept with the signed head are damaged: {error}") from None
    parts: list[list[CarriedAccount]] = [[]]
    room = MAX_SIZE
    for account in accounts:
        size = len(canonical(account.model_dump(mode="json"))) + 1
        if len(parts[-1]) == MAX_CARRIED or size > room:
            parts.append([])
            room = MAX_SIZE
        parts[-1].append(account)
        room -= size
    return [CarryOver(accounts=part) for part in parts if part]
