"""Records that somebody verified a ledger: of nothing but this one it is recorded as in order."""

from __future__ import annotations

from accountant.budget.commands import Envelope, StateVerification
from accountant.budget.errors import Conflict
from accountant.ledger.merkle import tree_of
from accountant.publishing.log import Log, complete
from accountant.runtime.service import Service
from accountant.runtime.unit_of_work import Answer


def record_verification(service: Service, ledger: str, asked: Envelope) -> Answer:
    """Record the result that ``asked`` states. Raise Conflict if it has no findings and is not of
    the events of this ledger, NotFound, or StoreError.
    """
    service.known(ledger)
    command = asked.command
    if not isinstance(command, StateVerification):
        raise TypeError(f"{command.command} states no verification")
    if not command.findings and command.size <= service.head(ledger).size:
        with complete():
            root = tree_of(Log(service.ledgers, ledger).hashes, command.size).root.hex()
        if root != command.root:
            raise Conflict(
                "another-ledger",
                f"the first {command.size} events of {ledger} have the root {root}, and those that "
                f"were verified have {command.root}: what was verified is not this ledger, which "
                "is a finding: state it with findings",
                root=root,
            )
    return service.execute(ledger, asked)
