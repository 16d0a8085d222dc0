"""Whole ledgers against a player who sees every answer before each next move (``player``).

A promise of (epsilon, delta) keeps the best strategy of all within delta. Beside the promises stand
some that are known to be wrong, made of ledgers as they are: the same player breaks them.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from math import comb, exp, floor, log
from typing import Any, NamedTuple

import pytest
from effort import HEAVY
from player import (
    GRANTED,
    NOTHING,
    STEP,
    Act,
    Game,
    Table,
    Tells,
    adopting,
    rare,
    report,
    response,
    running,
    within,
)
from scipy.stats import binom
from support import SECOND, declared, hospital

from accountant.budget.facts import grant_in
from accountant.budget.grants import Settled
from accountant.privacy.filters import FILTERS

HOUR = 3_600 * SECOND
DELTA = Fraction(1, 1000)
CATEGORIES = [round(30_000 * 0.88**n) for n in range(60)]
"""Of randomised responses, from those that tell something rarely to those that often do."""
MORE = int(HEAVY)
"""Moves more than usual: each makes a game some three times as long."""
OPENERS = [report(1, 6), report(2, 20)]
"""First runs that leave the player on paths of different likelihood."""


def limit(epsilon: str, more: str = "", orders: str = "10") -> str:
    """A limit whose whole delta is its gate's, on stated orders."""
    whole = f"{{epsilon: {epsilon}, delta: {float(DELTA)}, own_delta: 0}}"
    return f"  - {{id: a, limit: {whole}, orders: [{orders}]{more}}}\n"


def families(*losses: int, **more: Any) -> list[list[Act]]:
    """For each loss, answers that have it: the player takes the most likely one that just fits."""
    return [[report(steps, many, **more) for many in CATEGORIES] for steps in losses]


# -- orders, contexts, epochs --------------------------------------------------------------------


def test_two_orders_withstand_the_player() -> None:
    """Two orders that share the delta keep it; the player gets beyond a half of it."""
    game = Game(Fraction(1), OPENERS, families(20, 22, 23), most=3)
    found = game.reached(hospital(limit("1", orders="10, 40")))
    assert within(found, DELTA)
    assert found > DELTA / 2


def test_the_player_breaks_orders_that_do_not_share_the_delta() -> None:
    """A desk that grants what a limit on one order grants, or the same limit on another order."""
    game = Game(Fraction(1), OPENERS, families(20, 22, 23), most=2)
    low, high = (hospital(limit("1", orders=order)) for order in ("10", "40"))
    assert game.reached(low, high) > 1.1 * DELTA


def test_contexts_withstand_the_player() -> None:
    """What a limit promises with contexts is the largest amount, whoever asks for what."""
    contexts = (
        '{when: {purposes: [alarm]}, epsilon: 1.5, why: "x"}',
        '{when: {clients: [two]}, epsilon: 1.2, why: "y"}',
    )
    book = hospital(limit("1", f", relaxed: [{', '.join(contexts)}]"))
    found = [*families(25, by="two"), *families(30, 32, purpose="alarm")]
    game = Game(Fraction(3, 2), OPENERS, found, most=3)
    reached = game.reached(book)
    assert within(reached, DELTA)
    assert reached > DELTA / 2


@pytest.mark.parametrize("gate", sorted(FILTERS))
def test_contexts_under_any_gate_withstand_a_long_game(gate: str) -> None:
    """So they do with as many answers as fit, and deltas that a context has more of."""
    text = "  - {id: a, limit: {epsilon: 1, delta: 0.1, own_delta: 0.02}, gate: "
    context = '{when: {purposes: [alarm]}, epsilon: 1.5, delta: 0.12, why: "x"}'
    moves = [
        running(response(6), declared("0.3")),
        running(response(6), declared("0.3"), purpose="alarm"),
        running(Tells(((0.98, 0),)), declared("1e-9", "0.02"), purpose="alarm"),
    ]
    game = Game(Fraction(3, 2), moves)
    found = game.reached(hospital(f"{text}{gate}, relaxed: [{context}]}}\n"))
    assert within(found, "0.12")
    assert found > 0.039  # two deltas of a fiftieth


def test_a_context_breaks_the_usual_amount() -> None:
    """The usual amount is no promise once a context may go beyond it: so the largest is stated."""
    more = ', relaxed: [{when: {purposes: [alarm]}, epsilon: 1.5, why: "x"}]'
    game = Game(Fraction(1), [], families(20, 30, purpose="alarm"), most=2)
    assert game.reached(hospital(limit("1", more))) > 5 * DELTA


MOVED = {
    "raised and lowered": ("1.5", [limit("1.5"), limit("0.75")]),
    "other orders": ("1", [limit("1", orders="40"), limit("1", orders="20")]),
    "other gates": (
        "1",
        [limit("1").replace("orders: [10]", f"gate: {x}") for x in ("zcdp", "gdp")],
    ),
    "larger on other orders": ("1.5", [limit("1.5", orders="40"), limit("1.5", orders="8")]),
}
"""The largest epsilon of a limit, and what it may become, each once, in any order."""


@pytest.mark.parametrize(("epsilon", "policies"), MOVED.values(), ids=MOVED)
def test_limits_that_move_withstand_the_player(epsilon: str, policies: list[str]) -> None:
    """Raised, lowered, or moved to other orders or another gate after any answer, a limit keeps the
    largest amount that it ever had.
    """
    moves = [report(1, 6), *(adopting(policy, policy) for policy in policies)]
    game = Game(Fraction(epsilon), moves, families(22, 32), most=3 + MORE)
    reached = game.reached(hospital(limit("1")))
    assert within(reached, DELTA)
    assert reached > DELTA / 4


def test_the_player_breaks_a_limit_that_forgets() -> None:
    """A reset, which two people agree to, begins a promise of its own beside the one before."""
    reset = adopting(limit("1", ", carry: none"), "reset")
    game = Game(Fraction(1), [reset], families(22), most=3)
    assert game.reached(hospital(limit("1"))) > 1.9 * DELTA


# -- quotas ----------------------------------------------------------------------------------------


TOTAL = limit("1").replace("id: a", "id: total")
EACH = "  - {id: each, per: client, limit: {epsilon: 0.7, delta: 0.001}}\n"
SHARES = (
    "  - {id: why, per: purpose, purposes: [alarm], limit: {epsilon: 0.9, delta: 0.001}}\n"
    "  - {id: slowly, limit: {epsilon: 2, delta: 0.002}, unlock: {per_request: 1/3}}\n"
)


def test_quotas_under_a_total_withstand_the_player() -> None:
    """However clients and purposes are played against each other, the total holds."""
    one, two = {"by": "one", "purpose": "alarm"}, {"by": "two"}
    moves = [report(1, 6, **one), report(1, 6, **two), report(30, 2)]  # the last only unlocks
    game = Game(Fraction(1), moves, [*families(13, **one), *families(13, **two)], most=3 + MORE)
    assert within(game.reached(hospital(TOTAL + EACH + SHARES)), DELTA)


def test_the_player_breaks_quotas_without_a_total() -> None:
    """A quota divides: two clients together go beyond what each of them may use."""
    each = EACH.replace("0.7", "1")
    found = [*families(18, by="one"), *families(18, by="two")]
    game = Game(Fraction(1), [], found, most=2)
    assert game.reached(hospital(TOTAL.replace("epsilon: 1,", "epsilon: 9,") + each)) > 2 * DELTA


# -- windows ---------------------------------------------------------------------------------------


class Clocked:
    """Moves in time. What runs inside the span that was ``fixed`` in advance counts, given all that
    ran before it; the player may hold one grant for as long as it likes, and run it or return it.
    """

    def __init__(self, fixed: tuple[int, int], end: int) -> None:
        self.fixed, self.end = fixed, end

    def counted(self, table: Table, tells: Tells) -> Tells:
        """What a run tells inside of the span; nothing that counts outside."""
        return tells if self.fixed[0] <= table.book.now < self.fixed[1] else NOTHING

    def waits(self, table: Table) -> Tells | None:
        """Six hours pass."""
        if table.book.now + 6 * HOUR > self.end:
            return None
        table.book.now += 6 * HOUR
        return NOTHING

    def runs(self, steps: int, many: int) -> Act:
        """Asks, runs and commits at once."""
        asked, tells = rare(steps, many)

        def act(table: Table) -> Tells | None:
            event = table.book.grant(asked)
            if event.type != GRANTED:
                return None
            table.book.do("commit_grant", grant=grant_in(event))
            return self.counted(table, tells)

        return act

    def holds(self, steps: int, many: int) -> Act:
        """Asks, and runs nothing yet."""

        def act(table: Table) -> Tells | None:
            if table.mind:
                return None
            event = table.book.grant(rare(steps, many)[0], ttl_seconds=7 * 86_400)
            table.mind = grant_in(event), steps, many
            return NOTHING if event.type == GRANTED else None

        return act

    def runs_held(self, table: Table) -> Tells | None:
        """Runs what was granted before, and commits it."""
        if not table.mind:
            return None
        (grant, steps, many), table.mind = table.mind, ()
        table.book.do("commit_grant", grant=grant)
        return self.counted(table, rare(steps, many)[1])

    def returns(self, table: Table) -> Tells | None:
        """Returns what it held and never ran."""
        if not table.mind:
            return None
        (grant, *_), table.mind = table.mind, ()
        table.book.do("release_grant", grant=grant, reason="never run")
        return NOTHING

    def game(self, most: int) -> Game:
        """All of these moves."""
        few = CATEGORIES[::2]
        found = [[self.runs(22, many) for many in few], [self.holds(22, many) for many in few]]
        moves = [self.waits, self.runs(2, 20), self.runs_held, self.returns]
        return Game(Fraction(1), moves, found, most)


def spans(kind: str, fixed: tuple[int, int], end: int, most: int) -> float:
    """What is reached inside of a span, in hours from the ledger's first on, which is 14:13."""
    book = hospital(limit("1", f", {kind}"))
    clocked = Clocked(
        (book.now + fixed[0] * HOUR, book.now + fixed[1] * HOUR), book.now + end * HOUR
    )
    return clocked.game(most).reached(book)


@pytest.mark.parametrize(
    ("kind", "fixed", "end"),
    [
        ("window: 12h", (6, 18), 24),
        ("refresh: daily", (10, 34), 36),
        ("window: month", (0, 30), 30),
    ],
    ids=str,
)
def test_spans_withstand_the_player(kind: str, fixed: tuple[int, int], end: int) -> None:
    """Inside of a span that was fixed in advance, given what was before, no more than the limit
    runs: not by waiting, by holding grants over its ends, nor by returning them.
    """
    found = spans(kind, fixed, end, 4 + MORE)
    assert within(found, DELTA)
    assert found > DELTA / 4


def test_the_player_breaks_a_day_that_is_taken_for_any_24_hours() -> None:
    """A limit that refreshes at midnight bounds no other span: twice as much runs around it."""
    book = hospital(limit("1", ", refresh: daily"))
    clocked = Clocked((book.now + 6 * HOUR, book.now + 18 * HOUR), book.now + 12 * HOUR)
    game = clocked.game(4)
    game.moves = [clocked.waits]
    assert game.reached(book) > 1.9 * DELTA


# -- waiting ---------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A request that waits, as the player keeps it in mind."""

    sequence: int
    steps: int
    many: int


def queues(steps: int, many: int) -> Act:
    """Asks for what does not fit now, and waits for budget."""

    def act(table: Table) -> Tells | None:
        if sum(isinstance(one, Asked) for one in table.mind) == 2:
            return None
        event = table.book.grant(rare(steps, many)[0], wait=3_600)
        table.mind += (Asked(event.sequence, steps, many),)
        return NOTHING if event.type == "grant.waiting.v1" else None

    return act


def runs_admitted(table: Table) -> Tells | None:
    """Runs the first request that has waited and was admitted, and commits it."""
    for one in table.mind:
        if isinstance(one, Asked):
            found = table.book.state.grants.get(f"g{one.sequence}")
            if isinstance(found, Settled) and found.status == "admitted":
                table.book.do("commit_grant", grant=f"g{found.settled}")
                table.mind = tuple(other for other in table.mind if other != one)
                return rare(one.steps, one.many)[1]
    return None


@pytest.mark.parametrize("raised", [False, True])
def test_who_waits_and_runs_later_does_not_get_past_the_limit(raised: bool) -> None:
    """Requests that wait, and are admitted by what comes back or by a larger limit, run under the
    limit of then, whatever the player has seen meanwhile.
    """
    held = hospital(limit("1"))
    event = held.grant(rare(22, 800)[0])
    moves: list[Act] = [queues(22, 800), queues(30, 800), runs_admitted, report(1, 6)]
    if raised:
        moves.append(adopting(limit("1.5"), "raised"))

    def returns(table: Table) -> Tells | None:
        if "returned" in table.mind:
            return None
        table.mind += ("returned",)
        table.book.do("release_grant", grant=grant_in(event), reason="never run")
        return NOTHING

    game = Game(Fraction("1.5") if raised else Fraction(1), [*moves, returns], most=5 + MORE)
    found = game.reached(held)
    assert within(found, DELTA)
    assert raised or found > DELTA / 10


# -- own deltas ------------------------------------------------------------------------------------

ADDED = {"neighbouring": "add_or_remove_one"}
OWN = "  - {id: a, limit: {epsilon: 1, delta: 0.02, own_delta: 0.008}, gate: renyi}\n"
CUT = {"of": 20, "at_most": 5}


def flip(epsilon: float, **more: Any) -> dict[str, Any]:
    """Permute and flip, of which nothing but epsilon is known."""
    scale = (2 / Decimal(epsilon)).quantize(Decimal("1e-12"), ROUND_FLOOR)
    return {"kind": "permute_and_flip", "sensitivity": "1", "scale": str(scale)} | more


def between(up: int, down: int, *, backward: bool) -> list[tuple[float, int]]:
    """Two answers, whose losses are ``up`` steps and minus ``down`` steps."""
    step = float(STEP)
    chance = (1 - exp(-down * step)) / (exp(up * step) - exp(-down * step))
    if backward:
        return [(chance, -up), (1 - chance, down)]
    return [(chance * exp(up * step), up), ((1 - chance) * exp(-down * step), -down)]


def on_sample(up: int, down: int, *, backward: bool) -> tuple[dict[str, Any], str, Tells]:
    """Randomised response on a Poisson sample that is cut, its rate, and what it tells the player,
    whom the others show how large the sample is: where it is cut the unit displaces another.
    """
    step = float(STEP)
    odds = (exp(up * step) - 1) / (1 - exp(-down * step))
    rate = (exp(up * step) - 1) / (odds - 1)
    stated = str(Decimal(rate).quantize(Decimal("1e-12"), ROUND_CEILING))
    cut = float(binom.sf(CUT["at_most"] - 1, CUT["of"] - 1, rate)) * (1 - 1e-9)
    # Whole steps of no more than what the pair of two steps tells: an easier one than that.
    most = (
        floor(log(1 + rate * (odds**2 - 1)) / step),
        floor(-log(1 - rate + rate / odds**2) / step),
    )
    answers = [(p * (1 - cut), k) for p, k in between(up, down, backward=backward)]
    answers += [(p * cut, k) for p, k in between(*most, backward=backward)]
    return flip(log(odds) + 1e-12), stated, Tells(tuple(answers))


def own_deltas(cut: bool, *, backward: bool) -> float:
    """What is reached with samples, a plan, pure answers, and what tells all with a delta."""
    base, rate, tells = on_sample(8, 3, backward=backward)
    sampling = {"truncated": CUT | {"rate": rate}} if cut else {"poisson": rate}
    plan = {"kind": "plan", "epsilon": "0.588", "delta": "0.004"}
    plan["mechanisms"] = [flip(0.1, count=10)]
    moves = [
        running(tells, base | {"sampling": sampling}),
        running(response(2, count=10), plan),
        running(Tells(((0.996, 0),)), declared("1e-9", "0.004")),
        running(response(5), flip(0.25)),
    ]
    return Game(Fraction(1), moves).reached(hospital(OWN, **ADDED))


@pytest.mark.parametrize("backward", [False, True])
def test_samples_that_are_cut_and_plans_withstand_the_player(backward: bool) -> None:
    """Under one split of delta, in both directions of the neighbours."""
    found = own_deltas(True, backward=backward)
    assert within(found, "0.02")
    assert found > 0.008


def test_the_player_breaks_cut_samples_that_are_charged_as_if_they_were_not() -> None:
    """Where a sample is cut a unit displaces another: at the price of a Poisson sample that is
    overspent.
    """
    assert own_deltas(False, backward=False) > 0.025


def tail(of: int, rate: Fraction, at_most: int) -> Fraction:
    """The chance that the others alone fill a sample, exactly."""
    every = (comb(of - 1, k) * rate**k * (1 - rate) ** (of - 1 - k) for k in range(at_most, of))
    return sum(every, Fraction(0))


def test_rare_cuts_share_the_own_delta_with_all_else() -> None:
    """A cut so rare that it is booked as a delta: however samples, plans and stated deltas follow
    each other, what they may fail with together, worked out exactly, stays within the own delta
    and fills it.
    """
    own = Fraction(1, 10**9)
    text = "  - {id: a, limit: {epsilon: 9, delta: 1e-6, own_delta: 1e-9}}\n"
    book = hospital(text, **ADDED)
    each = tail(200, Fraction(1, 10), 57)
    assert Fraction(1, 10**15) < each < Fraction(1, 10**12)
    noise = {"kind": "gaussian", "sensitivity": "1", "scale": "400"}
    cut = {"truncated": {"rate": "0.1", "of": 200, "at_most": 57}}
    plan = {"kind": "plan", "epsilon": "0.026", "delta": "1e-10"}
    plan["mechanisms"] = [flip(0.001, count=30)]
    menu = [
        (noise | {"sampling": cut, "count": 700}, each * 700),
        (plan, Fraction(1, 10**10)),
        (declared("0.001", "3e-11"), Fraction(3, 10**11)),
        (noise | {"sampling": cut}, each),
    ]
    failing = Fraction(0)
    for mechanism, chance in menu:  # each once, and then as often as it fits
        assert book.grant(mechanism).type == GRANTED
        failing += chance
    for mechanism, chance in menu:
        while book.grant(mechanism).type == GRANTED:
            failing += chance
    assert failing <= own
    assert failing > own * Fraction(99, 100)
