"""Recovery: going on with a database that does not continue what was signed.

What was signed and is not in the database is lost; the sums that it amounted to are not. They were
kept with the signed head, and are carried over as the least that is spent. The log gets another
name and key, for under the old name it would contradict what others hold.
"""

from __future__ import annotations

from typing import Final

from accountant.budget.commands import Command, Envelope, Recover
from accountant.budget.errors import Conflict
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.merkle import MissingHash, tree_of
from accountant.ledger.notes import Verifier
from accountant.publishing.log import Log
from accountant.publishing.publisher import Publisher
from accountant.publishing.totals import carried
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers, Signed, StoreError
from accountant.store.vault import KINDS, Vault

MAX_QUOTED: Final = 4_000
"""Characters of a lost checkpoint that the event of the recovery holds."""


def lost_heads(ledgers: Ledgers, vault: Vault, ledger: str) -> list[str]:
    """The signed and published heads, newest first, that the database does not continue."""
    found = [data for kind in KINDS if (data := vault.read(ledger, kind)) is not None]
    if (last := ledgers.last_signed(ledger)) is not None:
        found.append(last.note)
    heads: dict[tuple[int, bytes], str] = {}
    for data in found:
        note = notes.parse(data)
        head = Checkpoint.from_text(note.text)
        if not _continues(ledgers, ledger, head):
            heads.setdefault((head.size, head.root), _quoted(data.decode()))
    return [heads[place] for place in sorted(heads, reverse=True)][:2]


def _quoted(note: str) -> str:
    """A note with as many of its signatures, from the first, as an event quotes."""
    text, blank, lines = note.partition("\n\n")
    quoted = text + blank
    for line in lines.splitlines(keepends=True):
        if len(quoted) + len(line) <= MAX_QUOTED:
            quoted += line
    return quoted


def _continues(ledgers: Ledgers, ledger: str, head: Checkpoint) -> bool:
    try:
        return tree_of(Log(ledgers, ledger).hashes, head.size).root == head.root
    except MissingHash:
        return False


def recover(
    ledgers: Ledgers, vault: Vault, origin: str, ledger: str, *, by: str, reason: str
) -> Signed:
    """Opens a new epoch and signs its head. Raises Conflict if nothing was lost: neither events nor
    the signing key; StoreError if what was spent cannot be told.
    """
    service = Service(ledgers)  # which is bound by no head
    lost = lost_heads(ledgers, vault, ledger)
    if not lost and _key_is_there(service, vault, ledger):
        raise Conflict(
            "nothing-lost",
            f"ledger {ledger} continues every head that was signed or published, and its key is "
            "there: there is nothing to recover",
        )
    totals = vault.read(ledger, "totals")
    if totals is None and vault.read(ledger, "signed") is not None:
        raise StoreError(
            f"the totals that were kept with the signed head of {ledger} are not there: without "
            "them nobody can say what the lost events had spent; put the vault back"
        )
    with service.state(ledger) as state:
        commands: list[Command] = [] if totals is None else [*carried(state, totals)]
    commands.append(Recover(reason=reason, lost=lost))
    service.execute_all(ledger, [Envelope(by, command) for command in commands])
    vault.retire(ledger)
    return Publisher(service, vault, origin).sign(ledger)


def _key_is_there(service: Service, vault: Vault, ledger: str) -> bool:
    with service.state(ledger) as state:
        key = state.custody.key
    if key is None:
        return True  # none was needed yet
    try:
        vault.signer(ledger, Verifier.from_text(key.text))
    except StoreError:
        return False
    return True
