"""Decide registrations of datasets: the same data are the same budget.

Within a ledger a second id for the same data is refused. Whether other ledgers have the data is not
known to a decider, which sees its own: whoever records the event asks ``check_elsewhere`` as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from accountant.budget.commands import Envelope, RegisterDataset
from accountant.budget.errors import Conflict, Forbidden
from accountant.budget.outcome import Body
from accountant.budget.population.naming import normal_form
from accountant.budget.population.population import Dataset
from accountant.budget.state import State

_SEND: str = (
    "a second person has to agree: send the key of another admin or officer in a header: "
    "Accountant-Approver: Bearer <key>"
)


def register_dataset(
    state: State, asked: Envelope, command: RegisterDataset, now: int
) -> Body | None:
    """Register a dataset, or its new owner or parents."""
    there = state.datasets.get(command.id)
    if there is not None:
        if (there.namespace, there.name) != (command.namespace, command.name):
            raise Conflict(
                "dataset-immutable",
                f"dataset {command.id!r} is {there.namespace} {there.name}; "
                "other data need another id",
            )
        if _unchanged(there, command):
            return None
    _once(state, command)
    if command.also and command.approved_by in (None, asked.by):
        raise Forbidden(
            "second-name-needed",
            f"{command.namespace} {command.name} has a budget in {', '.join(command.also)} "
            f"already, and would have a second one here: {_SEND}",
            also=command.also,
        )
    return {}


def check_elsewhere(state: State, command: RegisterDataset, others: Sequence[str]) -> None:
    """Raise Conflict unless ``command`` states exactly the ``others``, all datasets of other
    populations that are the same data. A dataset that is registered need not state it again.
    """
    if command.also == sorted(others) or (command.id in state.datasets and not command.also):
        return
    data = f"{command.namespace} {command.name}"
    if others:
        text = (
            f"{data} is registered in other populations already, as {', '.join(sorted(others))}: "
            "a second registration would have a second budget for the same data. If that is "
            f"meant, list exactly these in `also`; {_SEND}"
        )
    else:
        text = f"no other population has {data}: leave `also` out"
    raise Conflict("dataset-known-elsewhere", text, also=sorted(others))


def _unchanged(there: Dataset, command: RegisterDataset) -> bool:
    same = (there.owner, there.parents) == (command.owner, tuple(command.parents))
    return same and tuple(command.also) in ((), there.also)


def _once(state: State, command: RegisterDataset) -> None:
    """Raise Conflict if the data have another id."""
    data = normal_form(command.namespace, command.name)
    for other in state.datasets.values():
        if other.data == data and other.id != command.id:
            raise Conflict(
                "dataset-known",
                f"{command.namespace} {command.name} is registered as {other.id!r} "
                f"({other.namespace} {other.name}): the same data under a second id would have a "
                "second budget; use that id",
                dataset=other.id,
            )
