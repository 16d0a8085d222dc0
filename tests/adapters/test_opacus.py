"""Opacus trains only what was reserved, and what it trained is what the ledger holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ledger import TRAINING, asked, committed, last
from pages import code

if TYPE_CHECKING:
    from service import Running

torch = pytest.importorskip("torch", reason="torch is not installed")
opacus = pytest.importorskip("opacus", reason="opacus is not installed")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import RDPAccountant  # noqa: E402
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch.utils.data import DataLoader, RandomSampler, TensorDataset  # noqa: E402

from accountant.adapters.opacus import Poisson, Shuffled, rate_drawn, training  # noqa: E402
from accountant.adapters.shared_training import NotReserved  # noqa: E402
from accountant.client import Client, Refused, dp_sgd  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch and Opacus warn of themselves
RECORDS = 64
RATE = 0.125
SIGMA = 4.0


class Work:
    """A small model on random data, made private with the engine's accountant "ledger"."""

    def __init__(self, batch: int = 8, sigma: float = SIGMA, **how: Any) -> None:
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(RECORDS, 4), torch.randint(0, 2, (RECORDS,)))
        model = how.pop("wrap", lambda model: model)(torch.nn.Linear(4, 2))
        loader = how.pop("loader", None) or DataLoader(data, batch_size=batch, shuffle=True)
        self.engine = PrivacyEngine(accountant="ledger")
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=sigma,
            max_grad_norm=how.pop("max_grad_norm", 1.0),
            **how,
        )

    @property
    def weights(self) -> Any:
        """A copy of what was learnt."""
        return torch.cat([each.detach().flatten().clone() for each in self.model.parameters()])

    def backward(self, batch: Any) -> None:
        """Compute the gradients of one batch."""
        features, labels = batch
        torch.nn.functional.cross_entropy(self.model(features), labels).backward()

    def step(self, batch: Any) -> None:
        """Make one step on one batch."""
        self.optimizer.zero_grad()
        self.backward(batch)
        self.optimizer.step()

    def epoch(self) -> None:
        """Make a step on each batch of the loader."""
        for batch in self.loader:
            self.step(batch)


def poisson_steps(steps: int, rate: float = RATE, sigma: str = "4") -> dict[str, Any]:
    """So many steps, as the ledger writes them."""
    stated = dp_sgd(sigma, rate_drawn(rate), steps)
    return stated | {"sampler": {"library": "opacus", "version": opacus.__version__}}


@pytest.fixture
def population(served: Running) -> str:
    """Add-or-remove-one, with a limit for training."""
    return served.population(TRAINING, "add_or_remove_one")


@pytest.fixture
def ledger(served: Running, population: str) -> Any:
    """A pipeline's client of that population."""
    with served.client(population) as client:
        yield client


def plan(**other: Any) -> dict[str, Any]:
    """Two epochs of the small model."""
    return {"noise_multiplier": SIGMA, "sample_rate": RATE, "steps": 16} | other


def test_what_ran_is_what_is_recorded(served: Running, population: str, ledger: Client) -> None:
    """A run of two epochs is committed as sixteen Poisson-sampled steps of its noise."""
    work = Work()
    before = work.weights
    with training(ledger, "visits", **plan()) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
        work.epoch()
    assert not torch.equal(before, work.weights)
    assert committed(served, population) == [poisson_steps(16)]
    assert len(work.engine.accountant) == 16


def test_the_rate_is_that_of_the_generator() -> None:
    """The charged rate is the share of the generator's 2^24 numbers below the sampler's rate."""
    numbers = torch.arange(2**24, dtype=torch.float32) / 2**24
    for rate in (RATE, 0.01, 1 / 3, 1 / 49, 1e-7, 1.0):
        assert rate_drawn(rate) == Fraction(int((numbers < rate).sum()), 2**24)


def test_a_refusal_comes_before_the_first_step(
    served: Running, population: str, ledger: Client
) -> None:
    """A plan that does not fit raises Refused where the block is entered; nothing is learnt."""
    work = Work(sigma=0.3)
    before = work.weights
    with (
        pytest.raises(Refused, match="lifetime"),
        training(ledger, "visits", **plan(noise_multiplier=0.3, steps=10_000)),
    ):
        work.epoch()
    assert torch.equal(before, work.weights)
    assert work.optimizer.param_groups[0]["params"][0].grad is None
    assert committed(served, population) == []


def test_early_stopping_gives_back_what_did_not_run(
    served: Running, population: str, ledger: Client
) -> None:
    """A run that stops after three steps pays for three."""
    work = Work()
    with training(ledger, "visits", **plan()) as run:
        for batch, _ in zip(run.watch(work.optimizer, work.loader), range(3), strict=False):
            work.step(batch)
        assert run.steps == 3
    assert committed(served, population) == [poisson_steps(3)]


def test_an_exception_is_charged_for_its_steps(
    served: Running, population: str, ledger: Client
) -> None:
    """An exception after the second step's noise commits two steps, and goes on."""
    work = Work()

    def train() -> None:
        with training(ledger, "visits", **plan()) as run:
            for number, batch in enumerate(run.watch(work.optimizer, work.loader)):
                work.step(batch)
                if number == 1:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert committed(served, population) == [poisson_steps(2)]


def test_a_run_without_a_step_costs_nothing(
    served: Running, population: str, ledger: Client
) -> None:
    """A block in which no noise was drawn is released."""
    with training(ledger, "visits", **plan()):
        pass
    assert last(served, population) == "grant.released.v1"


def test_a_surplus_step_draws_no_noise(served: Running, population: str, ledger: Client) -> None:
    """The step after the last reserved one is stopped before its noise, and changes no weight."""
    work = Work()
    with training(ledger, "visits", **plan(steps=8)) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
        before = work.weights
        work.optimizer.zero_grad()
        work.backward(next(iter(work.loader)))
        gradients = [parameter.grad.clone() for parameter in work.optimizer.params]
        with pytest.raises(NotReserved, match="step 9 was not reserved"):
            work.optimizer.step()
        after = [parameter.grad for parameter in work.optimizer.params]
        assert all(map(torch.equal, gradients, after))  # those of the batch, without noise
        assert torch.equal(before, work.weights)
    assert committed(served, population) == [poisson_steps(8)]


def test_less_noise_than_reserved_draws_none(
    served: Running, population: str, ledger: Client
) -> None:
    """A model that was made private with less noise than planned makes no step."""
    work = Work(sigma=1.0)
    with training(ledger, "visits", **plan()) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        with pytest.raises(NotReserved, match="noise_multiplier=1"):
            work.epoch()
    assert committed(served, population) == []


def test_another_rate_than_reserved_draws_no_noise(
    served: Running, population: str, ledger: Client
) -> None:
    """Batches twice as large as planned make no step."""
    work = Work(batch=16)
    with training(ledger, "visits", **plan()) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        with pytest.raises(NotReserved, match=r"sample_rate=0\.25"):
            work.epoch()
    assert committed(served, population) == []


def test_stages_with_other_batch_sizes(served: Running, population: str, ledger: Client) -> None:
    """Each stage is charged at its own noise and rate, in the order in which they ran."""
    small, large = Work(), Work(batch=16, sigma=8.0)
    stages = Poisson(SIGMA, RATE, 8), Poisson(8.0, 0.25, 8)
    with training(ledger, "visits", *stages) as run:
        for work in (small, large):
            work.loader = run.watch(work.optimizer, work.loader)
            work.epoch()
    assert committed(served, population) == [poisson_steps(8), poisson_steps(4, 0.25, "8")]


def test_an_optimizer_that_nobody_watches_is_stopped(
    served: Running, population: str, ledger: Client
) -> None:
    """With the accountant "ledger" a step that did not ask leaves no noisy gradient behind."""
    work = Work()
    before = work.weights
    batch = next(iter(work.loader))
    work.backward(batch)
    with training(ledger, "visits", **plan()), pytest.raises(NotReserved, match="watch"):
        work.optimizer.step()
    assert torch.equal(before, work.weights)
    assert all(parameter.grad is None for parameter in work.optimizer.params)
    assert committed(served, population) == []


def test_without_a_training_there_is_no_step() -> None:
    """The accountant "ledger" trains nothing that no grant covers."""
    work = Work()
    with pytest.raises(NotReserved, match="no training is reserved"):
        work.epoch()


def test_a_step_after_the_end_is_stopped(served: Running, population: str, ledger: Client) -> None:
    """Once the training is committed its optimizer draws no noise."""
    work = Work()
    with training(ledger, "visits", **plan()) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
    with pytest.raises(NotReserved, match="has ended"):
        work.epoch()
    assert committed(served, population) == [poisson_steps(8)]


def test_small_memory_changes_no_charge(served: Running, population: str, ledger: Client) -> None:
    """Batches that BatchMemoryManager cuts into parts are still one step each."""
    work = Work()
    with training(ledger, "visits", **plan()) as run:
        loader = run.watch(work.optimizer, work.loader)
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=2, optimizer=work.optimizer
        ) as parts:
            for batch in parts:
                work.step(batch)
    assert committed(served, population) == [poisson_steps(8)]


def test_a_step_on_two_batches_is_stopped(ledger: Client) -> None:
    """Gradients of two Poisson samples in one step are refused: one record may be in both."""
    work = Work()
    work.model.allow_grad_accumulation()
    with training(ledger, "visits", **plan()) as run:
        first, second, *_ = run.watch(work.optimizer, work.loader)
        work.backward(first)
        work.backward(second)
        with pytest.raises(NotReserved, match="one step on 2 batches"):
            work.optimizer.step()


def test_two_watches_are_one(served: Running, population: str, ledger: Client) -> None:
    """Watching an optimizer again, with the loader of another epoch, counts each step once."""
    work = Work()
    with training(ledger, "visits", **plan()) as run:
        for _ in range(2):
            work.loader = run.watch(work.optimizer, work.loader)
            work.epoch()
    assert committed(served, population) == [poisson_steps(16)]


def test_records_of_a_unit(served: Running, population: str, ledger: Client) -> None:
    """A unit with two records is charged as such."""
    work = Work()
    with training(ledger, "visits", **plan(), records_per_unit=2) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
    assert committed(served, population) == [poisson_steps(8) | {"group_size": 2}]


# -- shuffled batches ------------------------------------------------------------------------


def passes(epochs: int) -> dict[str, Any]:
    """So many passes, as the ledger writes them."""
    more = {"count": epochs} if epochs > 1 else {}
    stated = {"kind": "gaussian", "sensitivity": "1", "scale": "4", "neighbouring": "zero_out"}
    return stated | more | {"sampler": {"library": "opacus", "version": opacus.__version__}}


@pytest.fixture
def filled(served: Running) -> str:
    """A population whose units may be empty, with a limit for training."""
    return served.population(TRAINING, "zero_out")


def test_shuffled_passes_cost_one_step_each(served: Running, filled: str) -> None:
    """Two passes over shuffled batches are two steps without sampling, under zero_out."""
    work = Work(poisson_sampling=False)
    with (
        served.client(filled) as ledger,
        training(ledger, "visits", Shuffled(SIGMA, epochs=4)) as run,
    ):
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
        for batch, _ in zip(work.loader, range(2), strict=False):  # a pass that is broken off
            work.step(batch)
        assert run.steps == 10
    assert committed(served, filled) == [passes(2)]


def test_shuffled_batches_are_refused_where_nothing_is_proved(ledger: Client) -> None:
    """Under add_or_remove_one the service refuses shuffled batches before the training."""
    with (
        pytest.raises(Refused),
        training(ledger, "visits", Shuffled(SIGMA, epochs=1)),
    ):
        raise AssertionError


def test_shuffled_batches_are_not_poisson_samples(
    served: Running, population: str, ledger: Client
) -> None:
    """A loader that shuffles makes no step of a plan of Poisson samples."""
    work = Work(poisson_sampling=False)
    with training(ledger, "visits", **plan()) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        with pytest.raises(NotReserved, match="Shuffled"):
            work.epoch()
    assert committed(served, population) == []


def shuffled(served: Running, filled: str, misuse: Callable[[Work, Any], None], why: str) -> None:
    """Misuse one pass, and expect to be stopped."""
    work = Work(poisson_sampling=False)
    with (
        served.client(filled) as ledger,
        training(ledger, "visits", Shuffled(SIGMA, epochs=1)) as run,
        pytest.raises(NotReserved, match=why),
    ):
        misuse(work, run.watch(work.optimizer, work.loader))


def test_a_pass_more_is_stopped(served: Running, filled: str) -> None:
    """The pass after the last reserved one draws no noise."""

    def twice(work: Work, loader: Any) -> None:
        for batch in [*loader]:
            work.step(batch)
            break
        for batch in loader:
            work.step(batch)

    shuffled(served, filled, twice, "was not reserved")
    assert committed(served, filled) == [passes(1)]


def test_two_steps_on_one_batch_are_stopped(served: Running, filled: str) -> None:
    """A batch of a pass makes one step: two would show its records twice."""

    def again(work: Work, loader: Any) -> None:
        batch = next(iter(loader))
        work.step(batch)
        work.step(batch)

    shuffled(served, filled, again, "without a batch of its own")


def test_two_passes_at_once_are_stopped(served: Running, filled: str) -> None:
    """Two iterators of one loader are two passes: the first ends where the second begins."""

    def both(work: Work, loader: Any) -> None:
        for one, _ in zip(loader, loader, strict=True):
            work.step(one)

    shuffled(served, filled, both, "two passes at once")


@pytest.mark.parametrize("replacement", [True, False])
def test_what_is_no_partition_is_refused(ledger: Client, *, replacement: bool) -> None:
    """Sampling with replacement, or more draws than records, is neither kind of batch."""
    data = TensorDataset(torch.randn(RECORDS, 4), torch.randint(0, 2, (RECORDS,)))
    order = RandomSampler(data, replacement=replacement, num_samples=2 * RECORDS)
    work = Work(loader=DataLoader(data, batch_size=8, sampler=order), poisson_sampling=False)
    with (
        training(ledger, "visits", **plan()) as run,
        pytest.raises(NotReserved, match="nothing is proved"),
    ):
        run.watch(work.optimizer, work.loader)


def test_adaptive_clipping_is_refused(ledger: Client) -> None:
    """The clipping norm would follow the true size of the batch, which gets no noise."""
    adaptive = {"target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.2}
    adaptive |= {"max_clipbound": 2.0, "min_clipbound": 0.5, "unclipped_num_std": 10.0}
    work = Work(clipping="adaptive", **adaptive)
    with (
        training(ledger, "visits", **plan()) as run,
        pytest.raises(NotReserved, match="adaptive clipping"),
    ):
        run.watch(work.optimizer, work.loader)


def test_several_processes_are_refused(ledger: Client, tmp_path: Path) -> None:
    """Training that is spread over processes would ask for the plan in each of them."""
    place = f"file://{tmp_path}/meeting"
    torch.distributed.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    try:
        work = Work(wrap=DifferentiallyPrivateDistributedDataParallel)
        with (
            training(ledger, "visits", **plan()) as run,
            pytest.raises(NotReserved, match="one process"),
        ):
            run.watch(work.optimizer, work.loader)
    finally:
        torch.distributed.destroy_process_group()


def test_clipping_by_layer_is_charged_alike(
    served: Running, population: str, ledger: Client
) -> None:
    """Per-layer clipping has noise for the norm of all layers together."""
    work = Work(clipping="per_layer", max_grad_norm=[1.0, 1.0])
    with training(ledger, "visits", **plan()) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
    assert committed(served, population) == [poisson_steps(8)]


# -- the library's own numbers, and the environment ------------------------------------------


def test_get_epsilon_is_the_library_s(ledger: Client) -> None:
    """The engine reports what Opacus's own accountants say of the same history."""
    work = Work()
    with training(ledger, "visits", **plan()) as run:
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
    library = RDPAccountant()
    library.history = [(SIGMA, RATE, 8)]
    found = work.engine.accountant.get_epsilon(1e-5, accountant="rdp")
    assert found == library.get_epsilon(1e-5)
    assert 0 < work.engine.get_epsilon(1e-5) <= found


def test_calibration_needs_no_grant() -> None:
    """Opacus finds a noise multiplier with the accountant "ledger" before anything is asked."""
    model = torch.nn.Linear(4, 2)
    data = TensorDataset(torch.randn(RECORDS, 4), torch.randint(0, 2, (RECORDS,)))
    engine = PrivacyEngine(accountant="ledger")
    _, optimizer, _ = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=8),
        target_epsilon=2.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
    )
    assert 0.5 < optimizer.noise_multiplier < 10


PROGRAM = """
import test_opacus, accountant.adapters.opacus as adapter
work = test_opacus.Work()
work.loader = adapter.current().watch(work.optimizer, work.loader)
work.epoch()
"""


def test_the_plan_may_come_from_the_environment(served: Running, population: str) -> None:
    """A program without a block trains what the environment plans, and commits when it ends."""
    about = {"ACCOUNTANT_URL": served.url, "ACCOUNTANT_KEY": served.keys["pipeline"]}
    about |= {"ACCOUNTANT_POPULATION": population}
    about["ACCOUNTANT_TRAINING"] = json.dumps({"dataset": "visits"} | plan())
    here = Path(__file__).parent
    about["PYTHONPATH"] = f"{here}:{here.parents[1]}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], env=about, check=True)
    assert committed(served, population) == [poisson_steps(8)]


def test_a_plan_is_stated_once(ledger: Client) -> None:
    """Numbers beside stages, or too few of them, are an error before anything is asked."""
    for stages, numbers in ([(Poisson(1, 0.1, 1),), plan()], [(), {"steps": 3}], [(), {}]):
        with (
            pytest.raises(ValueError, match="or stages"),
            training(ledger, "visits", *stages, **numbers),
        ):
            raise AssertionError


def test_a_restarted_program_is_not_charged_twice(
    served: Running, population: str, ledger: Client
) -> None:
    """The same key in a second run raises MayHaveRun before a step, and books nothing more."""
    from accountant.client import MayHaveRun  # noqa: PLC0415

    work = Work()
    with training(ledger, "visits", **plan(), idempotency_key="run-7") as run:
        work.loader = run.watch(work.optimizer, work.loader)
        work.epoch()
    with (
        pytest.raises(MayHaveRun),
        training(ledger, "visits", **plan(), idempotency_key="run-7"),
    ):
        raise AssertionError
    assert committed(served, population) == [poisson_steps(8)]


ROOMY = """
policy: training
rules:
  - {id: lifetime, limit: {epsilon: 50, delta: 1e-5}, gate: renyi}
"""


def test_the_documented_training_pays(served: Running) -> None:
    """The first example of the page, on a small model: what is committed is what it plans."""
    population = served.population(ROOMY, "add_or_remove_one")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(RECORDS, 4), torch.randint(0, 2, (RECORDS,)))
    model = torch.nn.Linear(4, 2)

    def train(model: Any, optimizer: Any, loader: Any) -> None:
        for features, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()

    with served.client(population) as ledger:
        names: dict[str, Any] = {
            "ledger": ledger,
            "loader": DataLoader(data, batch_size=8, shuffle=True),
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "train": train,
        }
        block = code("adapters-training.md", "Opacus")[0]
        exec(compile(block, "adapters-training.md", "exec"), names)  # noqa: S102 our own page
    assert committed(served, population) == [poisson_steps(80, sigma="1.1")]


def test_the_documented_stages_are_reserved_together(served: Running) -> None:
    """The page's second example asks for both stages in one grant."""
    population = served.population(ROOMY, "add_or_remove_one")
    with served.client(population) as ledger:
        block = code("adapters-training.md", "Opacus")[1]
        exec(compile(block, "adapters-training.md", "exec"), {"ledger": ledger})  # noqa: S102 our own page
    [stages] = asked(served, population)
    assert [(each["scale"], each["count"]) for each in stages] == [("1.1", 500), ("2", 100)]
