"""The page stands alone, is safe from what clients write, and says first things first."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from report_desk import DAY, Desk
from support import NON_PRIVATE, laplace

from accountant.budget.facts import grant_in
from accountant.privacy.filters import FILTERS
from accountant.reporting.chart import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    amounts,
    chart,
    moments,
    numbers,
)
from accountant.reporting.model import build_report
from accountant.reporting.page import to_html
from accountant.reporting.schema import PointFacts, SeriesFacts

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e</title><svg onload=alert(1)>"


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes a tag."""
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        """Notes text."""
        self.text += data


@pytest.fixture
def hostile(desk: Desk) -> str:
    """The page of a ledger in which every free text is hostile."""
    values = [HOSTILE, "=1+1", *(f"v{i}" for i in range(60))]
    desk.population({"country": values}, privacy_unit=HOSTILE)
    desk.dataset("d", namespace=HOSTILE, name=HOSTILE, owner=HOSTILE, parents=[HOSTILE])
    rules = "  - {id: a, limit: {epsilon: 1}}\n  - {id: c, per: client, limit: {epsilon: 9}}\n"
    quoted = HOSTILE.replace('"', '\\"').replace("\u202e", "\\u202E")
    desk.policy(rules + f'  - {{id: p, purposes: ["{quoted}"], action: flag}}\n')
    fields = {"dataset": "d", "mechanisms": [laplace("0.25")], "subjects": {"country": [HOSTILE]}}
    first = desk.do("ask_grant", HOSTILE, purpose=HOSTILE, justification=HOSTILE, **fields)
    desk.do("release_grant", HOSTILE, grant=grant_in(first), reason=HOSTILE)
    desk.do("ask_grant", HOSTILE, purpose="x", **fields)
    desk.do("record_invocations", HOSTILE, **(fields | {"mechanisms": [laplace(3)]}))
    return to_html(desk.report())


def test_the_page_runs_nothing_and_loads_nothing(hostile: str) -> None:
    """No script, no handler, no address: the page is the same on a machine without a network."""
    page = Page(hostile)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "image",
    }
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert all(v.startswith("#") for n, v in attributes.items() if n in ("href", "src"))
    assert set(re.findall(r"url\((.)", hostile)) == {"#"}
    assert "http://" not in hostile.replace("http://www.w3.org", "")
    assert "https://" not in hostile
    assert "@import" not in hostile


def test_hostile_text_stays_text(hostile: str) -> None:
    """What clients write is shown, escaped, with direction marks made visible."""
    assert "<script" not in hostile
    assert "\u202e" not in hostile
    assert Page(hostile).text.count("<script>alert(1)</script>") > 10
    assert "{{7*7}}" in hostile


def test_ids_are_unique_and_links_lead_somewhere(hostile: str) -> None:
    """Every reference inside the page finds exactly one target."""
    page = Page(hostile)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r"url\(#([^)]+)\)", hostile))
    wanted |= {a["href"][1:] for tag, a in page.tags if tag == "a"}
    wanted |= {i for _, a in page.tags for i in a.get("aria-labelledby", "").split()}
    assert wanted <= set(ids)


def test_pictures_have_a_title_and_a_description(hostile: str) -> None:
    """Whoever cannot see the burn-down picture can have it read out."""
    assert re.search(r"<title id=.burndown-1-title.>Budget left over time", hostile)
    assert re.search(r"<desc id=.burndown-1-desc.>From event \d+ ", hostile)
    assert "epsilon left" in hostile


def test_pictures_can_be_moved_by_keys_where_a_window_is_narrow(hostile: str) -> None:
    """Each stands in a named box of its own, which a keyboard reaches."""
    tags = Page(hostile).tags
    after = [tags[place + 1] for place, (tag, _) in enumerate(tags) if tag == "figure"]
    assert after
    for tag, attributes in after:
        assert (tag, attributes["class"], attributes["tabindex"]) == ("div", "chart", "0")
        assert attributes["aria-label"].startswith("Budget left over time")


def test_groups_beyond_thirty_are_counted(hostile: str) -> None:
    """A long dimension shows its worst thirty values and says how many are left out."""
    assert "32 of 62 groups are not shown" in Page(hostile).text


COUNTED_BY = {
    "basic": "Sum of epsilons (basic composition)",
    "advanced": "The smaller of the sum of epsilons and fully adaptive advanced composition",
    "zcdp": "The smaller of the sum of epsilons and zero-concentrated privacy",
    "renyi": "The smallest of the sum of epsilons and Rényi privacy at each of a few fixed orders",
    "gdp": "The smallest of the sum of epsilons, Gaussian privacy, and the limit while it holds",
}


def test_the_verdict_comes_first(desk: Desk) -> None:
    """The first thing on the page is what somebody with ten seconds has to know."""
    desk.hospital()
    desk.dataset("e", "f")
    desk.record(laplace("1.5"), dataset="e")
    text = Page(to_html(desk.report())).text
    at = [text.index(part) for part in ("1 of 3 datasets is over its limit.", "How to read this")]
    assert at == sorted(at)
    assert "epsilon 1.5 is spent of the limit of 1; the guarantee is now epsilon 1.5" in text


def test_a_report_of_nothing_says_so(desk: Desk) -> None:
    """No event, no dataset and no policy each make a page, not an error."""
    assert "No population called x" in to_html(build_report("x", []))
    desk.population()
    assert "No dataset is registered yet" in to_html(desk.report())
    desk.dataset("d")
    desk.record(laplace("0.5"))
    page = to_html(desk.report())
    assert "no policy is adopted, so every request is refused" in page
    assert "No limit covers this dataset." in page


@pytest.mark.parametrize("gate", FILTERS)
def test_numbers_are_explained(desk: Desk, gate: str) -> None:
    """The page names unit, relation, formula, policy digest and root in words."""
    desk.hospital(
        f"  - {{id: a, limit: {{epsilon: 1, delta: 1e-6}}, gate: {gate}}}\n",
        neighbouring="add_or_remove_one",
    )
    desk.grant(laplace("0.25"))
    report = desk.report()
    text = Page(to_html(report)).text
    assert report.policy is not None
    for part in (
        "adding or removing all that belongs to one person",
        f"Counted by{COUNTED_BY[gate]}",
        "A belief held at 50 %",
        "rounded up",
        "path-wise sums",
        "1 reservation is open, for epsilon 0.25",
        "On each dataset, one person may lose at most epsilon 1",
        report.policy.digest,
        report.ledger.root,
    ):
        assert part in text


def _series(*rows: tuple[int, str, str, str]) -> SeriesFacts:
    points = [
        PointFacts(i, f"2026-0{1 + i}-01T00:00:00.000000Z", limit, spent, held, 1)
        for i, limit, spent, held in rows
    ]
    return SeriesFacts("a", "d", 1, points)


@pytest.mark.parametrize(
    "rows",
    [
        [(0, "1", "0", "0")],
        [(0, "1", "0", "0"), (1, "1", "0.5", "0.75"), (2, "1", "4000", "4000")],
        [(0, "1", "0", "0"), (1, "1", "infinite", "infinite"), (2, "3", "infinite", "infinite")],
        [(0, "0.000000001", "0", "0"), (1, "0.000000001", "0.000000001", "0.000000001")],
        [(0, "1000000", "0", "0"), (5, "1000000", "0.1", "0.1")],
    ],
)
def test_the_picture_stays_inside_its_frame(rows: list[tuple[int, str, str, str]]) -> None:
    """Whatever was spent, every line and tick lies within the plot."""
    drawn = chart(_series(*rows))
    for path in (drawn.left, drawn.left_with_reservations, drawn.limit, drawn.area):
        for x in re.findall(r"[MH]([\d.e+-]+)", path):
            assert LEFT <= float(x) <= WIDTH - RIGHT
        for y in re.findall(r"(?:V|M[\d.]+ )([\d.e+-]+)", path):
            assert TOP <= float(y) <= BOTTOM
    assert 2 <= len(drawn.y_ticks) <= 8
    assert all(LEFT <= tick.at <= WIDTH - RIGHT for tick in drawn.x_ticks)
    assert drawn.over == (rows[-1][2] in ("4000", "infinite"))


def test_ticks_are_round_and_few() -> None:
    """Axes carry a handful of round labels at every scale."""
    for power in range(-9, 7):
        assert 2 <= len(amounts(0, 3 * 10.0**power)) <= 8
    for span in (2, 9, 100, 12_345):
        assert 1 <= len(numbers(3, 3 + span)) <= 9
    for seconds in (10, 100, 5_000, DAY, 9 * DAY, 70 * DAY, 900 * DAY, 9_000 * DAY):
        assert 1 <= len(moments(1_790_000_000_000_000, (1_790_000_000 + seconds) * 10**6)) <= 9


def test_an_unbounded_loss_is_drawn_and_named(desk: Desk) -> None:
    """After a release without noise the page shows no number where there is none."""
    desk.hospital()
    desk.forward(DAY)
    desk.record(NON_PRIVATE)
    page = to_html(desk.report())
    assert "no bound" in page
    assert ">infinite<" not in page
