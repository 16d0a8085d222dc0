"""Opacus; cannot see whether the loop takes one fresh batch a step, nor how floats are rounded.

::

    from accountant.adapters.opacus import training

    plan = {"noise_multiplier": 1.1, "sample_rate": 1 / len(loader), "steps": 10 * len(loader)}
    with training(ledger, "visits", **plan, purpose="ranking model") as run:
        engine = PrivacyEngine(accountant="ledger")
        model, optimizer, loader = engine.make_private(…, noise_multiplier=1.1, max_grad_norm=1.0)
        loader = run.watch(optimizer, loader)
        …                                            # the loop stays as it is

Entering reserves all steps; a refusal comes before the training begins. ``watch`` makes the
optimizer ask before it draws the noise of each step, so a step that was not reserved draws none.
Leaving commits the steps that ran, also after an exception; the rest comes back.

A step that was not planned stops the training. It does not ask for more: the plan is what somebody
agreed to, and a refusal in the middle would leave half a model that has been paid for. To train
on, open another ``training``.

The engine's accountant "ledger" is the safety net: an optimizer that nobody watches is stopped at
its first step, and its noisy gradients are erased. Opacus has drawn their noise by then; nobody has
seen it.

Training in several processes and adaptive clipping are refused: see ``watch``.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Unpack

from accountant.adapters.libraries import needs, sampler
from accountant.adapters.shared_training import NotReserved
from accountant.client import Client, Grant, dp_sgd, gaussian
from accountant.client.calls import Asked, Datasets

with needs("opacus"):
    from opacus.accountants import IAccountant, create_accountant
    from opacus.accountants.registry import register_accountant
    from opacus.optimizers import (
        AdaClipDPOptimizer,
        DPOptimizer,
        DPOptimizerFastGradientClipping,
        DPPerLayerOptimizer,
    )
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

PLAN: Final = "ACCOUNTANT_TRAINING"
"""The variable with the plan, a JSON object, where no ``training`` is open."""
_PROVED: Final = (DPOptimizer, DPPerLayerOptimizer, DPOptimizerFastGradientClipping)
_RANDOM_BITS: Final = 24  # torch.rand draws whole multiples of 2^-24
_SAMPLER: Final = sampler("opacus")


def rate_drawn(sample_rate: float) -> Fraction:
    """Return the probability with which Opacus takes a record at ``sample_rate``. It compares the
    rate, in single precision, with a random multiple of 2^-24, so it takes a little more.
    """
    [single] = struct.unpack("f", struct.pack("f", sample_rate))
    grid = 2**_RANDOM_BITS
    return min(Fraction(math.ceil(Fraction(single) * grid), grid), Fraction(1))


@dataclass(frozen=True, slots=True)
class Poisson:
    """Steps on Poisson samples of rate ``sample_rate`` (Opacus takes 1 / len(data_loader))."""

    noise_multiplier: float
    sample_rate: float
    steps: int

    def mechanism(self, records_per_unit: int | None) -> dict[str, Any]:
        """Return all steps, at the rate that is drawn."""
        rate = rate_drawn(self.sample_rate)
        found = dp_sgd(self.noise_multiplier, rate, self.steps, records_per_unit=records_per_unit)
        return found | {"sampler": _SAMPLER}


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Passes over shuffled data, cut into batches: ``poisson_sampling=False``. A record is in one
    batch of each pass, so by parallel composition a pass costs one step without sampling, in the
    relation zero_out (a replace_one account pays for two such units). Under add_or_remove_one one
    record more moves others to another batch: the service refuses it.
    """

    noise_multiplier: float
    epochs: int

    def mechanism(self, records_per_unit: int | None) -> dict[str, Any]:
        """Return all passes."""
        about = {"group_size": records_per_unit, "neighbouring": "zero_out"}
        found = gaussian(1, self.noise_multiplier, count=self.epochs, **about)  # type: ignore[arg-type]
        return found | {"sampler": _SAMPLER}


class Training:
    """A reserved plan, and how much of it ran."""

    def __init__(self, grant: Grant, records_per_unit: int | None) -> None:
        self.grant = grant
        self.steps = 0
        """The steps whose noise was drawn."""
        self.open = True
        self._records = records_per_unit
        self._reported = 0

    def watch(self, optimizer: Any, loader: Any) -> Any:
        """Make ``optimizer`` ask before it draws the noise of a step on a batch of ``loader``.

        Return the loader to train with. Raise NotReserved for what nothing is proved of:

        * a loader whose batches are neither Poisson samples nor a partition of the data;
        * training in several processes, each of which would ask for the whole plan;
        * adaptive clipping: Opacus moves the clipping norm by the share of clipped records in the
          true size of the batch, which gets no noise.
        """
        _check_optimizer(optimizer)
        batches: Any = getattr(loader, "batch_sampler", None)
        if type(batches) is UniformWithReplacementSampler:
            before = self._before_poisson(optimizer, batches.sample_rate)
        elif _is_partition(batches):
            loader = Passes(loader)
            before = self._before_shuffled(optimizer, loader)
        else:
            raise NotReserved(
                f"{type(batches).__name__} draws batches in a way of which nothing is proved here: "
                "train with Opacus's Poisson sampling (poisson_sampling=True), in one process"
            )
        draw = getattr(optimizer.add_noise, "draw", optimizer.add_noise)

        def add_noise() -> None:
            before()
            draw()

        add_noise.draw = draw  # type: ignore[attr-defined] # a second watch replaces this one
        optimizer.add_noise = add_noise
        return loader

    def reported(self) -> None:
        """Take note of Opacus's report of a step. Raise NotReserved for one that did not ask."""
        if self._reported >= self.steps:
            raise NotReserved(
                "a step ran that did not ask for its noise: after make_private, call "
                "loader = run.watch(optimizer, loader)"
            )
        self._reported += 1

    def _before_poisson(self, optimizer: Any, rate: float) -> Callable[[], None]:
        def before() -> None:
            _check_single(optimizer)
            self._use(Poisson(optimizer.noise_multiplier, rate, 1))

        return before

    def _before_shuffled(self, optimizer: Any, passes: Passes) -> Callable[[], None]:
        def before() -> None:
            _check_single(optimizer)
            passes.step()
            if not passes.charged:
                self._use(Shuffled(optimizer.noise_multiplier, 1))
                passes.charged = True
            else:
                self._check_open()
                self.steps += 1

        return before

    def _use(self, stage: Poisson | Shuffled) -> None:
        self._check_open()
        try:
            self.grant.use(stage.mechanism(self._records), 1)
        except ValueError as error:
            raise NotReserved(
                f"step {self.steps + 1} was not reserved: {stage} is not in the plan, or all of it "
                "has run. Open another training for it"
            ) from error
        self.steps += 1

    def _check_open(self) -> None:
        if not self.open:
            raise NotReserved("the training has ended and is committed: open another one")


class Passes:
    """A loader of shuffled batches that counts its passes, and lets each batch make one step."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._number = self._batches = self._steps = 0
        self.charged = False

    def __iter__(self) -> Iterator[Any]:
        self._number += 1
        self._batches = self._steps = 0
        self.charged = False
        this = self._number
        for batch in self._loader:
            if this != self._number:
                raise NotReserved("two passes at once: finish one before the next begins")
            self._batches += 1
            yield batch

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def step(self) -> None:
        """Take note of a step. Raise NotReserved if there was no batch for it."""
        if self._steps >= self._batches:
            raise NotReserved(
                "a step without a batch of its own: take each shuffled batch from the loader that "
                "watch returned, and make one step with it"
            )
        self._steps += 1


def _check_optimizer(optimizer: Any) -> None:
    if isinstance(optimizer, AdaClipDPOptimizer):
        raise NotReserved(
            "adaptive clipping divides by the true size of the batch, which gets no noise: clip "
            "with a fixed norm (clipping='flat' or 'per_layer')"
        )
    if type(optimizer) not in _PROVED:
        raise NotReserved(
            f"{type(optimizer).__name__} is not charged here: train in one process, with an "
            "optimizer of Opacus. Of a training in several processes, ask for the plan once with "
            "ledger.grant and dp_sgd"
        )


def _check_single(optimizer: Any) -> None:
    """Several Poisson samples in one step: a record may be in all of them."""
    if (batches := optimizer.accumulated_iterations) != 1:
        raise NotReserved(
            f"one step on {batches} batches: a record may be in several, and moves the sum by more "
            "than the clipping norm. Use larger batches, with BatchMemoryManager if memory is short"
        )


def _is_partition(batches: Any) -> bool:
    """Tell whether a pass holds each record once at most."""
    if type(batches) is not BatchSampler:
        return False
    order = batches.sampler
    if type(order) is RandomSampler:
        return not order.replacement and order.num_samples <= len(order.data_source)
    return type(order) is SequentialSampler


# -- the plan in force -----------------------------------------------------------------------

_CURRENT: Final[ContextVar[Training | None]] = ContextVar("accountant_training", default=None)


@contextmanager
def training(
    ledger: Client,
    dataset: Datasets,
    *stages: Poisson | Shuffled,
    noise_multiplier: float | None = None,
    sample_rate: float | None = None,
    steps: int | None = None,
    records_per_unit: int | None = None,
    **more: Unpack[Asked],
) -> Iterator[Training]:
    """Reserve a training: ``steps`` of one noise and rate, or several ``stages``. Raise Refused.

    ``records_per_unit``: the most records of one privacy unit. A long training needs a
    ``ttl_seconds`` as long as it is: a grant that expires is charged whole.
    """
    one = (noise_multiplier, sample_rate, steps)
    if bool(stages) == any(each is not None for each in one) or (not stages and None in one):
        raise ValueError("state noise_multiplier, sample_rate and steps, or stages")
    planned = stages or (Poisson(*one),)  # type: ignore[arg-type]
    mechanisms = [stage.mechanism(records_per_unit) for stage in planned]
    with ledger.grant(dataset, mechanisms, tracked=True, **more) as grant:
        run = Training(grant, records_per_unit)
        token = _CURRENT.set(run)
        try:
            yield run
        finally:
            run.open = False
            _CURRENT.reset(token)


def current(env: Mapping[str, str] = os.environ) -> Training:
    """Return the open training; else open that which the environment plans, until the process ends.
    Raise NotReserved if there is none.
    """
    if (found := _CURRENT.get()) is not None:
        return found
    if PLAN not in env:
        raise NotReserved(
            "no training is reserved: train in a block of `with training(ledger, dataset, …)`, or "
            f"set {PLAN} to a JSON object with dataset, noise_multiplier, sample_rate and steps"
        )
    until_exit = ExitStack()
    plan = json.loads(env[PLAN])
    ledger = until_exit.enter_context(Client.from_env(env=env))
    found = until_exit.enter_context(training(ledger, plan.pop("dataset"), **plan))
    atexit.register(until_exit.close)
    return found


# -- what Opacus calls -----------------------------------------------------------------------


class LedgerAccountant(IAccountant):  # type: ignore[misc]
    """Opacus's accountant "ledger": keeps the history, and stops steps that did not ask.

    Its ``get_epsilon`` is that of the library's own accountant. The ledger charges by its own
    bounds, and claims nothing of this number.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    @classmethod
    def mechanism(cls) -> str:
        """The name by which an engine asks for it."""
        return "ledger"

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count a step that ran. Raise NotReserved if it did not ask for its noise."""
        current().reported()
        last = self.history[-1] if self.history else None
        if last is not None and last[:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Return what Opacus calls between the noise of a step and its use."""
        count = super().get_optimizer_hook_fn(sample_rate)

        def hook(optimizer: Any) -> None:
            try:
                count(optimizer)
            except BaseException:
                _erase(optimizer)
                raise

        return hook

    def get_epsilon(self, delta: float, accountant: str = "prv", **options: Any) -> float:
        """Return the epsilon of Opacus's own ``accountant`` at ``delta``, for its users."""
        library = create_accountant(accountant)
        library.history = self.history
        return float(library.get_epsilon(delta=delta, **options))


def _erase(optimizer: Any) -> None:
    """Overwrite the noisy gradients of a step that must not be used."""
    for parameter in optimizer.params:
        if parameter.grad is not None:
            parameter.grad.zero_()
            parameter.grad = None


register_accountant("ledger", LedgerAccountant, force=True)
