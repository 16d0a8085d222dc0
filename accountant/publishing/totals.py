"""What had been used when a head was signed: kept beside it, for the day when the events are lost.

A checkpoint only binds the events. If the database is then put back to an older state, the sums
must not go back with it; so with each signed head goes, for every account, what its most charged
cell had used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from accountant.auditing.totals import most_of
from accountant.budget.commands import MAX_CARRIED, CarriedAccount, CarryOver
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import ALL, State, matches
from accountant.ledger.events import canonical
from accountant.privacy.units import Charge
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
            "used": most_of(account.at(state.time)).to_json(),
        }
        for key, account in sorted(state.accounts.items())
        if _in_force(state, key.rule, key.epoch)
    ]
    document = {"checkpoint": signed.note.decode(), "accounts": accounts}
    return canonical(document)


def _in_force(state: State, rule: str, epoch: int) -> bool:
    current = state.adopted.epochs.get(rule) if state.adopted else None
    return rule == "" or (current is not None and current.number == epoch)


def carried(state: State, data: bytes) -> list[CarryOver]:
    """The commands that carry over what was kept. Raises StoreError if that is damaged."""
    try:
        document: dict[str, Any] = orjson.loads(data)
        accounts = [CarriedAccount.model_validate(body) for body in document["accounts"]]
        accounts += _of_other_rules(state, accounts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the totals kept with the signed head are damaged: {error}") from None
    return _parted(accounts)


def _of_other_rules(state: State, accounts: Sequence[CarriedAccount]) -> Iterator[CarriedAccount]:
    """Rules in force that counted nothing when the head was signed, for another policy was in force
    then: they have used what the data have, as a sure sum of epsilons.
    """
    if state.adopted is None:
        return
    counted = {(a.rule, a.epoch, a.dataset) for a in accounts}
    lifetimes = [account for account in accounts if account.rule == ""]
    for rule in state.adopted.policy.limits:
        epoch = state.adopted.epochs[rule.id]
        for account in lifetimes if rule.per is None else ():
            known = (rule.id, epoch.number, account.dataset) in counted
            if not known and _counts_in(rule, account.dataset):
                used = epoch.of_sure(Charge.from_json(account.used)).to_json()
                own = {"rule": rule.id, "epoch": epoch.number, "used": used}
                yield account.model_copy(update=own)


def _counts_in(rule: LimitRule, dataset: str) -> bool:
    """True if the account of ``dataset`` is one of the rule's."""
    if rule.across or dataset == ALL:
        return rule.across is not None and dataset == ALL
    return matches(rule.datasets, dataset)


def _parted(accounts: Iterable[CarriedAccount]) -> list[CarryOver]:
    """As few commands as hold them."""
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
