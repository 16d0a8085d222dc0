"""JAX-Privacy; cannot see whether the loop clips, adds the plan's noise, and hides its batches.

::

    from accountant.adapters.jax_privacy import training

    plan = BandMFExecutionPlanConfig.default(num_bands=4, iterations=1000, …).plan
    with training(ledger, "visits", plan, purpose="ranking model") as run:
        for indices in run.plan.batch_selection_strategy.batch_iterator(examples):
            …                                          # the loop stays as it is

Entering reserves what the plan's ``dp_event`` says; a refusal comes before the training begins.
The plan in ``run`` asks for each batch before it hands it out, which is before the noise of its
step. Leaving commits the steps that ran, also after an exception; the rest comes back.

With an event alone (``accounting.dpsgd_event``, ``fixed_dpsgd_event``, …) call ``run.step()``
before each step's noise.

A step of banded matrix factorization is part of a round, in which each group of records has its
turn once. Training that stops within a round has seen its first steps: the answers so far are those
of the same mechanism for so many steps, whose columns are no longer (Choquette-Choo et al. 2023,
arXiv 2306.08153). So the rounds that were begun are charged. An event that is no repetition of one
round is committed whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack

from accountant.adapters.libraries import needs, sampler
from accountant.adapters.shared_training import NotReserved
from accountant.client import (
    Client,
    Grant,
    Mechanism,
    dp_sgd,
    dp_sgd_of_fixed_batches,
    from_dp_event,
    gaussian,
)
from accountant.client.calls import Asked, Datasets

with needs("jax-privacy"):
    from jax_privacy.batch_selection import (
        BatchSelectionStrategy,
        CyclicPoissonSampling,
        FixedBatchSampling,
        PartitionType,
    )

_SAMPLER: Final = sampler("jax-privacy")


@dataclass(frozen=True, slots=True)
class Round:
    """What is repeated in a plan: its event, how often, and what one costs."""

    event: Any
    rounds: int
    steps: int | None
    """The steps of a round; None where the event is charged whole."""
    one: Mechanism

    def mechanism(self, rounds: int) -> Mechanism:
        """Return so many rounds."""
        if self.steps is None:
            return self.one
        more = {"count": rounds} if rounds > 1 else {}
        return {**self.one, **more, "sampler": _SAMPLER}


def round_of(event: Any, steps_per_round: int = 1, records_per_unit: int | None = None) -> Round:
    """Return what an ``event`` repeats. Raise ValueError for a unit of several records where
    nothing is known of that.
    """
    repeated = _is(event, "SelfComposed")
    one = event.event if repeated else event
    found = _mechanism(one, records_per_unit)
    several = records_per_unit not in (None, 1)
    if several and (found is None or "group_size" not in found or steps_per_round > 1):
        raise ValueError(
            f"nothing is proved of a unit with {records_per_unit} records in this event: train on "
            "Poisson samples without bands, or with one record for each unit"
        )
    if found is None:
        return Round(event, 1, None, from_dp_event(event))
    if steps_per_round > 1:  # one record more may move others to another group
        found = {**found, "neighbouring": "zero_out"}
    return Round(one, int(event.count) if repeated else 1, steps_per_round, found)


def round_of_plan(plan: Any, records_per_unit: int | None = None) -> Round:
    """Return what a plan repeats. Raise NotReserved if its batches are not those of its event."""
    batches = plan.batch_selection_strategy
    cycle = batches.cycle_length if isinstance(batches, CyclicPoissonSampling) else 1
    found = round_of(plan.dp_event, cycle, records_per_unit)
    if found.steps is None:
        return found
    if isinstance(batches, CyclicPoissonSampling):
        cut = getattr(found.event, "truncated_batch_size", None)
        rate = getattr(found.event, "sampling_probability", None)
        same = (rate, cut) == (batches.sampling_prob, batches.truncated_batch_size)
        same = same and found.rounds >= math.ceil(batches.iterations / cycle)
    else:
        same = isinstance(batches, FixedBatchSampling) and not batches.replace
        same = same and getattr(found.event, "sample_size", None) == batches.batch_size
    if not same:
        raise NotReserved(f"the plan's batches are {batches}, which is not its event {found.event}")
    if cycle > 1 and batches.partition_type is PartitionType.INDEPENDENT:
        return replace(found, one={**found.one, "neighbouring": "add_or_remove_one"})
    return found


def _check_size(event: Any, cycle: int, examples: int) -> None:
    """Raise NotReserved if there are not as many ``examples`` as the event says."""
    fits = True
    if _is(event, "TruncatedSubsampledGaussian"):
        fits = math.ceil(examples / cycle) <= event.dataset_size
    elif _is(event, "SampledWithoutReplacement"):
        fits = examples == event.source_dataset_size
    if not fits:
        raise NotReserved(f"{examples} examples are not those of the plan's event {event}")


def _is(event: Any, name: str) -> bool:
    return type(event).__name__ == f"{name}DpEvent"


def _mechanism(event: Any, records: int | None) -> Mechanism | None:
    """Return one step, if the event is one of DP-SGD."""
    # The noise of an event is relative to the norm of what one record adds (dp_accounting).
    if _is(event, "PoissonSampled") and _is(event.event, "Gaussian"):
        rate = event.sampling_probability
        return dp_sgd(event.event.noise_multiplier, rate, 1, records_per_unit=records)
    if _is(event, "SampledWithoutReplacement") and _is(event.event, "Gaussian"):
        size, of = event.sample_size, event.source_dataset_size
        return dp_sgd_of_fixed_batches(event.event.noise_multiplier, size, of, 1)
    if _is(event, "TruncatedSubsampledGaussian"):
        cut = {"rate": event.sampling_probability, "of": event.dataset_size}
        sampling = {"truncated": cut | {"at_most": event.truncated_batch_size}}
        relation = "add_or_remove_one"
        return gaussian(1, event.noise_multiplier, sampling=sampling, neighbouring=relation)
    return None


class Training:
    """A reserved plan, and how much of it ran."""

    def __init__(self, grant: Grant, plan: Any, one: Round) -> None:
        self.grant = grant
        self.steps = 0
        """The steps that asked for their noise."""
        self.open = True
        self._round, self._begun = one, 0
        self.plan = plan
        """The plan, which asks for each of its batches; None where there is only an event."""
        if plan is not None:
            batches = Batches(plan.batch_selection_strategy, self, one)
            self.plan = replace(plan, batch_selection_strategy=batches)

    def step(self) -> None:
        """Say that the noise of a step is about to be drawn. Raise NotReserved if it was not
        reserved.
        """
        if not self.open:
            raise NotReserved("the training has ended and is committed: open another one")
        each = self._round.steps
        begun = 1 if each is None else self.steps // each + 1
        if begun > self._begun:
            try:
                self.grant.use(self._round.mechanism(1), 1)
            except ValueError as error:
                raise NotReserved(
                    f"step {self.steps + 1} was not reserved: the plan has {self._round.rounds} "
                    f"rounds of {each} steps. Open another training for it"
                ) from error
            self._begun = begun
        self.steps += 1


class Batches(BatchSelectionStrategy):  # type: ignore[misc]
    """A plan's batches, each of which is asked for before it is handed out."""

    def __init__(self, batches: Any, run: Training, one: Round) -> None:
        self._batches, self._run, self._round = batches, run, one
        self._begun = False

    def batch_iterator(self, num_examples: int, rng: Any = None) -> Iterator[Any]:
        """Yield batches of indices. Raise NotReserved for one that is not in the plan."""
        if self._begun:
            raise NotReserved("the plan's batches are drawn once: reserve another plan")
        self._begun = True
        _check_size(self._round.event, self._round.steps or 1, num_examples)
        for indices in self._batches.batch_iterator(num_examples, rng):
            self._run.step()
            yield indices

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


@contextmanager
def training(
    ledger: Client,
    dataset: Datasets,
    plan: Any,
    *,
    steps_per_round: int = 1,
    records_per_unit: int | None = None,
    **more: Unpack[Asked],
) -> Iterator[Training]:
    """Reserve a whole ``plan``: a DPExecutionPlan, or a DpEvent with, for bands, as many
    ``steps_per_round``. Raise Refused, and NotReserved if the batches are not those of the event.

    ``records_per_unit``: the most records of one privacy unit. A long training needs a
    ``ttl_seconds`` as long as it is: a grant that expires is charged whole.
    """
    if hasattr(plan, "dp_event"):
        one, whole = round_of_plan(plan, records_per_unit), plan
    else:
        one, whole = round_of(plan, steps_per_round, records_per_unit), None
    with ledger.grant(dataset, [one.mechanism(one.rounds)], tracked=True, **more) as grant:
        run = Training(grant, whole, one)
        try:
            yield run
        finally:
            run.open = False
