"""Sign the heads of committed events, by compare-and-swap from the last signed head, keep them in
the vault, and then publish them. A signed head is never replaced.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from accountant.auditing.totals import in_force, most_of
from accountant.budget.commands import AdoptSigningKey, Envelope, StopPublication
from accountant.budget.custody.custody import Custody
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import NotFound, Unavailable
from accountant.budget.policy import NO_WITNESSES, Publication, Witness
from accountant.budget.state import State
from accountant.config.logs import logger
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint, Known
from accountant.ledger.events import canonical
from accountant.ledger.merkle import tree_of
from accountant.ledger.notes import Signer, Verifier
from accountant.publishing.log import Log, complete
from accountant.publishing.witness import Contradiction, Unanswered, ask
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers, Signed, Writing
from accountant.store.projection import Projection
from accountant.store.vault import Vault

_log = logger()
ATTEMPTS: Final = 3  # How often a witness that has seen another head of this ledger is asked again


class Publisher:
    """Signs and publishes the heads of ledgers, whose names begin with ``origin``. Thread-safe."""

    def __init__(self, service: Service, vault: Vault, origin: str) -> None:
        self._service = service
        self._vault = vault
        self._origin = origin

    def log(self, ledger: str) -> Log:
        """Return the ledger's log."""
        return Log(self._service.ledgers, ledger)

    def published(self, ledger: str) -> Signed:
        """Return the last published checkpoint. Raises NotFound while there is none."""
        signed = self.last_published(ledger)
        if signed is None:
            raise NotFound("nothing-published", f"no checkpoint of {ledger} is published yet")
        return signed

    def last_published(self, ledger: str) -> Signed | None:
        """Return the last published checkpoint; during an alarm, the last before it."""
        publication, custody = self._terms(ledger)
        if custody.stopped is None:
            return self.log(ledger).published(publication, self._vault.read(ledger, "signed"))
        kept = self._vault.read(ledger, "published") or b""
        return next((s for s in self.log(ledger).newest() if kept.startswith(s.note)), None)

    def covering(self, ledger: str, sequence: int) -> Signed:
        """Return the published, else the signed checkpoint that covers an event; else sign."""
        _, custody = self._terms(ledger)
        newest = next(self.log(ledger).kept_since(self._vault.read(ledger, "signed")), None)
        for signed in filter(None, (self.last_published(ledger), newest)):
            if custody.key and signed.head.origin == custody.key.name and sequence < signed.size:
                return signed
        return self.sign(ledger)

    def _terms(self, ledger: str) -> tuple[Publication, Custody]:
        """Return the publication of the policy in force, and the ledger's custody."""
        adopted, custody = self._service.in_force(ledger)
        return adopted.policy.publication if adopted else NO_WITNESSES, custody

    def sign(self, ledger: str) -> Signed:
        """Return the checkpoint of the ledger's present head; sign it if it is not signed."""
        ledgers = self._service.ledgers
        self._service.known(ledger)
        last = ledgers.last_signed(ledger)
        if last and last.size == ledgers.head(ledger).size and self._kept(ledger, last):
            return last
        return self.signed_state(ledger)[0]

    def signed_state(self, ledger: str) -> tuple[Signed, State]:
        """As ``sign``; return also the state after just these events, at the last one's stamp:
        nothing has left a window since.
        """
        self._service.known(ledger)
        self._name(ledger)
        with self._service.writing(ledger) as unit:
            writing, projection = unit.writing, unit.projection
            last = writing.last_signed(ledger)
            key = unit.state.custody.key
            lost = last is not None and key is not None and last.head.origin != key.name
            if last is not None and not lost:
                _continued(writing, projection, last)
            if last is None or lost or last.size < projection.tree.size:
                last = self._signed(projection, last)
                writing.keep_signed(ledger, last)
            totals, state = kept_totals(unit.state, last), unit.state.frozen()
        if not self._kept(ledger, last):
            self._keep(ledger, last, totals)
        return last, state

    def _kept(self, ledger: str, signed: Signed) -> bool:
        return self._vault.read(ledger, "signed") == signed.note

    def _signed(self, projection: Projection[State], last: Signed | None) -> Signed:
        tree = projection.tree
        signers = _signers(self._vault, projection.state, tree.size, last)
        head = Checkpoint(signers[0].name, tree.size, tree.root)
        number = last.number + 1 if last else 0
        return Signed(number, tree.size, notes.sign(head.to_text(), signers))

    def _keep(self, ledger: str, signed: Signed, totals: bytes) -> None:
        """Keep a committed checkpoint in the vault, unless a later one is there."""
        with self._service.writing(ledger) as unit:
            kept = self._vault.read(ledger, "signed")
            if kept is None or Checkpoint.from_text(notes.parse(kept).text).size <= signed.size:
                self._vault.keep(ledger, "totals", totals)
                self._vault.keep(ledger, "signed", signed.note)
                head = signed.head
                unit.projection.known = (Known(head.size, head.root, "the head last signed"),)

    def _name(self, ledger: str) -> str:
        """Return the name that the ledger signs under; adopt its first key if it has none."""
        _, custody = self._terms(ledger)
        if custody.key is not None:
            return custody.key.name
        name = f"{self._origin}/{ledger}"
        if custody.recoveries:
            name += f"/{custody.recoveries + 1}"
        self._adopt_key(ledger, name, SYSTEM)
        return name

    def _adopt_key(self, ledger: str, name: str, by: str) -> Verifier:
        """Make a new key, and sign the ledger with it from now on."""
        key = self._vault.new_signer(ledger, name).verifier
        self._service.execute(ledger, Envelope(by, AdoptSigningKey(key=str(key))))
        return key

    def rotate(self, ledger: str, by: str) -> Verifier:
        """Replace the signing key. The next checkpoint is signed with both. Raises VaultError if a
        key that it needs is not there: the new one would follow from nothing.
        """
        name = self._name(ledger)
        next_signers(self._service.ledgers, self._vault, self._service.state(ledger))
        return self._adopt_key(ledger, name, by)

    def publish(self, ledger: str) -> Signed | None:
        """Sign the head and ask the witnesses; return the checkpoint if it is now published. A
        witness that contradicts the ledger raises an alarm: an event that stops publication.
        """
        signed = self.sign(ledger)
        publication, custody = self._terms(ledger)
        if custody.stopped is not None:
            return None
        if publication.witnesses:
            found = self._witnessed(ledger, signed, publication)
            if found is None or not publication.met_by(name for name, _ in found.cosignatures):
                return None
            signed = found
        if self._vault.read(ledger, "published") != signed.full:
            with self._service.writing(ledger) as unit:  # one at a time, none after a later
                if unit.state.custody.stopped is not None:
                    return None
                kept = self._vault.read(ledger, "signed")
                if signed == self.log(ledger).published(publication, kept):
                    self._vault.keep(ledger, "published", signed.full)
        return signed

    def _witnessed(self, ledger: str, signed: Signed, publication: Publication) -> Signed | None:
        """Return the checkpoint with its cosignatures; None if a witness contradicts it."""
        have = dict(self._stored(ledger, signed.number).cosignatures)
        for witness in publication.witnesses:
            name = witness.verifier.name
            if name in have:
                continue
            try:
                line = self._cosigned(ledger, witness, signed)
            except Unanswered as reason:
                _log.warning("a witness does not answer", witness=name, reason=str(reason))
            except Contradiction as reason:
                self._alarm(ledger, name, reason, signed)
                return None
            else:
                with self._service.writing(ledger) as unit:
                    stored = self._stored(ledger, signed.number)
                    if name not in dict(stored.cosignatures):  # another process may have asked
                        unit.writing.keep_cosignature(ledger, signed.number, name, line)
        return self._stored(ledger, signed.number)

    def _stored(self, ledger: str, number: int) -> Signed:
        return self._service.ledgers.signed(ledger, number)[0]

    def _cosigned(self, ledger: str, witness: Witness, signed: Signed) -> str:
        """Return a cosignature line; ask again from the size that the witness says it knows."""
        log, old = self.log(ledger), self._cosigned_before(ledger, witness, signed)
        for _ in range(ATTEMPTS):
            try:
                return ask(witness, old, log.consistency(old, signed.size), signed.note)
            except Contradiction as answer:
                known = answer.size
                if answer.status != 409 or known == old or (known is None and old == signed.size):
                    raise
                if known is None:
                    raise Unanswered(f"it answers 409 without a size: {answer.detail}") from None
                if known > signed.size:
                    last = self._service.ledgers.last_signed(ledger)
                    if last is None or last.size < known:
                        raise
                    raise Unanswered("another process has shown it a later head") from None
                old = known
        raise Unanswered("another process is submitting heads of this ledger")

    def _cosigned_before(self, ledger: str, witness: Witness, signed: Signed) -> int:
        """Return the size that the witness cosigned last. Raises Unanswered if that is later."""
        origin = signed.head.origin
        for earlier in self.log(ledger).newest():
            if earlier.head.origin != origin:
                break
            if witness.verifier.name in dict(earlier.cosignatures):
                if earlier.size > signed.size:
                    raise Unanswered("another process has shown it a later head")
                return earlier.size
        return 0

    def _alarm(self, ledger: str, witness: str, reason: Contradiction, signed: Signed) -> None:
        _log.error("a witness contradicts the ledger", population=ledger, witness=witness)
        detail = reason.detail.strip() or "it gives no reason"
        command = StopPublication(
            witness=witness, status=reason.status, detail=detail, size=signed.size
        )
        self._service.execute(ledger, Envelope(SYSTEM, command))


def next_signers(ledgers: Ledgers, vault: Vault, state: State) -> list[Signer]:
    """Return what has to sign the ledger's next checkpoint: nothing where it has no key in force.
    Raises VaultError, with the remedy, if a key is not there.
    """
    if state.custody.key is None:
        return []
    return _signers(vault, state, state.sequence, ledgers.last_signed(state.ledger))


def _signers(vault: Vault, state: State, size: int, last: Signed | None) -> list[Signer]:
    keys = state.custody.signing(size, last.size if last else 0)
    return [vault.signer(state.ledger, Verifier.from_text(key.text)) for key in keys]


def kept_totals(state: State, signed: Signed) -> bytes:
    """Return the largest sums of every account in force, with the head that they belong to. Kept
    with each signed head, they do not go back when the database is restored from an older copy.
    """
    accounts = [
        key.to_json() | {"used": most_of(account).to_json()} for key, _, account in in_force(state)
    ]
    return canonical({"checkpoint": signed.note.decode(), "accounts": accounts})


def _continued(writing: Writing, projection: Projection[State], last: Signed) -> None:
    """Raise Unavailable unless the tree continues the last signed head."""
    with complete():
        root = tree_of(partial(writing.hashes, projection.ledger), last.size).root
    if root != last.head.root:
        raise Unavailable(
            "ledger-diverged",
            f"ledger {projection.ledger} does not continue its checkpoint {last.number} of "
            f"{last.size} events (root {last.head.root.hex()}): now they have the root "
            f"{root.hex()}. Nothing is signed until the right database is put back",
        )
