"""The client for pipelines: ask before running, report afterwards what ran.

::

    from accountant.client import Client, laplace

    with Client.from_env() as ledger, ledger.grant("visits", [laplace(1, 10)]) as grant:
        noisy = sampler(true_answer)      # runs only if the grant was given
    publish(noisy)                        # only once it is committed

It needs httpx2 and the standard library, and imports nothing else of this project but an adapter
that is asked for by name (``from_opendp``). httpx2 is loaded when something is sent.
"""

from typing import TYPE_CHECKING, Any

from accountant.client.calls import (
    Subjects,
    commit_item,
    grant_item,
    record_item,
    release_item,
)
from accountant.client.errors import (
    AccountantError,
    Failed,
    MayHaveRun,
    NeedsApproval,
    Refused,
    Unreachable,
)
from accountant.client.ledger import Checkpoint, LedgerBroken, LedgerEvent
from accountant.client.mechanisms import (
    Mechanism,
    composed,
    declared,
    discrete_gaussian,
    discrete_laplace,
    dp_ftrl,
    dp_sgd,
    dp_sgd_of_fixed_batches,
    exponential,
    from_dp_event,
    gaussian,
    laplace,
    mechanism,
    permute_and_flip,
    plan,
    poisson,
    randomized_response,
    repeat_and_select,
    sparse_vector,
    unary_encoding,
    without_replacement,
)
from accountant.client.opendp import from_opendp
from accountant.client.registrar import Registrar
from accountant.client.spool import Delivered, Spool
from accountant.client.sync import Client, Grant, Session

if TYPE_CHECKING:
    from accountant.client.aio import AsyncClient, AsyncGrant, AsyncSession

__all__ = [
    "AccountantError",
    "AsyncClient",
    "AsyncGrant",
    "AsyncSession",
    "Checkpoint",
    "Client",
    "Delivered",
    "Failed",
    "Grant",
    "LedgerBroken",
    "LedgerEvent",
    "MayHaveRun",
    "Mechanism",
    "NeedsApproval",
    "Refused",
    "Registrar",
    "Session",
    "Spool",
    "Subjects",
    "Unreachable",
    "commit_item",
    "composed",
    "declared",
    "discrete_gaussian",
    "discrete_laplace",
    "dp_ftrl",
    "dp_sgd",
    "dp_sgd_of_fixed_batches",
    "exponential",
    "from_dp_event",
    "from_opendp",
    "gaussian",
    "grant_item",
    "laplace",
    "mechanism",
    "permute_and_flip",
    "plan",
    "poisson",
    "randomized_response",
    "record_item",
    "release_item",
    "repeat_and_select",
    "sparse_vector",
    "unary_encoding",
    "without_replacement",
]


def __getattr__(name: str) -> Any:
    """Load the asynchronous client when it is first named: asyncio takes as long as all else."""
    if name in ("AsyncClient", "AsyncGrant", "AsyncSession"):
        from accountant.client import aio  # noqa: PLC0415

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
