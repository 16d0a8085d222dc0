"""OpenDP's releases ask before they draw, and what they draw is what the ledger holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

dp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed")

from ledger import asked, counts, events  # noqa: E402

from accountant.adapters.opendp import (  # noqa: E402
    Exceeded,
    Unpaid,
    WrongMap,
    invoke,
    paying,
    strict,
)
from accountant.client import Refused, Unreachable  # noqa: E402

if TYPE_CHECKING:
    from service import Running

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")

ROWS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
ADDED = {"neighbouring": "add_or_remove_one"}


class Sampler:
    """A measurement of epsilon 1/2 that counts how often it is drawn, and may fail."""

    def __init__(self) -> None:
        self.drawn, self.error = 0, None
        self.measurement = dp.m.make_user_measurement(
            *ROWS, dp.max_divergence(), self._draw, lambda d_in: 0.5 * d_in
        )

    def _draw(self, rows: Any) -> int:
        self.drawn += 1
        if self.error:
            raise self.error
        return len(rows)


def context(epsilon: float = 2.0, **how: Any) -> Any:
    """A context of three rows."""
    return dp.Context.compositor(
        data=[1, 2, 3],
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=epsilon),
        **how,
    )


def count(context: Any, **how: Any) -> Any:
    """A noisy count."""
    return context.query(**how).count().laplace()


@contextmanager
def asking(served: Running, context: Any, **how: Any) -> Iterator[tuple[Any, str]]:
    """A context that pays for a population with a limit of 1."""
    population = served.population(neighbouring="add_or_remove_one")
    with served.client(population) as ledger:
        yield paying(context, ledger, "visits", purpose="test", **how), population


def test_a_release_asks_for_what_it_draws(served: Running) -> None:
    """Each release has a grant of its own, with OpenDP's scale, and is committed."""
    with asking(served, context(split_evenly_over=4)) as (paid, population):
        query = count(paid)
        assert isinstance(query.release(), int)
        assert isinstance(count(paid).release(), int)
    wanted = {"kind": "discrete_laplace", "sensitivity": "1", "scale": "2"}
    assert asked(served, population) == [[wanted | {"claimed": {"epsilon": "0.5"}} | ADDED]] * 2
    assert query.param() == 2.0
    assert counts(served, population) == (2, 2, 0, 0)
    booked = [each["charge"]["epsilon"] for each in events(served, population, "grant.committed")]
    assert booked == ["500000000"] * 2


def test_a_refusal_comes_before_noise_and_leaves_opendp_whole(served: Running) -> None:
    """What the ledger refuses is not drawn, and OpenDP has as much left as before: with fixed parts
    and with a filter.
    """
    sampler = Sampler()
    with asking(served, context(split_evenly_over=4)) as (paid, population):
        for _ in range(2):
            paid(sampler.measurement)
        with pytest.raises(Refused, match="lifetime"):
            paid(sampler.measurement)
        assert sampler.drawn == 2
        assert paid.remaining_privacy_loss() == [0.5, 0.5]
        assert paid.current_privacy_loss() == [0.5, 0.5]
    assert counts(served, population) == (2, 2, 0, 1)
    sampler = Sampler()
    with asking(served, context()) as (paid, population):
        paid(sampler.measurement)
        with pytest.raises(Refused):
            count(paid, epsilon=0.75).release()
        assert (sampler.drawn, paid.remaining_privacy_loss()) == (1, 1.5)
        paid(sampler.measurement)
        assert (sampler.drawn, paid.current_privacy_loss()) == (2, 1.0)
    assert counts(served, population) == (2, 2, 0, 1)


def test_what_opendp_would_refuse_is_not_asked(served: Running) -> None:
    """Its own limits come first, and stay open: OpenDP has not seen the query either."""
    with asking(served, context(0.5)) as (paid, population):
        with pytest.raises(Exceeded, match="nothing was asked or drawn"):
            count(paid, epsilon=0.75).release()
        assert isinstance(count(paid, epsilon=0.25).release(), int)
    assert counts(served, population) == (1, 1, 0, 0)
    with asking(served, context(split_evenly_over=1, epsilon=0.25)) as (paid, population):
        with pytest.raises(Exceeded):
            paid(Sampler().measurement)
        count(paid).release()
        with pytest.raises(Exceeded):
            paid(Sampler().measurement)
    assert counts(served, population) == (1, 1, 0, 0)


def test_a_query_of_another_space_is_not_asked(served: Running) -> None:
    """Nor one in another measure, or on other data."""
    others = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    with asking(served, context()) as (paid, population):
        for query in (
            ROWS >> dp.t.then_count() >> dp.m.then_gaussian(2.0),
            others >> dp.t.then_count() >> dp.m.then_laplace(2.0),
        ):
            with pytest.raises(ValueError, match="and the context's is"):
                paid(query)
    assert counts(served, population) == (0, 0, 0, 0)


def test_an_exception_while_drawing_is_charged(served: Running) -> None:
    """Once OpenDP has begun, noise may have been drawn: the grant is committed."""
    sampler = Sampler()
    sampler.error = ZeroDivisionError("half-way")
    with (
        asking(served, context()) as (paid, population),
        pytest.raises(Exception, match="half-way"),
    ):
        paid(sampler.measurement)
    assert sampler.drawn == 1
    assert counts(served, population) == (1, 1, 0, 0)
    with (
        served.client(served.population(neighbouring="add_or_remove_one")) as ledger,
        pytest.raises(Exception, match="half-way"),
    ):
        invoke(sampler.measurement, [1], 1, ledger, "visits", purpose="test")
    assert counts(served, ledger.population) == (1, 1, 0, 0)


def test_without_an_answer_nothing_is_drawn(served: Running) -> None:
    """A service that cannot be reached stops a release as a refusal does."""
    sampler, spent = Sampler(), context()
    away = served.client("nowhere", attempts=1)
    away.url = "http://127.0.0.1:9"
    away._options["base_url"] = away.url
    with away, pytest.raises(Unreachable):
        paying(spent, away, "visits")(sampler.measurement)
    assert (sampler.drawn, spent.current_privacy_loss()) == (0, 0.0)


@pytest.mark.parametrize("how", [{"split_evenly_over": 2}, {}], ids=["parts", "filter"])
def test_a_compositor_within_pays_when_it_is_opened(served: Running, how: dict[str, Any]) -> None:
    """It costs all that it allows at once; its own queries ask nothing, and are allowed under
    ``strict``.
    """
    with asking(served, context(split_evenly_over=2, epsilon=1.0)) as (paid, population), strict():
        inner = paid.query().compositor(**how).release()
        for _ in range(2):
            assert isinstance(count(inner, **({} if how else {"epsilon": 0.25})).release(), int)
        with pytest.raises(ValueError, match="its parent has paid"):
            paying(inner, served.client(population), "visits")
    assert asked(served, population) == [[{"kind": "declared", "epsilon": "0.5"} | ADDED]]
    assert counts(served, population) == (1, 1, 0, 0)


def test_a_compositor_that_has_paid_takes_no_wrong_map(served: Running) -> None:
    """Its own filter would count too little for such a query; the others go on."""
    rows = dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0), nan=False), size=10)
    space = rows, dp.symmetric_distance()
    several = dp.c.make_adaptive_composition(*space, dp.max_divergence(), d_in=2, d_mids=[0.5])
    variance = space >> dp.t.then_variance() >> dp.m.then_laplace(scale=1.0)
    mean = space >> dp.t.then_mean() >> dp.m.then_laplace(scale=1.0)
    population = served.population(neighbouring="add_or_remove_one")
    with served.client(population) as ledger:
        answers = invoke(several, [0.5] * 10, 2, ledger, "visits", purpose="test")
        with pytest.raises(WrongMap, match="2923"):
            answers(variance)
        assert isinstance(answers(mean), float)


def test_a_context_pays_once(served: Running) -> None:
    """Hooking it twice is an error, and so is hooking another thing."""
    with asking(served, context()) as (paid, population):
        ledger = served.client(population)
        with pytest.raises(ValueError, match="pays already"):
            paying(paid, ledger, "visits")
        with pytest.raises(TypeError, match="not a Context"):
            paying(Sampler().measurement, ledger, "visits")


def test_the_fields_of_the_grant_are_passed_on(served: Running) -> None:
    """Subjects and the time to live are those of every request; the delta is that of the noise."""
    zcdp = dp.Context.compositor(
        data=[1, 2, 3],
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=0.5),
        split_evenly_over=1,
    )
    policy = "policy: p\nrules:\n  - {id: lifetime, limit: {epsilon: 9, delta: 1e-3}}\n"
    population = served.population(policy, "add_or_remove_one")
    with served.client(population) as ledger:
        fields: Any = {"subjects": {"country": ["KR"]}, "ttl_seconds": 60}
        paying(zcdp, ledger, "visits", delta=1e-6, **fields).query().count().gaussian().release()
    [reserved] = events(served, population, "grant.reserved")
    assert reserved["command"]["subjects"] == {"country": ["KR"]}
    assert reserved["command"]["ttl_seconds"] == 60
    [[stated]] = asked(served, population)
    assert (stated["kind"], stated["delta"]) == ("discrete_gaussian", "0.000001")


@pytest.mark.parametrize("field", [{"tracked": True}, {"idempotency_key": "one"}], ids=str)
def test_a_field_by_which_a_release_would_be_free_is_refused(
    served: Running, field: dict[str, Any]
) -> None:
    """Nobody says of a release what was used of its grant, and two releases are two grants."""
    with served.client(served.population()) as ledger:
        with pytest.raises(TypeError, match=next(iter(field))):
            paying(context(), ledger, "visits", purpose="test", **field)
        sampler = Sampler()
        with pytest.raises(TypeError, match=next(iter(field))):
            invoke(sampler.measurement, [1], 1, ledger, "visits", purpose="test", **field)
    assert not sampler.drawn


def test_a_context_by_epsilon_and_delta(served: Running) -> None:
    """Gaussian noise in it claims the epsilon and the delta that OpenDP spends."""
    both = dp.Context.compositor(
        data=[1, 2, 3],
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=0.5, delta=1e-7),
        split_evenly_over=1,
    )
    policy = "policy: p\nrules:\n  - {id: lifetime, limit: {epsilon: 1, delta: 1e-6}}\n"
    population = served.population(policy, "add_or_remove_one")
    with served.client(population) as ledger:
        paying(both, ledger, "visits").query().count().gaussian().release()
    [[stated]] = asked(served, population)
    [committed] = events(served, population, "grant.committed")
    epsilon, delta = both.current_privacy_loss()[0]
    assert stated["kind"] == "discrete_gaussian"
    assert float(stated["claimed"]["epsilon"]) == pytest.approx(epsilon, rel=1e-9)
    assert int(committed["charge"]["delta"]) == round(delta * 10**15)


def test_a_bare_measurement_is_not_seen_unless_strict(served: Running) -> None:
    """As the first line says. In strict mode it raises before it draws, in a context that does not
    pay too; what was patched is as before afterwards.
    """
    sampler, bare = Sampler(), context()
    assert sampler.measurement([1, 2]) == 2
    with strict():
        for draw in (
            lambda: sampler.measurement([1]),
            lambda: sampler.measurement.invoke([1]),
            lambda: bare(sampler.measurement),
            lambda: bare.queryable.invoke(sampler.measurement),
            lambda: context(split_evenly_over=2).query().count().laplace().release(),
        ):
            with pytest.raises(Unpaid, match="without a grant"):
                draw()
        assert sampler.drawn == 1
        with served.client(served.population(neighbouring="add_or_remove_one")) as ledger:
            assert invoke(sampler.measurement, [1], 1, ledger, "visits", purpose="test") == 1
            with pytest.raises(Unpaid):
                sampler.measurement([1])
    assert sampler.measurement([1, 2, 3]) == 3
    assert sampler.drawn == 3


def test_invoke_asks_before_it_draws(served: Running) -> None:
    """A measurement outside of a context pays by itself, at the distance that it is given."""
    sampler = Sampler()
    with served.client(served.population(neighbouring="add_or_remove_one")) as ledger:
        with pytest.raises(Refused):
            invoke(sampler.measurement, [1, 2], 3, ledger, "visits", purpose="test")
        assert sampler.drawn == 0
        assert invoke(sampler.measurement, [1, 2], 2, ledger, "visits", purpose="test") == 2
    assert asked(served, ledger.population) == [[{"kind": "declared", "epsilon": "1"} | ADDED]]
    assert counts(served, ledger.population) == (1, 1, 0, 1)


def test_a_relation_of_the_users_own(served: Running) -> None:
    """Two rows may stand for one that is replaced, in a population that counts so."""
    replaced = dp.Context.compositor(
        data=[1, 2, 3],
        privacy_unit=dp.unit_of(contributions=2),
        privacy_loss=dp.loss_of(epsilon=0.5),
        split_evenly_over=1,
    )
    population = served.population(neighbouring="replace_one")
    with served.client(population) as ledger:
        about: Any = {"neighbouring": "replace_one", "purpose": "test"}
        paying(replaced, ledger, "visits", **about).query().count().laplace().release()
    [committed] = events(served, population, "grant.committed")
    assert committed["charge"]["epsilon"] == "500000000"
