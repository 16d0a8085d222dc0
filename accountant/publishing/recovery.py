"""Recovery: going on with a database that lacks signed events.

One person carries over the sums that were kept with the signed head, as the least that is spent,
and proposes to go on; another confirms (ADR 0038). Both do that beside the database, for a service
does not write to it. The log gets another name and key: under the old ones it would contradict the
checkpoints that others hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson

from accountant.auth.keys import Key
from accountant.budget.commands import (
    MAX_CARRIED,
    CarriedAccount,
    CarryOver,
    Command,
    Envelope,
    Recover,
)
from accountant.budget.errors import Conflict
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import ALL, State
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import Event, canonical
from accountant.ledger.merkle import MissingHash, tree_of
from accountant.privacy.units import Charge
from accountant.publishing.publisher import Publisher, next_signers
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers, Signed, StoreError
from accountant.store.vault import KINDS, Vault

MAX_QUOTED: Final = 4_000  # Characters of a lost checkpoint that the event of the recovery holds
MAX_SIZE: Final = 60_000  # Bytes of carried accounts in one event, which has some more of its own


def lost_heads(ledgers: Ledgers, vault: Vault, ledger: str) -> list[str]:
    """Return the signed and published heads that the database does not continue, newest first."""
    found = [data for kind in KINDS if (data := vault.read(ledger, kind)) is not None]
    if (last := ledgers.last_signed(ledger)) is not None:
        found.append(last.note)
    heads: dict[tuple[int, bytes], str] = {}
    for data in found:
        head = Checkpoint.from_text(notes.parse(data).text)
        with suppress(MissingHash):
            if tree_of(partial(ledgers.hashes, ledger), head.size).root == head.root:
                continue
        heads.setdefault((head.size, head.root), _quoted(data.decode()))
    return [heads[place] for place in sorted(heads, reverse=True)][:2]


def _quoted(note: str) -> str:
    """Return a note with as many of its signatures, from the first, as an event may hold."""
    text, blank, lines = note.partition("\n\n")
    quoted = text + blank
    for line in lines.splitlines(keepends=True):
        if len(quoted) + len(line) <= MAX_QUOTED:
            quoted += line
    return quoted


def propose(ledgers: Ledgers, vault: Vault, ledger: str, *, by: str, reason: str) -> Event:
    """Carry over what was spent, and propose to open a new epoch of the log; return the proposal,
    or the one that waits already. Raises Conflict if neither events nor the signing key were lost;
    StoreError if the signed totals are missing or damaged.
    """
    service = Service(ledgers)  # without a vault, so that no signed head binds it
    lost = _lost(service, vault, ledger)
    proposals, now = service.proposals(ledger)
    for one in proposals:
        about = one.command.get("type"), one.command.get("lost")
        if one.is_open(now) and about == (Recover.command, lost):
            return service.event(ledger, one.sequence)
    totals = vault.read(ledger, "totals")
    if totals is None and vault.read(ledger, "signed") is not None:
        raise StoreError(
            f"the totals that were kept with the signed head of {ledger} are not there: without "
            "them it is unknown what the lost events had spent; put the vault back"
        )
    known = [] if totals is None else carried(service.state(ledger), totals)
    commands: list[Command] = [*known, Recover(reason=reason, lost=lost)]
    *_, answer = service.execute_all(ledger, [Envelope(by, command) for command in commands])
    return answer.events[-1]


def confirm(
    ledgers: Ledgers,
    vault: Vault,
    origin: str,
    ledger: str,
    asked: Envelope,
    key: Key | None = None,
) -> Signed:
    """Confirm a proposed recovery, as ``ConfirmChange`` in ``asked``, put the heads of the old log
    aside, and sign the new one's. If it was cut off after the commit, repeat it. Raises Problem.
    """
    service = Service(ledgers)
    _lost(service, vault, ledger)
    answer = service.confirm(ledger, asked, key, recovering=True)
    if answer.repeated and service.state(ledger).custody.key is not None:
        raise Conflict(  # an old confirmation does not put the heads of another loss aside
            "proposal-closed",
            "this recovery was made, and its log has a key since: propose another recovery",
        )
    vault.retire(ledger)
    return Publisher(service, vault, origin).sign(ledger)


def _lost(service: Service, vault: Vault, ledger: str) -> list[str]:
    """Return the heads that were lost. Raises Conflict if there are none, and the keys are there
    that the next head needs.
    """
    lost = lost_heads(service.ledgers, vault, ledger)
    if not lost and _can_sign(service, vault, ledger):
        raise Conflict(
            "nothing-lost",
            f"ledger {ledger} continues every head that was signed or published, and its key is "
            "there: there is nothing to recover",
        )
    return lost


def _can_sign(service: Service, vault: Vault, ledger: str) -> bool:
    """Return whether the vault holds each key that the ledger's next head needs."""
    try:
        next_signers(service.ledgers, vault, service.state(ledger))
    except StoreError:
        return False
    return True


def carried(state: State, data: bytes) -> list[CarryOver]:
    """Return the commands that carry over kept totals. Raises StoreError if they are damaged."""
    try:
        document: dict[str, Any] = orjson.loads(data)
        accounts = [CarriedAccount.model_validate(body) for body in document["accounts"]]
        accounts += _of_other_rules(state, accounts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the totals kept with the signed head are damaged: {error}") from None
    return _parted(accounts)


def _of_other_rules(state: State, accounts: Sequence[CarriedAccount]) -> Iterator[CarriedAccount]:
    """Yield the accounts of rules in force that were not in force when the head was signed. They
    have used what the lifetime of the dataset has, as a plain sum of epsilons.
    """
    if state.adopted is None:
        return
    counted = {(a.rule, a.epoch, a.dataset) for a in accounts}
    for rule in state.adopted.policy.limits:
        epoch = state.adopted.epochs[rule.id]
        for account in accounts if not rule.divides else ():
            known = (rule.id, epoch.number, account.dataset) in counted
            lifetime = account.rule == "" and account.unit == (rule.unit or "")
            if lifetime and not known and _counts_in(state, rule, account.dataset):
                used = epoch.of_sure(Charge.from_json(account.used)).to_json()
                own = {"rule": rule.id, "epoch": epoch.number, "used": used}
                yield account.model_copy(update=own)


def _counts_in(state: State, rule: LimitRule, dataset: str) -> bool:
    """Return whether the account of ``dataset`` is one of the rule's. A total over datasets has
    beside itself those of the datasets that are out of its scope.
    """
    if dataset == ALL:
        return rule.across is not None
    if rule.across is None:
        return rule.scope.names_it(dataset)
    there = state.datasets.get(dataset)
    return there is not None and rule.scope.names_it(dataset) and not rule.scope.holds(there)


def _parted(accounts: Iterable[CarriedAccount]) -> list[CarryOver]:
    """Return as few commands as hold the accounts."""
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
