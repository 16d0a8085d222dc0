"""Private learning: what training costs, held against dp_accounting 0.6 and exact values."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, pairwise
from math import inf, log
from typing import Any

import pytest
from dp_accounting import LaplaceDpEvent, NeighboringRelation
from dp_accounting import dp_event as theirs
from dp_accounting.rdp import RdpAccountant
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from accountant.privacy.conversions import intercept
from accountant.privacy.filters import ORDERS
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation, Verdict, price
from accountant.privacy.mechanisms.dp_event import dp_event_of, mechanisms_of
from accountant.privacy.mechanisms.pricing import derive
from accountant.privacy.units import Currency

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
ADD, REPLACE, ZERO_OUT = Relation
DELTA = Fraction(1, 10**6)
SMALL = tuple(order for order in ORDERS if 2 <= order <= 64)


def noise(scale: str, sensitivity: str = "1", **more: Any) -> dict[str, Any]:
    """Gaussian noise."""
    return {"kind": "gaussian", "sensitivity": sensitivity, "scale": scale} | more


def drawn(sample: int, of: int) -> dict[str, Any]:
    """A sample of fixed size."""
    return {"without_replacement": {"sample": sample, "of": of}}


POISSON = {"poisson": "0.01"}
CUT = {"truncated": {"rate": "0.01", "of": 10**4, "at_most": 120}}
ADDED = {"neighbouring": "add_or_remove_one"}


def at_the_best_order(body: dict[str, Any], population: Relation) -> float:
    """The epsilon at a delta of 1e-6 at the order that is stated for just this work."""
    charge = price(ADAPTER.validate_python(body), population, SMALL).charge
    found = [
        Fraction(units, 10**15) + intercept(Fraction(order), DELTA)
        for order in SMALL
        if (units := charge.units(Currency.tau(order))) is not None
    ]
    return float(min(found))


LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "1"}
TREES = {"kind": "tree_aggregation", "sensitivity": "1", "scale": "8.83", "leaves": [1600]}
HUNDRED, THOUSAND, MNIST = drawn(100, 10**4), drawn(1000, 10**4), drawn(256, 60_000)

ROWS: list[tuple[str, dict[str, Any], int, Relation, float, float]] = [
    # name, one step, steps, relation, dp_accounting's epsilon, how much more the gate may cost
    ("100 of 10^4", noise("1.1", "2", sampling=HUNDRED), 1000, REPLACE, 17.868, 1),
    ("100 of 10^4, sensitivity 1", noise("1.1", sampling=HUNDRED), 1000, REPLACE, 3.574, 1),
    ("256 of 60,000", noise("1.3", "2", sampling=MNIST), 3000, REPLACE, 7.905, 1),
    ("1,000 of 10^4", noise("4", "2", sampling=THOUSAND), 500, REPLACE, 14.768, 1),
    ("Poisson, replaced", noise("1.1", sampling=POISSON, **ADDED), 1000, REPLACE, 2.801, 1.25),
    ("two records", noise("1.1", sampling=POISSON, group_size=2), 1000, ADD, 3.760, 1.25),
    ("four records", noise("2", sampling=POISSON, group_size=4), 1000, ADD, 3.270, 1.25),
    ("cut to 120", noise("1.1", sampling=CUT), 1000, ADD, 5.137, 1.3),
    ("cut, replaced", noise("1.1", sampling=CUT, **ADDED), 1000, REPLACE, 5.501, 1.4),
    ("sampled Laplace", LAPLACE | {"sampling": POISSON}, 1000, ADD, 1.2864, 1.25),
    ("trees", TREES, 1, ZERO_OUT, 1.77320, 1),
]


@pytest.mark.parametrize(
    ("body", "steps", "population", "oracle", "room"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_training_costs_what_it_does_elsewhere(
    body: dict[str, Any], steps: int, population: Relation, oracle: float, room: float
) -> None:
    """At an order that is stated for it, training costs no more than dp_accounting 0.6 says, by its
    own best method (RDP or PLD), with the room that an order fixed in advance needs.
    """
    assert at_the_best_order(body | {"count": steps}, population) <= oracle * room * 1.0001


@pytest.mark.parametrize(("scale", "sample", "of"), [(1.1, 100, 10**4), (4.0, 1000, 10**4)])
def test_a_fixed_batch_costs_no_more_than_their_bound(scale: float, sample: int, of: int) -> None:
    """At each order the divergence on a sample of fixed size is at most that of Wang, Balle and
    Kasiviswanathan 2019, which dp_accounting takes.
    """
    event = theirs.SampledWithoutReplacementDpEvent(of, sample, theirs.GaussianDpEvent(scale))
    body = noise(str(scale), sampling=drawn(sample, of))
    for order in (2, 5, 12, 40):
        accountant = RdpAccountant([float(order)], NeighboringRelation.REPLACE_ONE).compose(event)
        [oracle] = accountant._rdp
        tau = price(ADAPTER.validate_python(body), REPLACE, (order,)).charge[Currency.tau(order)]
        assert tau / 1e15 <= oracle * (1 + 1e-9)


TUNED = [
    LaplaceDpEvent(10),
    theirs.GaussianDpEvent(4.0),
    theirs.SelfComposedDpEvent(
        theirs.PoissonSampledDpEvent(0.01, theirs.GaussianDpEvent(2.0)), 1000
    ),
]


@pytest.mark.parametrize("base", TUNED, ids=str)
@pytest.mark.parametrize("shape", [1.0, 0.0, 2.5, inf])
def test_tuning_costs_what_it_does_elsewhere(base: Any, shape: float) -> None:
    """Repeat-and-select costs what dp_accounting says, but for the orders that are tried."""
    event = theirs.RepeatAndSelectDpEvent(base, 10, shape)
    oracle = RdpAccountant().compose(event).get_epsilon(1e-6)
    fields = {"mean": 10, "event": _tree(base), "shape": "infinity" if shape == inf else str(shape)}
    [body] = mechanisms_of({"class": "RepeatAndSelectDpEvent", "fields": fields})
    found = derive(ADAPTER.validate_python(body), ADD).derived
    assert found is not None
    pure = [float(found.epsilon)] if found.epsilon is not None else []
    assert min([at_the_best_order(body, ADD), *pure]) <= max(oracle, 0.6875) * 1.01


def _tree(event: Any) -> dict[str, Any]:
    fields = {name: getattr(event, name) for name in event.__slots__ if name[0] != "_"}
    fields = {
        name: _tree(value) if hasattr(value, "__slots__") and name == "event" else value
        for name, value in fields.items()
    }
    exact = {n: str(v) if isinstance(v, float) else v for n, v in fields.items()}
    return {"class": type(event).__name__, "fields": exact}


def test_tuning_of_a_pure_mechanism_is_pure() -> None:
    """A geometric number of runs of a mean of ten costs three times the epsilon of one, whatever
    the mean; a logarithmic one twice. A Poisson number is not pure.
    """
    base = {"kind": "laplace", "sensitivity": "1", "scale": "10"}
    tuned = {"kind": "repeat_and_select", "mechanism": base, "mean": "10"}
    epsilons = [
        price(ADAPTER.validate_python(tuned | more), ADD).charge.amount(Currency.EPSILON)
        for more in ({}, {"shape": "0"}, {"runs": "poisson"})
    ]
    assert epsilons == ["0.3", "0.2", "infinite"]


@pytest.mark.parametrize(("mean", "shape"), [("10", "0"), ("1.5", "2.5"), ("1e6", "0.5")])
def test_the_parameter_of_a_number_of_runs_is_rounded_down(mean: str, shape: str) -> None:
    """The distribution with the parameter that is found has at least the stated mean, by a hair."""
    body = {"kind": "repeat_and_select", "mechanism": noise("4"), "mean": mean, "shape": shape}
    tuned: Any = ADAPTER.validate_python(body)
    g, n = float(tuned.gamma), float(shape)
    runs = n * (1 - g) / (g * (1 - g**n)) if n else (1 / g - 1) / -log(g)
    assert float(mean) * (1 - 1e-9) <= runs <= float(mean) * (1 + 1e-6)


def test_a_mechanism_that_may_fail_is_not_repeated() -> None:
    """Nothing is proved of repeating what has a delta of its own: the request is refused."""
    tested = {"kind": "propose_test_release", "distance_scale": "1", "threshold": "9"}
    tested["release"] = {"kind": "laplace", "sensitivity": "1", "scale": "9"}  # type: ignore[assignment]
    tuned = {"kind": "repeat_and_select", "mechanism": tested, "mean": "10"}
    priced = price(ADAPTER.validate_python(tuned), ADD, (8,))
    assert [o.code for o in priced.objections] == ["repeated-delta"]
    assert priced.charge.is_infinite(Currency.tau(8))


def test_a_tree_is_its_largest_number_of_sums() -> None:
    """1,600 leaves are in 11 sums each: mu^2 = 11 / 8.83^2; of several trees the largest counts."""
    for leaves in ([1600], [3, 1600, 12]):
        body = {"kind": "tree_aggregation", "sensitivity": "1", "scale": "8.83", "leaves": leaves}
        tree = ADAPTER.validate_python(body)
        found = derive(tree, ZERO_OUT).derived
        assert found is not None
        assert found.mu_squared == 11 / Fraction("8.83") ** 2
    written = json.loads(json.dumps(dp_event_of([tree], ZERO_OUT)), parse_float=Decimal)
    [same] = mechanisms_of(written)
    assert price(ADAPTER.validate_python(same), ZERO_OUT) == price(tree, ZERO_OUT)


def _most(leaves: list[int], units: int, between: int) -> int:
    """The squared sensitivity of trees by looking at all ways in which a unit may take part."""
    places = [(t, i) for t, n in enumerate(leaves) for i in range(n)]
    sums = [
        {(t, i) for i in range(start, start + size)}
        for t, n in enumerate(leaves)
        for size in (1 << h for h in range(n.bit_length()))
        for start in range(0, n - size + 1, size)
    ]
    return max(
        sum(len(one & set(chosen)) ** 2 for one in sums)
        for count in range(1, units + 1)
        for chosen in combinations(places, count)
        if all(t != u or j - i > between for (t, i), (u, j) in pairwise(chosen))
    )


@pytest.mark.parametrize("leaves", [[7], [8], [11], [5, 6]], ids=str)
@pytest.mark.parametrize("units", [1, 2, 3])
@pytest.mark.parametrize("between", [0, 1, 3])
def test_a_tree_of_leaves_apart_costs_no_less_than_it_can(
    leaves: list[int], units: int, between: int
) -> None:
    """Of all ways to take part, none moves the sums by more than what is charged; a third less than
    that is not safe, and what lies between never makes it dearer.
    """
    body = {"kind": "tree_aggregation", "sensitivity": "1", "scale": "1", "leaves": leaves}
    body |= {"leaves_per_unit": units}
    charged = [
        derive(ADAPTER.validate_python(body | more), ZERO_OUT).derived
        for more in ({"leaves_between": between}, {})
    ]
    apart, anywhere = (loss.mu_squared for loss in charged if loss is not None)
    assert apart is not None
    assert anywhere is not None
    assert _most(leaves, units, between) <= apart <= anywhere
    assert apart <= _most(leaves, units, between) * 3 / 2


def test_a_mixture_of_two_is_a_poisson_sample() -> None:
    """Moving by 0 or 1 with the chances of a sample costs what the sample does, in every order."""
    moves = [{"by": "0", "chance": "0.99"}, {"by": "1", "chance": "0.01"}]
    mixed = {"kind": "gaussian_mixture", "scale": "1.1", "moves": moves}
    orders = (2, 7, 30)
    found = price(ADAPTER.validate_python(mixed), ADD, orders).charge
    assert (
        found == price(ADAPTER.validate_python(noise("1.1", sampling=POISSON)), ADD, orders).charge
    )


def test_moves_off_a_grid_go_up_to_it() -> None:
    """Moves without a common step are rounded up to a thousandth of the largest: never cheaper."""
    odd = [("0", "0.5"), ("0.3333333333333333", "0.25"), ("1", "0.25")]
    even = [("0", "0.5"), ("0.333", "0.25"), ("1", "0.25")]
    charges = [
        price(
            ADAPTER.validate_python(
                {"kind": "gaussian_mixture", "scale": "2"}
                | {"moves": [{"by": by, "chance": chance} for by, chance in moves]}
            ),
            ADD,
            (2,),
        ).charge[Currency.tau(2)]
        for moves in (odd, even)
    ]
    assert charges[0] >= charges[1]


@pytest.mark.parametrize("moves", [[], [("0", "1")], [("1", "0.5")], [("1", "0.7"), ("2", "0.4")]])
def test_moves_must_be_some_and_certain(moves: list[tuple[str, str]]) -> None:
    """A mixture has a move, and its chances add up to one."""
    body = [{"by": by, "chance": chance} for by, chance in moves]
    with pytest.raises(ValidationError):
        ADAPTER.validate_python({"kind": "gaussian_mixture", "scale": "1", "moves": body})


def test_chances_that_floats_spell_are_completed_upwards() -> None:
    """What floats lack to add up to one goes to the larger move."""
    fields = {
        "standard_deviation": 1,
        "sensitivities": [0, 1],
        "sampling_probs": [0.9, 0.09999999999999998],
    }
    [body] = mechanisms_of({"class": "MixtureOfGaussiansDpEvent", "fields": _spelled(fields)})
    assert [Decimal(move["chance"]) for move in body["moves"]] == [Decimal("0.9"), Decimal("0.1")]
    with pytest.raises(PydanticCustomError, match="as many"):
        mechanisms_of(
            {
                "class": "MixtureOfGaussiansDpEvent",
                "fields": _spelled(fields) | {"sensitivities": [1]},
            }
        )


def _spelled(fields: dict[str, Any]) -> dict[str, Any]:
    return {n: list(map(str, v)) if isinstance(v, list) else str(v) for n, v in fields.items()}


def test_several_questions_on_one_sample_are_one_step() -> None:
    """Four Gaussians of twice the noise on one sample are the step of DP-SGD they add up to."""
    parts = [noise("2.2", count=2), noise("2.2"), noise("2.2")]
    together = {"kind": "composed", "mechanisms": parts, "sampling": POISSON}
    orders = (2, 8, 30)
    one = price(ADAPTER.validate_python(noise("1.1", sampling=POISSON)), ADD, orders).charge
    assert price(ADAPTER.validate_python(together), ADD, orders).charge == one


def test_a_declared_base_makes_the_whole_unverifiable() -> None:
    """Boosting with a base that is only declared is charged by it, and marked as resting on it."""
    draw = {"kind": "exponential", "sensitivity": "0.01", "scale": "20"}
    body = {"kind": "boosting", "rounds": 2, "draws": 3, "draw": draw}
    body |= {"base": {"kind": "declared", "epsilon": "0.1", "delta": "1e-9"}}
    priced = price(ADAPTER.validate_python(body), ADD)
    assert priced.verdict is Verdict.UNVERIFIABLE
    assert priced.charge.amount(Currency.EPSILON) == "0.206"
    assert priced.charge.amount(Currency.DELTA) == "0.000000002"
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(body | {"base": {"kind": "declared", "rho": "0.1"}})


@pytest.mark.parametrize(
    ("stated", "population", "bounded"),
    [
        (ADD, ZERO_OUT, True),
        (ZERO_OUT, REPLACE, True),
        (ZERO_OUT, ADD, False),
        (REPLACE, ZERO_OUT, False),
    ],
)
def test_an_empty_unit_is_one_that_is_not_there(
    stated: Relation, population: Relation, bounded: bool
) -> None:
    """What is stated for a unit that is there or not holds where it is emptied, and doubled where
    it is replaced; nothing else follows.
    """
    body = noise("4", neighbouring=str(stated))
    priced = price(ADAPTER.validate_python(body), population)
    assert priced.charge.is_infinite(Currency.RHO) is not bounded
    assert ("relation-not-derivable" in [o.code for o in priced.objections]) is not bounded
