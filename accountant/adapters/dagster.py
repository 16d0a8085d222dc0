"""Dagster; cannot see whether an op draws what it was granted, nor whether it kept its answer.

::

    from accountant.adapters.dagster import LedgerResource

    @asset(retry_policy=RetryPolicy(max_retries=2))
    def weekly(context: AssetExecutionContext, ledger: LedgerResource) -> float:
        with ledger.granted(context, "visits", [laplace(1, 10)], purpose="weekly dashboard"):
            return draw()

    Definitions(assets=[weekly], resources={"ledger": LedgerResource(
        url="https://accountant.example", key=EnvVar("ACCOUNTANT_KEY"), population="visitors")})

The idempotency key comes from the step and the run, of runs that are re-executed from the first
one, and not from the try: see ``tasks.py`` for what a second try meets. A refusal and MayHaveRun
are Failures without retries too: under the same key every other try would get the same answer.
"""

# Dagster reads the annotations of a resource when its class is made: they may not be postponed.
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Unpack

from accountant.adapters.libraries import needs
from accountant.adapters.tasks import TaskFields, paid
from accountant.client import Client, Grant, MayHaveRun, Mechanism, Refused
from accountant.client.calls import Datasets

with needs("dagster"):
    from dagster import ConfigurableResource, Failure
    from pydantic import Field


class TaskRefused(Refused, Failure):  # type: ignore[misc]
    """Refused, and not to be tried again in this run."""

    def __init__(self, refused: Refused) -> None:
        Refused.__init__(self, refused.problem)
        Failure.__init__(self, str(refused), allow_retries=False)


class TaskMayHaveRun(MayHaveRun, Failure):  # type: ignore[misc]
    """MayHaveRun, and not to be tried again in this run."""

    def __init__(self, ran: MayHaveRun) -> None:
        MayHaveRun.__init__(self, ran.grant)
        told = " ".join([str(ran), *getattr(ran, "__notes__", [])])
        Failure.__init__(self, told, allow_retries=False)


class LedgerResource(ConfigurableResource):  # type: ignore[misc]
    """The service at ``url``, asked with the API key ``key`` about ``population``."""

    url: str
    key: str = Field(repr=False)
    population: str

    def client(self) -> Client:
        """Return a client, to be closed by the caller."""
        return Client(self.url, self.key, self.population)

    @contextmanager
    def granted(
        self,
        context: Any,
        dataset: Datasets,
        mechanisms: Sequence[Mechanism],
        **more: Unpack[TaskFields],
    ) -> Iterator[Grant]:
        """Ask for a grant for the running op or asset, once for all its tries; commit when the
        block ends. Raise TaskRefused and TaskMayHaveRun.
        """
        with ExitStack() as stack:
            asking = paid(self.client, "dagster", _names(context), dataset, mechanisms, **more)
            try:
                grant = stack.enter_context(asking)
            except Refused as refused:
                raise TaskRefused(refused) from refused
            except MayHaveRun as ran:
                raise TaskMayHaveRun(ran) from ran
            yield grant


def _names(context: Any) -> tuple[str, ...]:
    step = context.get_step_execution_context().step.key
    return context.run.root_run_id or context.run.run_id, step
