"""Airflow; cannot see whether a task draws what it was granted, nor whether it kept its answer.

::

    from accountant.adapters.airflow import charged, connection

    @task(retries=3)
    @charged(connection("accountant"), "visits", [laplace(1, 10)], purpose="weekly dashboard")
    def weekly() -> float: …

The idempotency key comes from the DAG, its run, the task and its map index, and not from the try:
see ``tasks.py`` for what a second try meets. A refusal and MayHaveRun are AirflowFailException too,
so the task fails at once: under the same key every other try would get the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Unpack

from accountant.adapters.libraries import needs
from accountant.adapters.tasks import Ledger, P, T, TaskFields, charging, paid
from accountant.client import Client, Grant, MayHaveRun, Mechanism, Refused
from accountant.client.calls import Datasets

with needs("airflow"):
    from airflow.sdk import BaseHook, get_current_context
    from airflow.sdk.exceptions import AirflowFailException


class TaskRefused(Refused, AirflowFailException):  # type: ignore[misc]
    """Refused, and not to be tried again in this run."""


class TaskMayHaveRun(MayHaveRun, AirflowFailException):  # type: ignore[misc]
    """MayHaveRun, and not to be tried again in this run."""


def connection(conn_id: str, population: str | None = None) -> Callable[[], Client]:
    """Return what opens a client of an Airflow connection when a task runs: its host is the
    service's address, its password the API key, and ``population`` may be in its extra field.
    """
    return partial(_opened, conn_id, population)


def _opened(conn_id: str, population: str | None) -> Client:
    found = BaseHook.get_connection(conn_id)
    address = found.host if "://" in (found.host or "") else f"https://{found.host}"
    if found.port:
        address = f"{address}:{found.port}"
    about = population or found.extra_dejson.get("population")
    if about is None:
        raise ValueError(f'connection {conn_id} has no {{"population": …}} in its extra field')
    return Client(address, found.password, about)


@contextmanager
def granted(
    ledger: Ledger, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[TaskFields]
) -> Iterator[Grant]:
    """Ask for a grant for the running task, once for all its tries; commit when the block ends.
    Raise TaskRefused and TaskMayHaveRun.
    """
    with ExitStack() as stack:
        asking = paid(ledger, "airflow", _names(get_current_context()), dataset, mechanisms, **more)
        try:
            grant = stack.enter_context(asking)
        except Refused as refused:
            raise TaskRefused(refused.problem) from refused
        except MayHaveRun as ran:
            raise TaskMayHaveRun(ran.grant) from ran
        yield grant


def _names(context: Any) -> tuple[str, ...]:
    task = context["ti"]
    return task.dag_id, task.run_id, task.task_id, str(task.map_index)


def charged(
    ledger: Ledger, dataset: Datasets, mechanisms: Sequence[Mechanism], **more: Unpack[TaskFields]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator, below ``@task``: the task runs in a block of ``granted``."""
    return charging(lambda: granted(ledger, dataset, mechanisms, **more), more)
