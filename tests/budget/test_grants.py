"""The life of a grant: reserve, commit, release, expire; and the rules that judge a request."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import (
    NON_PRIVATE,
    SECOND,
    Book,
    declared,
    gaussian,
    hospital,
    laplace,
    make,
    snapshot,
    sparse_vector,
)

from accountant.budget.commands import Envelope, ExpireGrant
from accountant.budget.decide import SYSTEM, Repeated, decide
from accountant.budget.errors import Conflict, Forbidden, Invalid, NotFound, Problem
from accountant.budget.evaluate import how_many
from accountant.budget.facts import grant_in
from accountant.budget.request import prepare
from accountant.privacy.filters import FILTERS
from accountant.privacy.units import LARGEST, Currency
from accountant.reporting.statement import statement

NOTHING = (0, 0, 0, 0)
DIMENSIONS = {"age": ["17", "22", "27"], "sex": ["f", "m"]}
WIDE = "  - {id: a, limit: {epsilon: 1000, delta: 0.1}}\n"

amounts = st.integers(1, 4000).map(lambda n: str(Decimal(n) / 1000))
deltas = st.sampled_from(["0", "1e-9", "0.00015", "1e-17"])
mechanisms = st.builds(
    declared,
    amounts,
    deltas,
    st.integers(1, 5),
) | st.builds(laplace, amounts, st.integers(1, 5))
noisy = st.builds(laplace, amounts) | st.builds(gaussian, amounts, st.sampled_from([None, "1e-9"]))
groups = st.sampled_from(
    [
        None,
        {"age": ["17"]},
        {"sex": ["f"]},
        [{"age": ["22"]}, {"sex": ["m"]}],
        {"age": ["17", "27"]},
    ]
)
asks = st.lists(st.tuples(groups, st.lists(mechanisms, min_size=1, max_size=3)), max_size=5)


def code(book: Book, kind: str, by: str = "pipe", **fields: Any) -> str:
    """The code of the problem that asking leads to; the ledger stays as it was."""
    before = snapshot(book.state)
    with pytest.raises(Problem) as refusal:
        book.do(kind, by, **fields)
    assert snapshot(book.state) == before
    assert len(refusal.value.detail) > 15
    return refusal.value.code


def outcome(event: Any) -> tuple[str, list[str]]:
    """The decision's outcome and the rules that fired."""
    fired = [rule for rule, _ in event.body.get("fired", ())]
    if event.type == "grant.refused.v1":
        return "block", fired
    return "flag" if fired else "allow", fired


@given(asks.flatmap(lambda items: st.tuples(st.just(items), st.permutations(items))))
def test_the_order_of_independent_charges_never_matters(both: tuple[list[Any], ...]) -> None:
    """The same grants and invocations in any order leave the same accounts."""
    totals = []
    for items in both:
        book = hospital(WIDE, DIMENSIONS)
        for subjects, what in items:
            book.grant(*what, subjects=subjects)
            book.record(*what, subjects=subjects)
        totals.append((book.used(), book.reserved(), book.used("", "*")))
    assert totals[0] == totals[1]


@given(mechanisms, st.integers(2, 7))
def test_a_loop_of_n_costs_what_a_count_of_n_costs(mechanism: dict[str, Any], n: int) -> None:
    """N grants of one invocation, one grant of n mechanisms, and one of count n cost the same."""
    one = mechanism | {"count": 1}
    loop, together, counted = (hospital(WIDE) for _ in range(3))
    for _ in range(n):
        loop.grant(one)
    together.grant(*[one] * n)
    counted.grant(one | {"count": n})
    assert loop.used() == together.used() == counted.used()
    assert all(loop.used_in(c) != [0] for c in loop.account().axis if c != Currency.DELTA)


def test_ten_times_a_tenth_is_one() -> None:
    """Ten grants of 0.1 fill a limit of 1 exactly; the eleventh, however small, is refused."""
    book = hospital()
    for _ in range(10):
        assert outcome(book.grant(laplace("0.1")))[0] == "allow"
    assert outcome(book.grant(laplace("1e-9"))) == ("block", ["a"])
    assert book.used() == [(10**9, 0, 0, 0)]


@given(asks)
def test_a_retry_is_charged_once(items: list[Any]) -> None:
    """The same key and body lead to the first answer and change nothing."""
    book = hospital("  - {id: a, limit: {epsilon: 2, delta: 0.001}}\n", DIMENSIONS)
    for i, (subjects, what) in enumerate(items):
        first = book.grant(*what, subjects=subjects, key=f"k{i}")
        before = snapshot(book.state)
        again = book.ask(
            make("ask_grant", dataset="d", mechanisms=what, subjects=subjects), key=f"k{i}"
        )
        assert again == Repeated(first.sequence)
        assert snapshot(book.state) == before


def test_a_key_belongs_to_one_client_and_one_request() -> None:
    """The same key from another client is another request; with another body it is an error."""
    book = hospital()
    book.grant(laplace("0.1"), key="k")
    book.grant(laplace("0.2"), key="k", by="other")
    assert book.used() == [(300_000_000, 0, 0, 0)]
    for fields in (
        {"mechanisms": [laplace("0.2")]},
        {"mechanisms": [laplace("0.1")], "purpose": "x"},
        {"mechanisms": [laplace("0.1")], "ttl_seconds": 60},
    ):
        assert code(book, "ask_grant", key="k", dataset="d", **fields) == "idempotency-key-reused"
    fields = {"mechanisms": [laplace("0.1")], "dataset": "d"}
    assert code(book, "record_invocations", key="k", **fields) == "idempotency-key-reused"


def test_spellings_of_one_amount_are_one_request() -> None:
    """A retry that spells 0.1 as 1e-1 or 0.10, or writes out a default, is still the same."""
    book = hospital()
    first = book.grant(laplace("0.1"), key="k")
    for spelled in ("1e-1", "0.10", "+0.1"):
        again = make("ask_grant", dataset="d", mechanisms=[laplace(spelled)], ttl_seconds=3600)
        assert book.ask(again, key="k") == Repeated(first.sequence)


@given(groups, st.lists(mechanisms, min_size=1, max_size=3), asks)
def test_release_gives_back_exactly(where: Any, what: list[Any], others: list[Any]) -> None:
    """After a release every account is as if the grant had never been."""
    with_it, without = hospital(WIDE, DIMENSIONS), hospital(WIDE, DIMENSIONS)
    grant = with_it.grant(*what, subjects=where)
    for subjects, other in others:
        with_it.grant(*other, subjects=subjects)
        without.grant(*other, subjects=subjects)
    with_it.do("release_grant", grant=grant_in(grant), reason="never run")
    for rule, dataset in (("a", "d"), ("", "d"), ("", "*")):
        assert with_it.used(rule, dataset) == without.used(rule, dataset)
        assert with_it.reserved(rule, dataset) == without.reserved(rule, dataset)


@given(groups, st.lists(mechanisms, min_size=1, max_size=3), st.data())
def test_a_part_commit_charges_the_part(where: Any, what: list[Any], data: st.DataObject) -> None:
    """A commit of a listed part charges what asking for that part alone would have charged."""
    part = [
        m | {"count": data.draw(st.integers(1, m["count"]))}
        for m in data.draw(st.lists(st.sampled_from(what), min_size=1, unique_by=id))
    ]
    book, alone = hospital(WIDE, DIMENSIONS), hospital(WIDE, DIMENSIONS)
    grant = book.grant(*what, subjects=where)
    book.do("commit_grant", grant=grant_in(grant), mechanisms=part)
    alone.record(*part, subjects=where)
    assert book.used() == alone.used()
    assert not any(any(cell) for cell in book.reserved())


NOT_A_PART: list[tuple[str, list[dict[str, Any]]]] = [
    ("another parameter", [laplace("0.2", 1)]),
    ("another kind that costs less", [declared("0.1")]),
    ("more of it", [laplace("0.3", 3)]),
    ("more of it, listed apart", [laplace("0.3", 2), laplace("0.3", 1)]),
    ("another relation", [laplace("0.15", 1, neighbouring="add_or_remove_one")]),
    ("one more beside it", [laplace("0.3", 2), laplace("1e-9")]),
    ("something without bound", [NON_PRIVATE]),
]


@pytest.mark.parametrize("listed", [r[1] for r in NOT_A_PART], ids=[r[0] for r in NOT_A_PART])
def test_a_commit_is_never_more_than_the_reservation(listed: list[dict[str, Any]]) -> None:
    """Only what was asked for and judged may be committed, at most as often as it was reserved."""
    book = hospital(WIDE)
    grant = grant_in(book.grant(laplace("0.3", 2)))
    problem = code(book, "commit_grant", grant=grant, mechanisms=listed)
    assert problem == "commit-exceeds-reservation"
    assert book.reserved() == book.used()


def test_expiry_charges_in_full() -> None:
    """At its time a grant is charged whole, and nothing is reserved any more."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.4"), ttl_seconds=60))
    book.now += 60 * SECOND - 1
    with pytest.raises(Conflict):
        book.do("expire_grant", SYSTEM, grant=grant)
    book.now += 1
    assert book.do("expire_grant", SYSTEM, grant=grant).type == "grant.expired.v1"
    assert book.used() == [(400_000_000, 0, 0, 0)]
    assert book.reserved() == [NOTHING]
    with pytest.raises(Conflict):
        book.do("expire_grant", SYSTEM, grant=grant)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_late_commit_is_only_a_note(noticed: bool) -> None:
    """A commit after the expiry changes no charge, whether or not the expiry was written down."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.4", 2), ttl_seconds=60))
    book.now += 60 * SECOND
    if noticed:
        book.do("expire_grant", SYSTEM, grant=grant)
    events = book.ask(make("commit_grant", grant=grant, mechanisms=[laplace("0.4")]), key="late")
    assert [event.type for event in events][-1] == "grant.noted.v1"
    assert len(events) == (1 if noticed else 2)
    assert book.used() == [(800_000_000, 0, 0, 0)]
    assert book.reserved() == [NOTHING]
    again = book.ask(make("commit_grant", grant=grant, mechanisms=[laplace("0.4")]), key="late")
    assert again == Repeated(events[-1].sequence)
    assert book.replayed().findings == []


def test_a_late_release_gives_nothing_back() -> None:
    """After its time a grant cannot be released any more, noticed or not."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.4"), ttl_seconds=60))
    book.now += 60 * SECOND
    assert code(book, "release_grant", grant=grant, reason="x") == "grant-expired"
    book.do("expire_grant", SYSTEM, grant=grant)
    assert code(book, "release_grant", grant=grant, reason="x") == "grant-expired"
    assert book.used() == [(400_000_000, 0, 0, 0)]


@pytest.mark.parametrize("first", ["commit_grant", "release_grant"])
@pytest.mark.parametrize("then", ["commit_grant", "release_grant", "expire_grant"])
def test_a_grant_is_settled_once(first: str, then: str) -> None:
    """What was committed or released stays so; a second settlement is refused."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.4")))
    fields = {"commit_grant": {}, "release_grant": {"reason": "x"}, "expire_grant": {}}
    book.do(first, grant=grant, **fields[first])
    book.now += 7200 * SECOND
    assert code(book, then, grant=grant, **fields[then]) in ("grant-settled", "not-due")


def test_only_the_owner_settles() -> None:
    """Another client's grant cannot be committed, released or closed."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.1")))
    session = grant_in(book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector()))
    assert code(book, "commit_grant", "mallory", grant=grant) == "not-your-grant"
    assert code(book, "release_grant", "mallory", grant=grant, reason="x") == "not-your-grant"
    assert code(book, "close_sparse_vector", "mallory", grant=session) == "not-your-grant"
    with pytest.raises(NotFound):
        book.do("commit_grant", grant="g99")


def test_time_never_runs_backwards() -> None:
    """A clock that jumps back stamps events with the last time, and expiries still hold."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.1"), ttl_seconds=60))
    book.now += 60 * SECOND
    book.grant(laplace("0.1"))
    book.now -= 3600 * SECOND
    event = book.grant(laplace("0.1"))
    assert event.time == book.state.time
    assert code(book, "release_grant", grant=grant, reason="x") == "grant-expired"


def test_disjoint_groups_cost_their_maximum() -> None:
    """Parallel composition: each cell pays its own, and the dataset's total is the largest."""
    book = hospital(dimensions={"age": ["17", "22", "27"]})
    for age, epsilon in (("17", "0.9"), ("22", "1"), ("27", "0.2")):
        assert outcome(book.grant(laplace(epsilon), subjects={"age": [age]}))[0] == "allow"
    assert outcome(book.grant(laplace("0.1"), subjects={"age": ["27"]}))[0] == "allow"
    assert outcome(book.grant(laplace("0.1"), subjects={"age": ["17"]}))[0] == "allow"
    assert outcome(book.grant(laplace("0.1")))[0] == "block"  # 22 is full, so everyone is
    assert [cell[0] for cell in book.used()] == [10**9, 10**9, 3 * 10**8]


def test_one_full_cell_refuses_the_whole_selection() -> None:
    """A selection is admitted only if each of its cells has room, and then charges all or none."""
    book = hospital(dimensions=DIMENSIONS)
    book.grant(laplace("1"), subjects={"age": ["22"], "sex": ["m"]})
    before = book.used()
    assert outcome(book.grant(laplace("0.1"), subjects={"age": ["22"]}))[0] == "block"
    assert book.used() == before
    assert outcome(book.grant(laplace("0.1"), subjects={"age": ["22"], "sex": ["f"]}))[0] == "allow"


def test_a_person_pays_in_every_dataset() -> None:
    """A rule across datasets sums over them, cell by cell."""
    book = hospital(
        "  - {id: a, limit: {epsilon: 1}}\n"
        "  - {id: person, across: datasets, limit: {epsilon: 1.5}}\n",
        DIMENSIONS,
    )
    book.dataset("e")
    women = {"sex": ["f"]}
    assert outcome(book.grant(laplace("1"), subjects=women))[0] == "allow"
    assert outcome(book.grant(laplace("0.6"), dataset="e", subjects=women)) == ("block", ["person"])
    assert outcome(book.grant(laplace("0.6"), dataset="e", subjects={"sex": ["m"]}))[0] == "allow"
    assert outcome(book.grant(laplace("0.5"), dataset="e", subjects=women))[0] == "allow"
    assert max(cell[0] for cell in book.used("person", "*")) == 1_500_000_000


def test_a_client_limit_is_a_limit_under_the_datas_own() -> None:
    """Each client has its own sub-limit; together they stay under the data's limit."""
    book = hospital(
        "  - {id: a, limit: {epsilon: 1}}\n  - {id: each, per: client, limit: {epsilon: 0.6}}\n"
    )
    assert outcome(book.grant(laplace("0.6"), by="one"))[0] == "allow"
    assert outcome(book.grant(laplace("0.1"), by="one")) == ("block", ["each"])
    assert outcome(book.grant(laplace("0.6"), by="two")) == ("block", ["a"])
    assert outcome(book.grant(laplace("0.4"), by="two"))[0] == "allow"


@pytest.mark.parametrize(
    "rules",
    [
        "  - {id: each, per: client, limit: {epsilon: 1}}\n",
        "  - {id: a, limit: {epsilon: 1}, action: flag}\n",
        "  - {id: a, limit: {epsilon: 1}, datasets: other-*}\n",
        "  - {id: reasons, require: [purpose]}\n",
    ],
    ids=["per client only", "flag only", "another dataset", "no limit at all"],
)
def test_without_a_blocking_limit_nothing_is_granted(rules: str) -> None:
    """What no limit on the data itself covers is refused, not free."""
    assert outcome(hospital(rules).grant(laplace("0.1"), purpose="x"))[1] == ["built-in:no-limit"]


def test_without_a_policy_nothing_is_granted() -> None:
    """Before any policy is adopted there is no budget; what ran is recorded all the same."""
    book = Book()
    book.register()
    book.dataset("d")
    assert outcome(book.grant(laplace("0.1"))) == ("block", ["built-in:no-policy"])
    event = book.record(laplace("0.1"))
    assert outcome(event) == ("flag", ["built-in:no-policy"])
    assert "overrun" not in event.body  # there is no limit that it could be over
    assert book.used("")[0][0] == 10**8


def test_only_a_passed_limit_is_an_overrun() -> None:
    """An invocation without a required purpose is flagged, but it is over no budget."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n  - {id: r, require: [purpose]}\n")
    event = book.record(laplace("0.1"))
    assert outcome(event) == ("flag", ["r"])
    assert "overrun" not in event.body
    assert book.record(laplace("1")).body["overrun"] is True


@pytest.mark.parametrize("gate", FILTERS)
@given(
    at=st.sampled_from(["80%", "33.3%", "0.001%", "99.999999%", "50%"]),
    steps=st.lists(noisy, min_size=1, max_size=12),
)
def test_thresholds_fire_exactly_when_the_shown_number_passes(
    gate: str, at: str, steps: list[dict[str, Any]]
) -> None:
    """A threshold fires iff the epsilon shown as spent is above its share of the limit's."""
    book = hospital(
        f"  - {{id: a, limit: {{epsilon: 20, delta: 0.5, own_delta: 0.1}}, gate: {gate}}}\n"
        f"  - {{id: nearly, of: a, at: {at}}}\n"
    )
    for each in steps:
        event = book.grant(each)
        [rule] = [r for r in book.decision(event)["rules"] if r["rule"] == "nearly"]
        shown = Decimal(rule["spent_after"].replace("infinite", "Infinity"))
        passes = shown > 20 * Decimal(at[:-1]) / 100
        assert rule["fired"] == passes


@pytest.mark.parametrize("gate", FILTERS)
@given(
    at=st.integers(1, 99),
    charges=st.lists(
        st.sampled_from([laplace("0.3"), laplace("0.02", 25), gaussian("0.2"), gaussian("0.6")]),
        min_size=1,
        max_size=8,
    ),
)
def test_a_share_is_of_what_the_limit_shows_as_spent(
    gate: str, at: int, charges: list[dict[str, Any]]
) -> None:
    """A threshold fires if and only if accounts and reports then show more than its share."""
    book = hospital(
        f"  - {{id: a, gate: {gate}, limit: {{epsilon: 4, delta: 1e-6}}}}\n"
        f"  - {{id: nearly, of: a, at: {at}%}}\n"
    )
    for each in charges:
        event = book.record(each)
        [line] = statement(book.state)
        spent = Decimal(line.total.spent.replace("infinite", "Infinity"))
        assert ("nearly" in dict(event.body.get("fired", []))) == (spent > Decimal(4 * at) / 100)


def test_a_threshold_watches_own_deltas_too() -> None:
    """A threshold fires at its share of the own delta as well, and its text shows both sums."""
    book = hospital(
        "  - {id: a, limit: {epsilon: 10, delta: 1e-6}}\n  - {id: nearly, of: a, at: 80%}\n"
    )
    assert "nearly" not in outcome(book.grant(declared("0.1", "8e-8")))[1]
    event = book.grant(declared("0.1", "1e-15"))
    assert "nearly" in outcome(event)[1]
    [rule] = [r for r in book.decision(event)["rules"] if r["rule"] == "nearly"]
    assert "own delta" in rule["text"]


@pytest.mark.parametrize("gate", FILTERS)
def test_an_infinite_charge_closes_the_rule(gate: str) -> None:
    """After something without bound ran, the cells it touched stay closed; others do not."""
    rule = f"  - {{id: a, limit: {{epsilon: 1, delta: 1e-6}}, gate: {gate}}}\n"
    book = hospital(rule, {"sex": ["f", "m"]})
    assert outcome(book.grant(NON_PRIVATE, subjects={"sex": ["f"]})) == ("block", ["a"])
    event = book.record(NON_PRIVATE, subjects={"sex": ["f"]})
    assert event.body["overrun"] is True
    for epsilon in ("1e-9", "0.5"):
        assert outcome(book.grant(laplace(epsilon), subjects={"sex": ["f"]})) == ("block", ["a"])
        assert outcome(book.grant(laplace(epsilon)))[0] == "block"
    assert outcome(book.grant(laplace("1"), subjects={"sex": ["m"]}))[0] == "allow"


@pytest.mark.parametrize("gate", FILTERS)
def test_noise_without_a_delta_needs_a_gate_that_measures_it(gate: str) -> None:
    """Gaussian noise with no delta named has no finite epsilon: gates that count in epsilons refuse
    it and say what is missing, those that count rho, Renyi divergence or mu admit it.
    """
    book = hospital(f"  - {{id: a, limit: {{epsilon: 1, delta: 1e-6}}, gate: {gate}}}\n")
    event = book.grant(gaussian("0.1"))
    if gate in ("basic", "advanced"):
        assert outcome(event) == ("block", ["a"])
        [rule] = book.decision(event)["rules"]
        assert "add a delta" in rule["text"]
        assert rule["spent_after"] == "infinite"
    else:
        assert outcome(event)[0] == "allow"
        assert book.used_in(Currency.EPSILON) == [None]
        [rule] = book.decision(book.grant(laplace("0.01")))["rules"]
        assert not rule["fired"]
        assert Decimal(rule["spent_after"]) < 1
    assert outcome(book.grant(gaussian("0.1", "1e-9")))[0] == "allow"


def test_a_charge_too_large_for_the_square_closes_only_the_second_gate() -> None:
    """Epsilon 100 has a square past 2**62 units: it counts as infinite there, and basic goes on."""
    book = hospital("  - {id: a, limit: {epsilon: 1000, delta: 1e-6}, gate: advanced}\n")
    grant = book.grant(laplace("100"))
    assert outcome(grant)[0] == "allow"
    assert book.used_in(Currency.EPSILON) == [100 * 10**9]
    assert book.used_in(Currency.EPSILON_SQUARED) == [None]
    book.do("release_grant", grant=grant_in(grant), reason="never run")
    assert book.used() == [(0,) * 12]


def test_part_commits_of_infinite_squares_never_wrap() -> None:
    """A finite part of an infinite reservation is booked like any charge: it saturates."""
    book = hospital("  - {id: a, limit: {epsilon: 10000, delta: 1e-6}, gate: advanced}\n")
    for _ in range(6):
        grant = grant_in(book.grant(laplace("60", 2)))
        book.do("commit_grant", grant=grant, mechanisms=[laplace("60")])
        [cell] = book.used()
        assert all(0 <= units <= LARGEST for units in cell)
    assert book.used_in(Currency.EPSILON) == [360 * 10**9]
    assert book.used_in(Currency.EPSILON_SQUARED) == [None]
    assert outcome(book.grant(laplace("1", 9_999)))[0] == "block"
    assert book.replayed().findings == []


def test_committing_all_as_a_list_is_committing_all() -> None:
    """A list of everything that was reserved costs what the reservation did, saturated or not."""
    book = hospital("  - {id: a, limit: {epsilon: 300, delta: 1e-6}}\n")
    everything = [laplace("60"), laplace("60"), laplace("60")]
    grant = grant_in(book.grant(*everything))
    before = book.used()
    book.do("commit_grant", grant=grant, mechanisms=everything)
    assert book.used() == before


@pytest.mark.parametrize("gate", FILTERS)
@given(st.lists(noisy, min_size=1, max_size=30))
def test_never_over_any_limit_through_grants(gate: str, asked: list[dict[str, Any]]) -> None:
    """Whatever is asked, admitted grants stay within basic or within the gate's own currency."""
    book = hospital(f"  - {{id: a, limit: {{epsilon: 3, delta: 0.01}}, gate: {gate}}}\n")
    capacity = book.state.adopted.epochs["a"].capacity  # type: ignore[union-attr]
    for each in asked:
        book.grant(each)
        [epsilon], [delta] = book.used_in(Currency.EPSILON), book.used_in(Currency.DELTA)
        along = [book.used_in(currency)[0] for currency in capacity.currencies]
        sides = [(epsilon, capacity.epsilon), *zip(along, capacity.along, strict=True)]
        assert any(used is not None and used <= most for used, most in sides)
        assert delta is not None
        assert delta <= capacity.own_delta


@pytest.mark.parametrize("gate", FILTERS)
@given(amounts, deltas, st.lists(amounts, max_size=4), st.sampled_from(["7.5", "30"]))
def test_a_preview_tells_how_many_fit(
    gate: str, each: str, delta: str, before: list[str], beside: str
) -> None:
    """As many grants are admitted as the preview said, and not one more."""
    book = hospital(
        f"  - {{id: a, limit: {{epsilon: 9, delta: 0.02}}, gate: {gate}}}\n"
        f"  - {{id: b, limit: {{epsilon: {beside}}}}}\n"
    )
    for epsilon in before:
        book.grant(laplace(epsilon))
    asked = make("ask_grant", dataset="d", mechanisms=[declared(each, delta)])
    fits = how_many(book.state, prepare(book.state, "pipe", asked, book.now))
    assert fits is not None
    for _ in range(min(fits, 8)):
        assert book.ask(asked)[0].type == "grant.reserved.v1"
    if fits <= 8:
        assert book.ask(asked)[0].type == "grant.refused.v1"


def test_a_preview_of_a_very_large_limit() -> None:
    """A capacity beyond 64 bits is no obstacle to counting what fits."""
    book = hospital("  - {id: a, limit: {epsilon: 1000000, delta: 1e-6}}\n")
    asked = make("ask_grant", dataset="d", mechanisms=[laplace("1")])
    fits = how_many(book.state, prepare(book.state, "pipe", asked, book.now))
    assert fits is not None
    assert fits >= 1_000_000


def test_invocations_are_recorded_over_budget() -> None:
    """What already happened is always booked, flagged as an overrun, and then blocks."""
    book = hospital()
    event = book.record(laplace("5"))
    assert (event.body["overrun"], book.decision(event)["outcome"]) == (True, "flag")
    assert book.used()[0][0] == 5 * 10**9
    assert outcome(book.grant(laplace("1e-9")))[0] == "block"
    assert book.record(laplace("1")).body["overrun"] is True


def test_fifty_rules_still_leave_room_for_a_decision() -> None:
    """The most rules that a policy may have never make an invocation too large to record."""
    names = [f"a-rule-with-a-rather-long-name-so-that-it-takes-some-room-{i}" for i in range(50)]
    value = "v" * 190
    book = hospital(
        "".join(f"  - {{id: {name}, limit: {{epsilon: 1, delta: 1e-6}}}}\n" for name in names),
        {f"dimension-{i}": [value, "other"] for i in range(8)},
    )
    many = [laplace(str(Decimal(n) / 1000)) for n in range(1, 101)]
    event = book.record(*many, subjects={"dimension-0": [value]}, purpose="p" * 2000)
    assert event.body["overrun"] is True


PRIVATE: dict[str, Any] = {"membership": "private", "dimensions": {"sex": ["f", "m"]}}


def test_private_membership_lets_only_add_or_remove_charge_a_part() -> None:
    """Under replace-one with private membership a part is charged only by mechanisms stated under
    add-or-remove, doubled; anything else has to charge everyone.
    """
    book = hospital("  - {id: a, limit: {epsilon: 3}}\n", **PRIVATE)
    women = {"sex": ["f"]}
    refused = book.grant(laplace("0.5"), subjects=women)
    assert "built-in:private-membership" in outcome(refused)[1]
    assert outcome(refused)[0] == "block"
    assert outcome(book.grant(laplace("0.5")))[0] == "allow"
    doubled = laplace("0.5", neighbouring="add_or_remove_one")
    grant = book.grant(doubled, subjects=women)
    assert outcome(grant)[0] == "allow"
    assert [cell[0] for cell in book.used()] == [1_500_000_000, 500_000_000]
    listed = code(book, "commit_grant", grant=grant_in(grant), mechanisms=[laplace("0.5")])
    assert listed == "commit-exceeds-reservation"
    mixed = book.grant(doubled, laplace("0.1"), subjects=women)
    assert outcome(mixed)[0] == "block"


def test_a_misplaced_invocation_costs_everyone_without_bound() -> None:
    """If a mechanism that may not charge a part did run on one, nobody's loss has a bound."""
    book = hospital(**PRIVATE)
    event = book.record(laplace("0.1"), subjects={"sex": ["f"]})
    assert event.body["overrun"] is True
    assert book.used_in(Currency.EPSILON) == [None, None]
    assert book.replayed().findings == []


@pytest.mark.parametrize(
    ("neighbouring", "membership"),
    [("add_or_remove_one", "private"), ("add_or_remove_one", "public"), ("replace_one", "public")],
)
def test_elsewhere_a_part_may_be_charged(neighbouring: str, membership: str) -> None:
    """Public membership, or add-or-remove, needs no such precaution."""
    book = hospital(
        dimensions={"sex": ["f", "m"]}, neighbouring=neighbouring, membership=membership
    )
    assert outcome(book.grant(laplace("0.5"), subjects={"sex": ["f"]}))[0] == "allow"


RULES: list[tuple[str, str, dict[str, Any], str]] = [
    ("mechanisms", "{id: r, mechanisms: [declared]}", {"mechanisms": [declared("0.1")]}, "block"),
    ("mechanisms", "{id: r, mechanisms: [declared]}", {}, "allow"),
    ("mechanisms flag", "{id: r, mechanisms: [laplace], action: flag}", {}, "flag"),
    ("mechanisms elsewhere", "{id: r, mechanisms: [laplace], datasets: e*}", {}, "allow"),
    ("require", "{id: r, require: [purpose, justification]}", {"purpose": "x"}, "block"),
    ("require", "{id: r, require: [purpose]}", {"purpose": "x"}, "allow"),
    ("purposes", "{id: r, purposes: [care]}", {"purpose": "ads"}, "block"),
    ("purposes none", "{id: r, purposes: [care]}", {}, "block"),
    ("purposes", "{id: r, purposes: [care]}", {"purpose": "care"}, "allow"),
]


@pytest.mark.parametrize(("rule", "fields", "expected"), [r[1:] for r in RULES])
def test_rules_on_terms(rule: str, fields: dict[str, Any], expected: str) -> None:
    """Rules on mechanisms, purposes and required fields fire on what they name, nothing else."""
    book = hospital(f"  - {{id: a, limit: {{epsilon: 1}}}}\n  - {rule}\n")
    asked = {"dataset": "d", "mechanisms": [laplace("0.1")]} | fields
    decision = book.decision(book.do("ask_grant", **asked))
    fired = [r["rule"] for r in decision["rules"] if r["fired"] and r["rule"] == "r"]
    assert fired == ([] if expected == "allow" else ["r"])
    if expected != "allow":
        assert decision["outcome"] == expected


def test_understated_claims_are_refused_and_booked_whole_if_they_ran() -> None:
    """A claim below the derivation is refused; recorded after the fact, the larger is booked."""
    book = hospital()
    low = laplace("0.5", claimed={"epsilon": "0.1"})
    assert outcome(book.grant(low)) == ("block", ["built-in:claim-understated"])
    book.record(low)
    assert book.used()[0][0] == 500_000_000


def test_unknown_names_are_refused() -> None:
    """An unregistered dataset or population leaves no trace."""
    book = hospital()
    assert code(book, "ask_grant", dataset="x", mechanisms=[laplace("1")]) == "unknown-dataset"
    empty = Book("nowhere")
    with pytest.raises(NotFound):
        empty.grant(laplace("1"))
    assert empty.state.sequence == 0


def test_spending_needs_an_idempotency_key() -> None:
    """What can spend is refused without a key, since a retry would spend twice."""
    book = hospital()
    grant = grant_in(book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector()))
    for command in (
        make("ask_grant", dataset="d", mechanisms=[laplace("1")]),
        make("record_invocations", dataset="d", mechanisms=[laplace("1")]),
        make("open_sparse_vector", dataset="d", mechanism=sparse_vector()),
        make("count_answers", grant=grant, positives=1, negatives=0),
    ):
        with pytest.raises(Invalid) as refusal:
            decide(book.state, Envelope("pipe", command), book.now)
        assert refusal.value.code == "idempotency-key-required"


def test_expiry_answers_only_the_due() -> None:
    """Nobody can expire a grant before its time, and an unknown one not at all."""
    book = hospital()
    with pytest.raises(NotFound):
        book.ask(ExpireGrant(grant="g7"), SYSTEM)


def test_policies_need_a_second_name_to_loosen() -> None:
    """The administrator alone cannot loosen; the same name twice is not two names."""
    book = hospital()
    for name in ("admin", "Admin", " admin "):
        with pytest.raises(Forbidden):
            book.policy("  - {id: a, limit: {epsilon: 2}}\n", confirmed_by=name)
    book.policy("  - {id: a, limit: {epsilon: 2}}\n", confirmed_by="officer")


@pytest.mark.parametrize("purpose", [None, " ", "\u200b", "\t\u00a0\u2060"])
def test_a_reason_that_shows_nothing_is_no_reason(purpose: str | None) -> None:
    """Spaces and invisible characters are no purpose."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n  - {id: r, require: [purpose]}\n")
    more = {} if purpose is None else {"purpose": purpose}
    assert book.grant(laplace("0.1"), **more).type == "grant.refused.v1"
    assert book.grant(laplace("0.1"), purpose="a").type == "grant.reserved.v1"


def test_the_same_data_have_one_budget() -> None:
    """Data that are registered cannot be registered under a second id."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n")
    with pytest.raises(Conflict, match="second budget"):
        book.do("register_dataset", "admin", id="other", namespace="n", name="d")
    book.do("register_dataset", "admin", id="other", namespace="n", name="e")


def test_a_decision_quotes_the_cell_that_has_spent_most() -> None:
    """The largest sum of epsilons is not always the most spent: the gate may count it for less."""
    book = hospital("  - {id: a, limit: {epsilon: 3, delta: 1e-6}}\n", {"g": ["a", "b"]})
    book.record(laplace("0.01", 200), subjects={"g": ["a"]})
    book.record(laplace("1.9"), subjects={"g": ["b"]})
    [rule] = book.decision(book.grant(laplace("0.1")))["rules"]
    assert (rule["group"], rule["spent_before"], rule["spent_after"]) == ({"g": "b"}, "1.9", "2")
