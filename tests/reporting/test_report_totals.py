"""The report's numbers against sums made from the events' bytes alone, without the fold."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from report_desk import DAY, Desk, data_of, limit_of
from support import NON_PRIVATE, declared, gaussian, laplace, sparse_vector

from accountant.budget.facts import grant_in
from accountant.budget.outcome import REGISTRATIONS
from accountant.budget.reading import TYPES
from accountant.reporting.burndown import MOST_POINTS
from accountant.reporting.history import BOOKING, JUDGED, RECOVERED, REVALUED, SETTLING
from accountant.reporting.model import build_report
from accountant.reporting.page import to_html
from accountant.reporting.schema import Report
from accountant.reporting.tallies import MOST_NAMES
from accountant.reporting.texts import SEALED, Texts
from accountant.store.ledgers import Stored, Text

DIMENSIONS = {"country": ["AT", "BE", "KR"], "joined": ["2024", "2025"]}
CELLS = list(itertools.product(*DIMENSIONS.values()))


def _random_ledger(desk: Desk, seed: int) -> None:
    """Grants, part commits, releases, expiries and invocations on two datasets."""
    rnd = random.Random(seed)  # noqa: S311 (a reproducible ledger, no secret)
    desk.hospital("  - {id: a, limit: {epsilon: 50}}\n", DIMENSIONS)
    desk.dataset("e")
    for _ in range(60):
        desk.forward(rnd.uniform(1, 5_000))
        groups: list[Any] = [None, {"country": ["KR"]}, {"country": ["AT", "KR"]}]
        groups += [{"joined": ["2025"]}, [{"country": ["BE"]}, {"joined": ["2024"]}]]
        by, fields = (
            rnd.choice(["x", "y"]),
            {
                "dataset": rnd.choice(["d", "e"]),
                "subjects": rnd.choice(groups),
                "purpose": rnd.choice([None, "ops", "research"]),
            },
        )
        first, second = laplace(rnd.choice(["0.1", "0.25"]), rnd.randint(1, 3)), declared("0.125")
        if rnd.random() < 0.3:
            desk.do("record_invocations", by, mechanisms=[first, second], **fields)
            continue
        ttl = rnd.choice([60, 10**6])
        asked = {"mechanisms": [first, second], "ttl_seconds": ttl} | fields
        grant = grant_in(desk.do("ask_grant", by, **asked))
        if ttl == 60:
            desk.forward(61)
            desk.service.expire_due()
            continue
        settle = rnd.choice(["all", "part", "release", "leave"])
        if settle == "release":
            desk.do("release_grant", by, grant=grant, reason="cancelled")
        elif settle != "leave":
            part = {"mechanisms": [second]} if settle == "part" else {}
            desk.do("commit_grant", by, grant=grant, **part)


def _in(cell: tuple[str, ...], subjects: Any) -> bool:
    if not subjects:
        return True
    terms = subjects if isinstance(subjects, list) else [subjects]
    place = dict(zip(DIMENSIONS, cell, strict=True))
    return any(all(place[name] in values for name, values in term.items()) for term in terms)


def _parts(event: dict[str, Any]) -> list[tuple[str, int]]:
    """Kind and nano-epsilons of each mechanism; these ledgers always ask for two at once."""
    kinds = [mechanism["kind"] for mechanism in event["command"]["mechanisms"]]
    return [(k, int(c["epsilon"])) for k, c in zip(kinds, event["charges"], strict=True)]


class Recount:
    """Nano-epsilons per dataset and cell, and per name, from the stored bytes."""

    def __init__(self, stored: list[Stored], texts: list[Text]) -> None:
        self.purposes = {text.sequence: text.text for text in texts if text.field == "purpose"}
        self.spent: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.held: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.names: Counter[tuple[str, str, str]] = Counter()
        self.back: Counter[str] = Counter()
        grants: dict[str, dict[str, Any]] = {}
        for row in stored:
            event = json.loads(row.body)
            name = event["command"].get("grant")
            if event["type"] == "grant.reserved.v1":
                grants[f"g{event['sequence']}"] = event
                self._book(event, self.held, int(event["total"]["epsilon"]))
            elif event["type"] == "invocation.recorded.v1":
                self._book(event, self.spent, int(event["total"]["epsilon"]))
                self._name(event, _parts(event))
            elif name in grants:
                asked = grants.pop(name)
                whole = int(asked["total"]["epsilon"])
                final = int(event["charge"]["epsilon"]) if "charge" in event else 0
                self._book(asked, self.held, -whole)
                self._book(asked, self.spent, final)
                self.back[asked["command"]["dataset"]] += whole - final
                part = event["type"] == "grant.committed.v1" and final < whole
                parts = [p for p in _parts(asked) if not part or p[0] == "declared"]
                self._name(asked, parts if final else [])
        for asked in grants.values():
            self._name(asked, _parts(asked))

    @staticmethod
    def _book(event: dict[str, Any], into: Counter[Any], units: int) -> None:
        for cell in CELLS:
            if _in(cell, event["command"].get("subjects")):
                into[event["command"]["dataset"], cell] += units

    def _name(self, event: dict[str, Any], parts: list[tuple[str, int]]) -> None:
        command = event["command"]
        for kind, units in parts:
            self.names[command["dataset"], "client", event["by"]] += units
            purpose = self.purposes.get(event["sequence"], "")
            self.names[command["dataset"], "purpose", purpose] += units
            self.names[command["dataset"], "kind", kind] += units

    def largest(self, dataset: str, dimension: str = "", value: str = "") -> tuple[int, int]:
        """(spent, spent and reserved) of the most charged cell of a group."""
        at = list(DIMENSIONS).index(dimension) if dimension else -1
        cells = [c for c in CELLS if not dimension or c[at] == value]
        spent = max(self.spent[dataset, c] for c in cells)
        return spent, max(self.spent[dataset, c] + self.held[dataset, c] for c in cells)


def _nano(amount: str) -> int:
    return int(Decimal(amount) * 10**9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_totals_equal_a_recount_from_the_bytes(desk: Desk, seed: int) -> None:
    """Spent, reserved, remaining and lifetime of every group are what the events add up to."""
    _random_ledger(desk, seed)
    report, recount = desk.report(), Recount(desk.stored(), desk.texts())
    for dataset in ("d", "e"):
        standing = limit_of(report, dataset=dataset)
        places = [("", standing.total)]
        places += [(s.dimension, place) for s in standing.splits for place in s.groups]
        assert len(places) == 1 + 3 + 2
        for dimension, place in places:
            spent, held = recount.largest(dataset, dimension, place.group)
            assert _nano(place.spent) == spent
            assert _nano(place.spent) + _nano(place.reserved) == held
            assert _nano(place.remaining) == 50 * 10**9 - held
            assert _nano(place.lifetime_epsilon) == _nano(place.sum_of_epsilons) == held


@pytest.mark.parametrize("seed", [1, 2])
def test_usage_is_net_of_what_was_given_back(desk: Desk, seed: int) -> None:
    """What is booked by client, kind and purpose is what was charged, not what was reserved."""
    _random_ledger(desk, seed)
    report, recount = desk.report(), Recount(desk.stored(), desk.texts())
    for dataset in ("d", "e"):
        facts = data_of(report, dataset)
        tables = {"client": facts.by_client, "kind": facts.by_kind, "purpose": facts.by_purpose}
        for heading, rows in tables.items():
            found = {row.name: _nano(row.epsilon) for row in rows}
            wanted = {
                n: v for (d, h, n), v in recount.names.items() if (d, h) == (dataset, heading)
            }
            assert found == {name: wanted.get(name, 0) for name in found}
            assert set(wanted) <= set(found)
        assert _nano(facts.booked.given_back) == recount.back[dataset]
        assert _nano(facts.booked.epsilon) == sum(_nano(row.epsilon) for row in facts.by_client)


def test_who_was_only_refused_is_listed_with_nothing(desk: Desk) -> None:
    """A client and a purpose without any charge have their rows, at zero and last."""
    desk.hospital()
    desk.do("ask_grant", "bold", dataset="d", mechanisms=[laplace("5")], purpose="all")
    desk.grant(laplace("0.1"), purpose="some")
    facts = data_of(desk.report())
    for rows, names in ((facts.by_client, ["pipe", "bold"]), (facts.by_purpose, ["some", "all"])):
        assert [row.name for row in rows] == names
        assert (rows[1].epsilon, rows[1].unbounded, rows[1].refused) == ("0", 0, 1)


def test_a_closed_session_keeps_only_what_its_positives_cost(desk: Desk) -> None:
    """A sparse vector session gives back epsilon for positives that it did not use."""
    desk.hospital()
    opened = desk.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    desk.do("count_answers", grant=grant_in(opened), positives=1, negatives=7)
    desk.do("close_sparse_vector", grant=grant_in(opened))
    facts = data_of(desk.report())
    assert [(row.name, row.epsilon) for row in facts.by_kind] == [("sparse_vector", "0.12")]
    assert (facts.booked.given_back, facts.counts["given_back"]) == ("0.08", 1)


def test_every_type_of_event_is_collected_or_books_nothing() -> None:
    """A new type of event has to be given its place in the report's history."""
    nothing = {
        "population.registered.v1",
        "population.extended.v1",
        *REGISTRATIONS,
        "policy.adopted.v1",
        "grant.noted.v1",
        "answer.republished.v1",
        "sparse_vector.answered.v1",
        "signing_key.adopted.v1",
        "engine.adopted.v1",
        "publication.stopped.v1",
        "publication.resumed.v1",
        "ledger.carried_over.v1",
        "text.erased.v1",
        "report.filed.v1",
        "ledger.verified.v1",
        "change.proposed.v1",
        "change.declined.v1",
        "clock.accepted.v1",
        "batch.opened.v1",
        "batch.part.v1",
        "batch.refused.v1",  # collected as the refusal of one item
        "grant.waiting.v1",
        "grant.cancelled.v1",
        "grant.declined.v1",
        "grant.admitted.v1",  # collected as the grant that it opens
        "grant.timed_out.v1",  # and as a refusal
    }
    assert set(TYPES) == nothing | JUDGED | set(SETTLING) | {RECOVERED, REVALUED}
    assert BOOKING < JUDGED


def _advanced_line() -> float:
    """Of 150 times 0.01 under epsilon 1 and delta' 9e-7 (Whitehouse et al. 2023)."""
    log = math.log(1 / 9e-7)
    root = math.sqrt(2 * log + 2) - math.sqrt(2 * log)
    order = math.sqrt(2 * log) / root
    return (1 + order) / 2 * 150 * 1e-4 + log / order


def _renyi_line() -> float:
    """The same by Mironov 2017, Prop. 6, and Canonne, Kamath, Steinke 2020, Prop. 12."""

    def at_none(a: int) -> float:  # the better of two orders has seven tenths of delta'
        return math.log(1 - 1 / a) - math.log(a * 9e-7 * 0.7) / (a - 1)

    a = max(range(2, 65), key=lambda order: (1 - at_none(order)) / order)
    near, far = a * math.exp((a - 1) * 0.01), (a - 1) * math.exp(-a * 0.01)
    return 150 * math.log((near + far) / (2 * a - 1)) / (a - 1) + at_none(a)


LINES = {"advanced": _advanced_line(), "renyi": _renyi_line()}


@pytest.mark.parametrize("gate", LINES)
@pytest.mark.parametrize("large", ["0.1", "0.9"])
def test_no_total_is_put_together_from_two_cells(desk: Desk, large: str, gate: str) -> None:
    """Many small charges in one cell and one large one in another are no overrun for anybody."""
    rule = f"  - {{id: a, limit: {{epsilon: 1, delta: 1e-6}}, gate: {gate}}}\n"
    desk.hospital(rule, {"c": ["x", "y"]})
    desk.record(laplace("0.01", 150), subjects={"c": ["x"]})
    desk.record(laplace(large), subjects={"c": ["y"]})
    total = limit_of(desk.report()).total
    assert float(total.spent) == pytest.approx(max(LINES[gate], float(large)), abs=2e-9)
    assert total.sum_of_epsilons == "1.5"
    assert total.status == ("near" if large == "0.9" else "within")


def test_what_has_no_sum_of_epsilons_is_measured_by_a_rule_that_counted_all(desk: Desk) -> None:
    """Gaussian noise without a delta: no finite sum, but the spent and the lifetime number are
    those of a gate that has counted everything, with the gate's delta.
    """
    desk.hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n")
    desk.record(gaussian("0.1"))
    report = desk.report()
    total = limit_of(report).total
    log = math.log(1 - 1 / 23) - math.log(23 * 9e-7 * 0.7) / 22
    assert float(total.spent) == pytest.approx(23 * 0.005 + log, abs=2e-9)
    assert (total.sum_of_epsilons, total.spent_delta) == ("infinite", "0.0000009")
    assert (total.lifetime_epsilon, total.lifetime_delta) == (total.spent, "0.0000009")
    assert (report.lifetimes[0].epsilon, total.status) == (total.spent, "within")


def test_the_gates_own_delta_stands_beside_a_number_below_the_sum(desk: Desk) -> None:
    """Where composition makes the number smaller than the plain sum, its delta is stated."""
    desk.hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n")
    desk.record(laplace("0.01", 10), declared("0.01", "1e-9"))
    assert limit_of(desk.report()).total.spent_delta == "0.000000001"
    desk.record(laplace("0.01", 140))
    assert limit_of(desk.report()).total.spent_delta == "0.000000901"


def test_after_an_overrun_only_the_sum_holds_and_the_report_says_so(desk: Desk) -> None:
    """An overrun voids the rule's promise for its epoch, first thing on the page."""
    desk.hospital("  - {id: a, limit: {epsilon: 1}}\n", {"c": ["x", "y"]})
    desk.record(laplace("0.7"))
    desk.record(laplace("0.5"), subjects={"c": ["y"]})
    report = desk.report()
    standing = limit_of(report)
    assert (standing.status, standing.total.remaining) == ("over", "0")
    assert [(p.group, p.status) for p in standing.splits[0].groups] == [
        ("y", "over"),
        ("x", "within"),
    ]
    assert data_of(report).counts["overrun"] == 1
    assert report.verdict.level == "bad"
    assert report.verdict.headline == "The dataset is over its limit."
    said = "epsilon 1.2 is spent of the limit of 1; the guarantee is now epsilon 1.2"
    assert said in report.verdict.points[0]


def test_a_limit_that_reservations_would_exceed_is_not_void_yet(desk: Desk) -> None:
    """Spent and reserved above the limit is told apart from spent above the limit."""
    desk.hospital()
    held = grant_in(desk.grant(laplace("0.6")))
    desk.record(laplace("0.7"))
    report = desk.report()
    assert limit_of(report).status == "over_if_reservations_run"
    assert report.verdict.headline == (
        "The dataset will exceed its limit if its open reservations are charged."
    )
    desk.do("release_grant", grant=held, reason="did not run")
    assert limit_of(desk.report()).status == "within"


def test_a_release_without_noise_has_no_bound(desk: Desk) -> None:
    """An infinite loss is counted beside the sums and named for what it is."""
    desk.hospital()
    desk.record(laplace("0.25"))
    desk.record(NON_PRIVATE)
    report = desk.report()
    assert limit_of(report).total.spent == limit_of(report).total.lifetime_epsilon == "infinite"
    assert "no bound" in limit_of(report).meaning.spent.lower()
    booked = data_of(report).booked
    assert (booked.epsilon, booked.unbounded) == ("0.25", 1)


def test_a_reset_lowers_no_lifetime_total(desk: Desk) -> None:
    """A new epoch that starts from zero leaves what was ever spent as it is."""
    desk.hospital()
    desk.record(laplace("0.75"))
    desk.policy("  - {id: a, limit: {epsilon: 2}, carry: none}\n", confirmed_by="officer")
    desk.record(laplace("0.5"))
    report = desk.report()
    assert (limit_of(report).epoch, limit_of(report).carried) == (2, False)
    assert limit_of(report).total.spent == "0.5"
    assert limit_of(report).total.lifetime_epsilon == report.lifetimes[0].epsilon == "1.25"
    [series] = report.series
    assert [(p.limit, p.spent) for p in series.points[-2:]] == [("2", "0"), ("2", "0.5")]
    [now, _] = report.policy.latest_changes if report.policy else ()
    assert (now.by, now.confirmed_by, now.opened_epochs) == ("admin", "officer", ("a",))


def test_what_stood_out_is_counted_by_sort(desk: Desk) -> None:
    """Blocks, flags, expiries and claims nobody can check are told apart."""
    desk.hospital(
        "  - {id: a, limit: {epsilon: 1}}\n  - {id: n, of: a, at: 50%}\n"
        "  - {id: m, mechanisms: [discrete_laplace]}\n"
    )
    desk.grant(declared("0.25"), ttl_seconds=60)
    desk.forward(DAY)
    desk.service.expire_due()
    desk.grant(laplace("0.5"))
    desk.grant(laplace("0.5"))
    desk.grant(laplace("0.1", claimed={"epsilon": "0.01"}))
    desk.record({"kind": "discrete_laplace", "sensitivity": "1", "scale": "8"})
    counts = data_of(desk.report()).counts
    assert counts == {
        "overrun": 0,
        "against_rule": 1,
        "blocked": 2,
        "flagged": 1,
        "unverifiable": 1,
        "understated": 1,
        "expired": 1,
        "given_back": 0,
        "revalued": 0,
        "attested_new": 0,
    }


def test_memory_is_bounded_and_nothing_is_lost(desk: Desk) -> None:
    """Beyond so many names one row adds up the rest; a long history has a short series."""
    desk.hospital("  - {id: a, limit: {epsilon: 1000}}\n")
    n = MOST_NAMES + 20
    desk.all(
        [
            (
                "record_invocations",
                "pipe",
                {"dataset": "d", "mechanisms": [laplace("0.5")], "purpose": f"purpose {i}"},
            )
            for i in range(n)
        ]
    )
    report = desk.report()
    rows = data_of(report).by_purpose
    assert (len(rows), rows[-1].other, rows[-1].epsilon) == (MOST_NAMES + 1, True, "10")
    assert sum(_nano(row.epsilon) for row in rows) == n * 5 * 10**8
    [series] = report.series
    assert MOST_POINTS / 2 <= len(series.points) <= MOST_POINTS + 1
    assert series.points[0].spent == "0"
    assert (series.points[-1].spent, series.points[-1].sequence) == (str(n // 2), n + 3)


def test_the_report_names_where_in_the_ledger_it_stands(desk: Desk) -> None:
    """Sequence, time and root tie the report to the ledger; every event is hashed again."""
    desk.hospital()
    stored = desk.stored()
    facts = desk.report().ledger
    assert (facts.events, facts.last_sequence) == (4, 3)
    assert (facts.root, facts.broken_at) == (desk.service.head("clinic").root.hex(), None)
    forged = [stored[0], stored[1]._replace(leaf=bytes(32)), *stored[2:]]
    report = build_report("clinic", forged)
    assert report.ledger.broken_at == 1
    assert report.verdict.level == "bad"
    assert report.verdict.headline.startswith("An event of the ledger was changed.")
    assert "Event 1" in report.verdict.points[0]


def test_the_same_events_give_the_same_report(desk: Desk) -> None:
    """A report depends on the events and their texts alone; without the texts only they differ."""
    _random_ledger(desk, 7)
    texts = desk.texts()

    def read(first: int, last: int) -> list[Text]:
        return [text for text in texts if first <= text.sequence <= last]

    first: Report = desk.report()
    assert build_report("clinic", iter(desk.stored()), Texts(read, page=7)) == first
    bare = build_report("clinic", iter(desk.stored()))
    assert (bare.limits, bare.lifetimes, bare.series) == (
        first.limits,
        first.lifetimes,
        first.series,
    )
    assert {row.name for row in data_of(bare).by_purpose} == {"", SEALED}
    assert {row.name for row in data_of(first).by_purpose} == {"", "ops", "research"}


def test_an_open_reservation_does_not_hide_the_gates_delta(desk: Desk) -> None:
    """What is spent has its own delta, whatever is reserved beside it."""
    desk.hospital("  - {id: a, limit: {epsilon: 3, delta: 1e-6}}\n")
    desk.record(laplace("0.01", 200))
    before = limit_of(desk.report()).total
    desk.grant(laplace("1"))
    limit = limit_of(desk.report())
    assert (limit.total.spent, limit.total.spent_delta) == (before.spent, before.spent_delta)
    assert limit.total.spent_delta == "0.0000009"
    assert "except with probability" in limit.meaning.spent


def test_a_reserved_delta_is_not_spent(desk: Desk) -> None:
    """A mechanism's own delta counts as spent when it is, not while it is only reserved."""
    desk.hospital("  - {id: a, limit: {epsilon: 3, delta: 1e-6}}\n")
    desk.grant(declared("0.5", "1e-9"))
    limit = limit_of(desk.report())
    assert (limit.total.spent, limit.total.spent_delta) == ("0", "0")
    assert limit.total.held_delta == "0.000000001"
    assert limit.meaning.spent.startswith("Nothing has been learned")
    assert limit.meaning.with_reservations


def test_the_most_charged_group_is_what_its_cells_share(desk: Desk) -> None:
    """Cells that stand alike are described by what they have in common, not by one of them."""
    dimensions = {"age": ["17", "22"], "sex": ["f", "m"], "work": ["a", "b", "c"]}
    desk.hospital("  - {id: a, limit: {epsilon: 3}}\n", dimensions)
    desk.record(laplace("0.5"), subjects={"sex": ["f"]})
    assert limit_of(desk.report()).worst_group == {"sex": "f"}
    desk.record(laplace("0.1"), subjects={"work": ["a", "c"]})
    assert limit_of(desk.report()).worst_group == {"sex": "f", "work": "a, c"}
    desk.record(laplace("0.5"), subjects={"sex": ["m"], "age": ["17"]})
    desk.record(laplace("0.1"), subjects=[{"sex": ["m"], "age": ["17"], "work": ["b"]}])
    group = limit_of(desk.report()).worst_group  # no product of values: one of the cells
    assert len(group) == 3


def test_attested_members_are_listed(desk: Desk) -> None:
    """Whoever lets groups start from nothing is named in the report."""
    joined = {"week": "the week a person joined never changes"}
    desk.hospital("  - {id: a, limit: {epsilon: 3}}\n", {"week": ["1"]}, fixed=joined)
    desk.population({"week": ["1", "2"]}, attested_new=True)
    report = desk.report()
    [seen] = [s for s in report.notable if s.sort == "attested_new"]
    assert (seen.total, seen.latest[0].client, seen.latest[0].subjects) == (1, "admin", "week: 2")
    assert "attested to be in no data before" in to_html(report)
    assert report.population is not None
    assert report.population.fixed == joined
    assert joined["week"] in to_html(report)
