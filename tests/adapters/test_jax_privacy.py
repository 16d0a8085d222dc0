"""JAX-Privacy trains only what was reserved, and what it trained is what the ledger holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ledger import TRAINING, committed, last
from pages import code

if TYPE_CHECKING:
    from service import Running

jax_privacy = pytest.importorskip("jax_privacy", reason="jax-privacy is not installed")

import dp_accounting  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax_privacy import batch_selection  # noqa: E402
from jax_privacy.experimental import accounting  # noqa: E402
from jax_privacy.experimental.execution_plan import (  # noqa: E402
    BandMFExecutionPlanConfig,
    DPExecutionPlan,
)

from accountant.adapters.jax_privacy import training  # noqa: E402
from accountant.adapters.shared_training import NotReserved  # noqa: E402
from accountant.client import Client, Refused  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # JAX warns of itself
EXAMPLES = 64
SAMPLER = {"library": "jax-privacy", "version": jax_privacy.__version__}
STEP = {
    "kind": "gaussian",
    "sensitivity": "1",
    "scale": "4",
    "sampling": {"poisson": "0.125"},
    "neighbouring": "add_or_remove_one",
    "sampler": SAMPLER,
}


def plan_of(bands: int = 1, iterations: int = 12, **other: Any) -> DPExecutionPlan:
    """A plan of plain noise, or of noise in bands."""
    how = {"noise_multiplier": 4.0, "sampling_prob": 0.125, "epsilon": None, "delta": None}
    strategy = np.array([1.0, 0.5, 0.25, 0.125][:bands])
    config = BandMFExecutionPlanConfig(
        iterations=iterations, strategy=strategy, noise_seed=0, **(how | other)
    )
    return config.plan


def train(plan: DPExecutionPlan, steps: int | None = None) -> tuple[int, Any]:
    """Train as the library's documentation does; return the steps and the weights."""
    data = np.random.default_rng(0).normal(size=(EXAMPLES, 3)).astype(np.float32)
    weights, noise = jnp.zeros(3), plan.noise_addition_transform.init(jnp.zeros(3))
    gradient = plan.clipped_grad(lambda w, x: jnp.sum((w - x) ** 2), batch_argnums=1)
    update = jax.jit(plan.noise_addition_transform.update)
    done = 0
    for indices in plan.batch_selection_strategy.batch_iterator(EXAMPLES, rng=0):
        batch = data[indices] if len(indices) else np.zeros((1, 3), np.float32)
        noisy, noise = update(gradient(weights, batch), noise)
        weights = weights - 0.01 * noisy
        done += 1
        if done == steps:
            break
    return done, weights


@pytest.fixture
def population(served: Running) -> str:
    """Add-or-remove-one, with a limit for training."""
    return served.population(TRAINING, "add_or_remove_one")


@pytest.fixture
def filled(served: Running) -> str:
    """A population whose units may be empty, with a limit for training."""
    return served.population(TRAINING, "zero_out")


@pytest.fixture
def ledger(served: Running, population: str) -> Any:
    """A pipeline's client of the first."""
    with served.client(population) as client:
        yield client


def test_what_ran_is_what_is_recorded(served: Running, population: str, ledger: Client) -> None:
    """A plan of twelve steps is committed as twelve Poisson-sampled steps of its noise."""
    with training(ledger, "visits", plan_of()) as run:
        steps, weights = train(run.plan)
    assert (steps, run.steps) == (12, 12)
    assert float(jnp.abs(weights).sum()) > 0
    assert committed(served, population) == [STEP | {"count": 12}]


def test_a_refusal_comes_before_the_first_batch(
    served: Running, population: str, ledger: Client
) -> None:
    """A plan that does not fit raises Refused where the block is entered."""
    plan = plan_of(noise_multiplier=0.3, iterations=5000)
    with pytest.raises(Refused, match="lifetime"), training(ledger, "visits", plan):
        raise AssertionError
    assert committed(served, population) == []


def test_early_stopping_gives_back_what_did_not_run(
    served: Running, population: str, ledger: Client
) -> None:
    """Training that stops after five steps pays for five."""
    with training(ledger, "visits", plan_of()) as run:
        train(run.plan, steps=5)
    assert committed(served, population) == [STEP | {"count": 5}]


def test_an_exception_is_charged_for_its_steps(
    served: Running, population: str, ledger: Client
) -> None:
    """An exception after a step's noise commits the steps so far, and goes on."""

    def work() -> None:
        with training(ledger, "visits", plan_of()) as run:
            train(run.plan, steps=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert committed(served, population) == [STEP]


def test_no_batch_no_charge(served: Running, population: str, ledger: Client) -> None:
    """A block that takes no batch is released."""
    with training(ledger, "visits", plan_of()):
        pass
    assert last(served, population) == "grant.released.v1"


def test_bands_are_charged_by_round(served: Running, filled: str) -> None:
    """With three bands, four steps are two rounds: the second has begun."""
    with served.client(filled) as ledger, training(ledger, "visits", plan_of(bands=3)) as run:
        train(run.plan, steps=4)
    assert committed(served, filled) == [STEP | {"count": 2, "neighbouring": "zero_out"}]


def test_equal_groups_are_refused_where_a_record_may_be_added(ledger: Client) -> None:
    """Groups of equal size change with the number of records: no plan for add_or_remove_one."""
    with pytest.raises(Refused), training(ledger, "visits", plan_of(bands=3)):
        raise AssertionError


def test_independent_groups_are_charged_there(
    served: Running, population: str, ledger: Client
) -> None:
    """Groups that each record picks by itself are charged under add_or_remove_one."""
    add = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    how = {"partition_type": batch_selection.PartitionType.INDEPENDENT}
    how |= {"accountant": dp_accounting.pld.PLDAccountant(add)}
    with training(ledger, "visits", plan_of(bands=3, **how)) as run:
        train(run.plan)
    assert committed(served, population) == [STEP | {"count": 4}]


def test_batches_are_cut_as_the_event_says(served: Running, filled: str) -> None:
    """Truncated Poisson samples are charged as such, and only for as many examples."""
    plan = plan_of(truncated_batch_size=10, num_examples=EXAMPLES)
    with served.client(filled) as ledger, training(ledger, "visits", plan) as run:
        train(run.plan)
    cut = {"truncated": {"rate": "0.125", "of": EXAMPLES, "at_most": 10}}
    assert committed(served, filled) == [STEP | {"count": 12, "sampling": cut}]
    smaller = plan_of(truncated_batch_size=10, num_examples=EXAMPLES // 2)
    with (
        served.client(filled) as ledger,
        training(ledger, "visits", smaller) as run,
        pytest.raises(NotReserved, match="64 examples"),
    ):
        train(run.plan)
    assert last(served, filled) == "grant.released.v1"


def fixed_plan(**other: Any) -> DPExecutionPlan:
    """A plan with batches of a fixed size."""
    how = {"dataset_size": EXAMPLES, "batch_size": 8} | other
    batches = batch_selection.FixedBatchSampling(batch_size=8, iterations=12)
    event = accounting.fixed_dpsgd_event(8.0, 12, **how)
    plain = plan_of(noise_multiplier=8.0)
    return DPExecutionPlan(plain.clipped_grad, batches, plain.noise_addition_transform, event)


def test_batches_of_a_fixed_size(served: Running) -> None:
    """Batches without replacement are charged under replace_one, at twice the clipping norm."""
    population = served.population(TRAINING, "replace_one")
    with served.client(population) as ledger, training(ledger, "visits", fixed_plan()) as run:
        train(run.plan, steps=3)
    drawn = {"without_replacement": {"sample": 8, "of": EXAMPLES}}
    stated = {"sensitivity": "2", "scale": "8", "neighbouring": "replace_one", "sampling": drawn}
    assert committed(served, population) == [STEP | stated | {"count": 3}]


def other_batches(**change: Any) -> DPExecutionPlan:
    """A plan whose batches are not those of its event."""
    plan = plan_of()
    batches = batch_selection.CyclicPoissonSampling(
        **{"sampling_prob": 0.125, "iterations": 12} | change
    )
    return DPExecutionPlan(plan.clipped_grad, batches, plan.noise_addition_transform, plan.dp_event)


@pytest.mark.parametrize(
    "plan",
    [
        other_batches(sampling_prob=0.5),
        other_batches(iterations=13),
        other_batches(truncated_batch_size=4),
        fixed_plan(batch_size=4),
    ],
    ids=["rate", "steps", "cut", "size"],
)
def test_batches_other_than_the_event_s_are_stopped(
    served: Running, population: str, ledger: Client, plan: DPExecutionPlan
) -> None:
    """A plan whose event does not describe its batches is not even asked for."""
    before = len(served.events(population))
    with pytest.raises(NotReserved, match="not its event"), training(ledger, "visits", plan):
        raise AssertionError
    assert len(served.events(population)) == before


def test_a_plan_s_batches_are_drawn_once(ledger: Client) -> None:
    """A second pass over a plan's batches would be a second training."""
    with training(ledger, "visits", plan_of()) as run:
        train(run.plan, steps=2)
        with pytest.raises(NotReserved, match="drawn once"):
            train(run.plan)


def test_batches_after_the_end_are_stopped(ledger: Client) -> None:
    """Once a training is committed its plan hands out nothing."""
    with training(ledger, "visits", plan_of()) as run:
        pass
    with pytest.raises(NotReserved, match="has ended"):
        train(run.plan)


def test_an_event_alone_is_counted_by_hand(
    served: Running, population: str, ledger: Client
) -> None:
    """With ``step`` before each noise, an event pays for the steps that ran and stops after."""
    event = accounting.dpsgd_event(4.0, 5, sampling_prob=0.125)
    with training(ledger, "visits", event, records_per_unit=2) as run:
        for _ in range(5):
            run.step()
        with pytest.raises(NotReserved, match="step 6 was not reserved"):
            run.step()
    assert committed(served, population) == [STEP | {"count": 5, "group_size": 2}]


def test_an_event_in_bands_is_counted_by_round(served: Running, filled: str) -> None:
    """Told how many steps make a round, an event of bands is charged by round, under zero_out."""
    event = accounting.amplified_bandmf_event(4.0, 12, num_bands=4, sampling_prob=0.125)
    with (
        served.client(filled) as ledger,
        training(ledger, "visits", event, steps_per_round=4) as run,
    ):
        for _ in range(5):
            run.step()
    assert committed(served, filled) == [STEP | {"count": 2, "neighbouring": "zero_out"}]


def test_another_event_is_committed_whole(served: Running, population: str, ledger: Client) -> None:
    """What is no repetition of a step is charged as it is, once it has begun."""
    event = dp_accounting.ComposedDpEvent(
        [dp_accounting.GaussianDpEvent(8.0), dp_accounting.GaussianDpEvent(9.0)]
    )
    with training(ledger, "visits", event) as run:
        run.step()
    found = committed(served, population)
    assert [(each["kind"], each["scale"]) for each in found] == [
        ("gaussian", "8"),
        ("gaussian", "9"),
    ]


def test_several_records_of_a_unit_need_plain_poisson_samples(ledger: Client) -> None:
    """With bands, or batches of a fixed size, nothing is proved of units with several records."""
    for plan in (plan_of(bands=2), fixed_plan()):
        with (
            pytest.raises(ValueError, match="2 records"),
            training(ledger, "visits", plan, records_per_unit=2),
        ):
            raise AssertionError


def test_the_page_does_what_it_says(served: Running, population: str, ledger: Client) -> None:
    """The page's plan and its loop of one's own pay for a thousand steps each."""
    trained: list[Any] = []
    names = {"ledger": ledger, "examples": EXAMPLES, "train": trained.append}
    names |= {"batches": [*range(1000)]}
    blocks = code("adapters-training.md", "JAX-Privacy")
    for block in blocks:
        exec(compile(block, "adapters-training.md", "exec"), names)  # noqa: S102 our own page
    assert len(trained) == 2000
    step = {"kind": "gaussian", "scale": "1.1", "count": 1000, "sampling": {"poisson": "0.01"}}
    for found in committed(served, population):
        assert {name: found[name] for name in step} == step
    assert len(committed(served, population)) == len(blocks) == 2
