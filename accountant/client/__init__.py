"""The client for pipelines: ask before running, report afterwards what ran.

::

    with Accountant(url, key, "fair-survey") as accountant:
        with accountant.grant("marriages", [mechanism], purpose="dashboard") as grant:
            noisy = sampler(true_answer)      # runs only if the grant was given
        publish(noisy)                        # only once it is committed

It needs httpx2 and the standard library, and imports nothing else of this project.
"""

from accountant.client.accounts import (
    Accountant,
    Grant,
    MayHaveRun,
    Mechanism,
    Registrar,
    Session,
    Subjects,
    commit_item,
    grant_item,
    record_item,
    release_item,
)
from accountant.client.ledger import Checkpoint, LedgerBroken, LedgerEvent
from accountant.client.transport import AccountantError, Failed, Refused, Unreachable

__all__ = [
    "Accountant",
    "AccountantError",
    "Checkpoint",
    "Failed",
    "Grant",
    "LedgerBroken",
    "LedgerEvent",
    "MayHaveRun",
    "Mechanism",
    "Refused",
    "Registrar",
    "Session",
    "Subjects",
    "Unreachable",
    "commit_item",
    "grant_item",
    "record_item",
    "release_item",
]
