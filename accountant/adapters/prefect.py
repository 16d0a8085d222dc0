"""Prefect; cannot see whether a task draws what it was granted, nor tell apart calls of one task.

::

    from accountant.adapters.prefect import charged, worth_a_retry

    @task(retries=3, retry_condition_fn=worth_a_retry)
    @charged(Client.from_env, "visits", [laplace(1, 10)], purpose="weekly dashboard")
    def weekly() -> float: …

The idempotency key comes from the flow run and the task's name, which stay when a task or its flow
is retried: see ``tasks.py`` for what a second try meets. Prefect has no name that stays for each
call of a task that a flow calls several times: ``part`` tells them apart, and without it the second
call meets MayHaveRun. A subflow may get a new run when its parent is retried: ask with ``run``, a
name of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

from accountant.adapters.libraries import needs
from accountant.adapters.tasks import Ledger, P, T, TaskFields, charging, paid
from accountant.client import Grant, MayHaveRun, Mechanism, Refused
from accountant.client.calls import Datasets

with needs("prefect"):
    from prefect.context import FlowRunContext, TaskRunContext


def worth_a_retry(task: Any, run: Any, state: Any) -> bool:
    """Tell whether another try may end otherwise: not after a refusal or MayHaveRun, as the same
    key gets the same answer. For ``retry_condition_fn``.
    """
    del task, run
    return not isinstance(state.data, Refused | MayHaveRun)


@contextmanager
def granted(
    ledger: Ledger,
    dataset: Datasets,
    mechanisms: Sequence[Mechanism],
    *,
    run: str | None = None,
    **more: Unpack[TaskFields],
) -> Iterator[Grant]:
    """Ask for a grant for the running task or flow, once for all its tries; commit when the block
    ends. Raise Refused, MayHaveRun, and RuntimeError outside of a run.
    """
    with paid(ledger, "prefect", _names(run), dataset, mechanisms, **more) as grant:
        yield grant


def charged(
    ledger: Ledger,
    dataset: Datasets,
    mechanisms: Sequence[Mechanism],
    *,
    run: str | None = None,
    **more: Unpack[TaskFields],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator, below ``@task`` or ``@flow``: the call runs in a block of ``granted``."""
    return charging(lambda: granted(ledger, dataset, mechanisms, run=run, **more), more)


def _names(run: str | None) -> tuple[str, ...]:
    task, flow = TaskRunContext.get(), FlowRunContext.get()
    if task is not None:
        made = task.task_run.flow_run_id or task.task_run.id
        return run or str(made), task.task.name
    if flow is not None and flow.flow_run is not None:
        return run or str(flow.flow_run.id), flow.flow.name
    raise RuntimeError("a grant is asked for by a task or a flow while it runs")
