"""The command line, as people and scripts meet it, on a real database."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from here import accountant
from support import NON_PRIVATE, ask, gaussian, hospital, laplace, make, root_of

from accountant.budget.evaluate import how_many
from accountant.budget.request import prepare
from accountant.cli import custody
from accountant.privacy.filters import DEFAULT_FILTER, FILTERS
from accountant.store.tables import TERMS

PEOPLE = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
RULES = "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n"


class Line:
    """``accountant …`` on the test's database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def __call__(self, *words: str, code: int = 0, stdin: str = "") -> str:
        """Runs a command, checks its exit code, and returns what it printed on both outputs."""
        where = {"ACCOUNTANT_HOME": str(self.folder), "ACCOUNTANT_DATABASE_URL": self.url}
        done = accountant(*words, stdin=stdin, **where)
        assert done.code == code, done
        return done.out + done.err

    def json(self, *words: str, code: int = 0) -> Any:
        """What a command prints with --json."""
        return json.loads(self(*words, "--json", code=code))

    def file(self, name: str, *documents: Any) -> str:
        """A file of JSON lines."""
        path = self.folder / name
        path.write_text("".join(json.dumps(d) + "\n" for d in documents))
        return str(path)

    def lifetime(self) -> str:
        """The lifetime epsilon of dataset d."""
        rows = self.json("accounts", "-p", "fair")["lifetime"]
        return str(next(row["epsilon"] for row in rows if row["dataset"] == "d"))


@pytest.fixture
def line(world: Callable[..., Any], database: str, tmp_path: Path) -> Line:
    """A command line beside a population with the dataset d and a limit."""
    world().hospital(RULES, {"country": ["KR", "[red]x[/y]", "JP\x1b[2J"]})
    folder = tmp_path / "home"
    folder.mkdir()
    return Line(folder, database)


def ran(epsilon: str, at: str | None = "2026-03-02T10:00:00Z") -> dict[str, Any]:
    """One line of an import."""
    return ask(laplace(epsilon)) | ({"ran_at": at} if at else {})


def test_importing_again_records_only_what_is_new(line: Line) -> None:
    """A file counts once, equal lines in it both, and lines that were added at its end once."""
    rows = [ran("0.01"), ran("0.01"), ran("0.02")]
    path = line.file("past.jsonl", *rows)
    first = {"recorded": 3, "already_there": 0, "overruns": 0}
    assert line.json("import", path, "-p", "fair") == first
    assert line.json("import", path, "-p", "fair")["recorded"] == 0
    spaced = line.folder / "past.jsonl"
    spaced.write_text(spaced.read_text().replace(": ", " :  ") + "\n\n")
    assert line.json("import", path, "-p", "fair")["recorded"] == 0
    path = line.file("past.jsonl", *rows, ran("0.02"))
    assert line.json("import", path, "-p", "fair")["recorded"] == 1
    assert line.lifetime() == "0.06"


def test_equal_lines_of_two_days_both_count(line: Line) -> None:
    """Two files may hold the same line: both are charged, and what is undated needs a name."""
    for name in ("monday.jsonl", "tuesday.jsonl"):
        assert line.json("import", line.file(name, ran("0.1")), "-p", "fair")["recorded"] == 1
    undated = line.file("log.jsonl", ran("0.1", None))
    assert "--batch" in line("import", undated, "-p", "fair", code=2)
    for batch in ("week-1", "week-2"):
        done = line.json("import", undated, "-p", "fair", "--batch", batch)
        assert done["recorded"] == 1
    assert line.lifetime() == "0.4"


def test_one_bad_line_and_nothing_is_recorded(line: Line) -> None:
    """Every bad line is named with its reason, one that is only too large as well."""
    large = ask(*[laplace("0.001", justification=None) | {"sampler": {"library": "x" * 60,
        "version": "1" * 60}} for _ in range(200)])  # fmt: skip
    for mechanism in large["mechanisms"]:
        mechanism.pop("justification")
    rows = [ran("0.01"), ran("0.01") | {"when": 1}, large | {"ran_at": "2026-03-02T10:00:00Z"}]
    said = line("import", line.file("x.jsonl", *rows, "text"), "-p", "fair", code=2)
    assert "line 2: when: there is no such field" in said
    assert "line 4" in said
    assert "pydantic" not in said
    assert line.lifetime() == "0"


def test_a_misspelt_population_is_no_clean_audit(line: Line) -> None:
    """Replaying what does not exist is an error, never "all agree"."""
    for command in ("replay", "accounts", "report"):
        assert "nope" in line(command, "-p", "nope", code=2)


def test_replay_tells_what_is_wrong_once(line: Line) -> None:
    """A missing line is a few findings, not one for every line after it; exit code 1."""
    for i in range(5):
        line("import", line.file(f"{i}.jsonl", ran("0.01")), "-p", "fair")
    with closing(sqlite3.connect(line.url[10:])) as raw:
        rows = raw.execute("SELECT body FROM event WHERE ledger = 'fair' ORDER BY sequence")
        events = [row[0] for row in rows]
    path = line.folder / "events.jsonl"
    path.write_bytes(b"\n".join(events) + b"\n")
    assert "all agree" in line("replay", str(path))
    found = line.json("replay", str(path))
    assert (found["findings"], found["root"]) == ([], root_of(events).hex())
    assert "all agree" in line("replay", str(path), "--root", found["root"])
    line("replay", str(path), "--root", "00" * 32, code=1)
    path.write_bytes(b"\n".join(events[:3] + events[4:]) + b"\n")
    assert 1 <= len(line.json("replay", str(path), code=1)["findings"]) <= 4
    line("replay", str(path), "--root", found["root"], code=1)


def test_text_from_the_ledger_is_only_text(line: Line) -> None:
    """Group names are neither markup nor control sequences to the terminal."""
    said = line("accounts", "-p", "fair", "--by", "country")
    assert "[red]x[/y]" in said
    assert "\x1b" not in said


def test_a_forged_population_is_a_finding(line: Line) -> None:
    """A ledger that claims more cells than fit anywhere is refused with a reason."""
    values = [f"v{i}" for i in range(1500)]
    forged = {
        "ledger": "fair", "sequence": 0, "type": "population.registered.v1",
        "time": "2026-01-01T00:00:00.000000Z", "by": "admin",
        "command": {
            "type": "register_population", "privacy_unit": "person", "membership": "public",
            "neighbouring": "replace_one", "dimensions": {f"d{i}": values for i in range(4)},
        },
    }  # fmt: skip
    path = line.folder / "forged.jsonl"
    path.write_text(json.dumps(forged, sort_keys=True, separators=(",", ":")) + "\n")
    assert "cells" in line("replay", str(path), code=1)


def test_compose_needs_no_more_than_the_gate_does(line: Line) -> None:
    """A rule's gate admits what basic admits, so the smallest limit is never above the sum."""
    path = line.file("one.json", {"mechanisms": [laplace("1")]})
    gate = line.json("compose", path, "--delta", "1e-6")["gate"]
    assert {name: row["epsilon"] for name, row in gate.items()} == dict.fromkeys(FILTERS, "1")
    path = line.file("many.json", {"mechanisms": [laplace("0.01", 1000)]})
    gate = line.json("compose", path, "--delta", "1e-6")["gate"]
    assert set(gate) == set(FILTERS)
    assert gate.pop("basic")["epsilon"] == "10"
    assert all(float(row["epsilon"]) < 2.5 for row in gate.values())


def test_compose_tells_what_planning_would_save(line: Line) -> None:
    """Beside the gates stands the tight total of the same list, with its precondition."""
    noise = {"kind": "gaussian", "sensitivity": "1", "scale": "10", "count": 100}
    path = line.file("g.json", {"mechanisms": [noise | {"delta": "1e-9"}]})
    report = line.json("compose", path, "--delta", "1e-6")["report"]
    assert "fixed before any answer" in report["precondition"]
    assert float(report["pld"]["lower"]) <= 4.886554117462212 <= float(report["pld"]["epsilon"])
    assert float(report["optimal"]["epsilon"]) > 4.886554117462212  # of (epsilon, delta) pairs
    path = line.file("g.json", {"mechanisms": [noise]})
    report = line.json("compose", path, "--delta", "1e-6")["report"]
    assert float(report["pld"]["lower"]) <= 4.886554117462212 <= float(report["pld"]["epsilon"])
    assert report["optimal"] is report["closed_form"] is None
    path = line.file("l.json", {"mechanisms": [laplace("0.01", 4000), laplace("0.01", 6000)]})
    document = line.json("compose", path, "--delta", "1e-6")
    assert document["report"]["optimal"]["epsilon"] == "4.885515602"
    assert float(document["report"]["pld"]["epsilon"]) < 4.885515602
    del document["gate"]["basic"]
    assert all(float(row["epsilon"]) > 4.885515602 for row in document["gate"].values())
    assert float(document["gate"]["advanced"]["epsilon"]) > 5.7
    path = line.file("n.json", {"mechanisms": [{"kind": "non_private"}]})
    assert line.json("compose", path, "--delta", "1e-6")["report"]["pld"] is None


def test_a_plan_that_is_composed_for_a_limit_fits_it(line: Line) -> None:
    """The plan that is printed for a limit's delta is admitted by such a limit, though its steps
    are not; and the other way round where its own delta is the whole.
    """
    steps = {"kind": "gaussian", "sensitivity": "1", "scale": "1.1", "count": 600}
    path = line.file("p.json", [steps | {"sampling": {"poisson": "0.01"}}])
    limit = "  - {id: a, limit: {epsilon: 1.7, delta: 1e-6}}\n"
    for more, answer in (([], "grant.reserved.v1"), (["--own-delta", "1e-6"], "grant.refused.v1")):
        [plan] = line.json("compose", path, "--delta", "1e-6", "--plan", *more)["mechanisms"]
        book = hospital(limit, neighbouring="add_or_remove_one")
        assert book.grant(*plan["mechanisms"]).type == "grant.refused.v1"
        assert book.grant(plan).type == answer


def test_a_limit_that_needs_no_plan_is_named(line: Line) -> None:
    """Of tuned runs no pair is known: a gate admits them at less than a plan can state, and the
    smallest limit that is named does admit them.
    """
    run = {"kind": "gaussian", "sensitivity": "1", "scale": "15.82"}
    tuned = {"kind": "repeat_and_select", "mechanism": run, "mean": "10", "count": 66}
    told = line("compose", line.file("p.json", [tuned]), "--delta", "1e-9", "--plan")
    gate = line.json("compose", line.file("p.json", [tuned]), "--delta", "1e-9")["gate"]["renyi"]
    least, order = gate["at_one_order"]["epsilon"], gate["at_one_order"]["order"]
    assert f"epsilon {least} and delta 0.000000001 under gate renyi at order {order} admits" in told
    assert float(least) < float(gate["epsilon"])
    for epsilon, answer in (
        (least, "grant.reserved.v1"),
        (str(Decimal(least) - Decimal("2e-9")), "grant.refused.v1"),
    ):
        amounts = f"limit: {{epsilon: {epsilon}, delta: 1e-9, own_delta: 0}}"
        limit = f"  - {{id: a, {amounts}, orders: [{order}]}}\n"
        book = hospital(limit, neighbouring="add_or_remove_one")
        assert book.grant(tuned).type == answer
    steps = {"kind": "gaussian", "sensitivity": "1", "scale": "1.1", "count": 600}
    path = line.file("q.json", [steps | {"sampling": {"poisson": "0.01"}}])
    assert "A limit of" not in line("compose", path, "--delta", "1e-6", "--plan")


def test_no_total_is_above_the_gate_beside_it(line: Line) -> None:
    """Not by how it is rounded either: the least over orders is at most what a limit with the best
    order holds.
    """
    step = {"kind": "gaussian", "sensitivity": "1", "scale": "1.1", "count": 1_000}
    path = line.file("m.json", [step | {"sampling": {"poisson": "0.01"}}])
    found = line.json("compose", path, "--delta", "1e-6")
    least = Decimal(found["report"]["renyi_min"]["epsilon"])
    assert least <= Decimal(found["gate"]["renyi"]["at_one_order"]["epsilon"])
    assert Decimal(found["report"]["pld"]["epsilon"]) <= least


def test_a_list_or_a_tree_is_composed_as_it_stands(line: Line) -> None:
    """A bare list, one mechanism and a DpEvent are read like the mechanisms of a request."""
    one = laplace("0.1", 1)
    tree = {"class": "LaplaceDpEvent", "fields": {"noise_multiplier": 10}}
    found = {
        line.json("compose", line.file("one.json", document), "--delta", "0")["gate"]["basic"][
            "epsilon"
        ]
        for document in ({"mechanisms": [one]}, [one], one, tree, [tree])
    }
    assert found == {"0.1"}


def test_a_report_of_a_period_is_written(line: Line) -> None:
    """By its kind, as the file's name says; what is no period is told before anything is read."""
    line("import", line.file("x.jsonl", ran("0.25")), "-p", "fair")
    period = "--from", "2026-01-01"
    line("report", "-p", "fair", *period, "-o", str(line.folder / "r.pdf"))
    assert (line.folder / "r.pdf").read_bytes().startswith(b"%PDF-")
    asked = "report", "-p", "fair", "--kind", "statement", "--dataset", "d", *period
    [part] = json.loads(line(*asked, "--format", "json"))["parts"]
    assert (part["opening"]["spent"], part["closing"]["spent"]) == ("0", "0.25")
    january = "report", "-p", "fair", "--month", "2026-01", "-o", str(line.folder / "january.csv")
    assert "filed as event" in line(*january, "--file")
    assert "its period is over" in line("report", "-p", "fair", *period, "--file", code=2)
    assert "no month" in line("report", "-p", "fair", "--month", "2026-20", code=2)
    assert "pdf of a period" in line("report", "-p", "fair", "--format", "pdf", code=2)


def test_what_is_for_others_is_written(line: Line) -> None:
    """The entry of the registry as YAML, the checklist as a page."""
    assert "tier: 3" in line("registry", "-p", "fair", "--dataset", "d")
    assert "What is the unit of privacy?" in line("checklist", "-p", "fair")
    assert "nothing" in line("registry", "-p", "fair", "--dataset", "nothing", code=2)


def test_reports_go_where_they_are_sent(line: Line) -> None:
    """The format follows the file's name; what cannot be written leaves nothing behind."""
    line("report", "-p", "fair", "--out", str(line.folder / "r.csv"))
    assert (line.folder / "r.csv").read_text().startswith("population,")
    assert json.loads(line("report", "-p", "fair", "--format", "json"))["ledger_name"] == "fair"
    before = sorted(line.folder.iterdir())
    assert "is a folder" in line(
        "report", "-p", "fair", "--format", "csv", "--out", str(line.folder), code=2
    )
    assert "no folder" in line("report", "-p", "fair", "--out", "/nowhere/at/all.csv", code=2)
    line("report", "-p", "fair", "--out", str(line.folder / "r.pdf"), code=2)
    assert sorted(line.folder.iterdir()) == before
    assert not list(line.folder.parent.glob(".*.part"))


def test_migrate_creates_and_refuses(line: Line, tmp_path: Path) -> None:
    """A fresh database is made for its owner only; files of something else are left alone."""
    fresh = tmp_path / "new" / "a.db"
    assert "was created" in line("--database-url", f"sqlite:///{fresh}", "migrate")
    assert "up to date" in line("--database-url", f"sqlite:///{fresh}", "migrate")
    assert fresh.stat().st_mode & 0o777 == 0o600
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as raw:
        raw.execute("CREATE TABLE foo (x)")
    assert "something else" in line("--database-url", f"sqlite:///{foreign}", "migrate", code=2)
    text = tmp_path / "text.db"
    text.write_text("this is no database at all, only words\n" * 100)
    line("--database-url", f"sqlite:///{text}", "migrate", code=2)
    line("--database-url", "garbage", "migrate", code=2)
    line("--database-url", "garbage", "keys", "list", code=2)
    line("--database-url", "sqlite:////nowhere/at/all/x.db", "migrate", code=2)


def test_a_port_in_use_is_said_in_one_line(line: Line) -> None:
    """Serving where somebody listens already ends at once, with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "--port" in line("serve", "--port", port, code=2)


def test_keys_are_shown_once_alone_on_their_line(line: Line) -> None:
    """A created key is all of standard output; revoking it ends it; roles are checked."""
    key = line("keys", "create", "--role", "pipeline", "--name", "etl")
    assert key.startswith("acct_")
    assert key.count("\n") == 1
    [etl] = [one for one in line.json("keys", "list") if one["name"] == "etl"]
    assert (etl["role"], etl["new"], etl["last_used"]) == ("pipeline", True, None)
    assert (etl["populations"], etl["until"]) == (None, None)
    line("keys", "create", "--role", "pipeline", "--name", "etl", code=2)
    line("keys", "create", "--role", "king", "--name", "me", code=2)
    bounds = ("--days", "9", "-p", "nowhere")
    line("keys", "create", "--role", "pipeline", "--name", "short", *bounds)
    line("keys", "create", "--role", "pipeline", "--name", "none", "--days", "0", code=2)
    renewed = line("keys", "renew", "--name", "short", "--hours", "1")
    assert renewed.startswith("acct_")
    old, new = (one for one in line.json("keys", "list") if one["name"] == "short")
    assert (old["populations"], new["populations"]) == (["nowhere"], ["nowhere"])
    assert old["until"] < new["until"]
    assert (old["rotated"], new["rotated"]) == (new["made"], None)
    line("keys", "renew", "--name", "nobody", code=2)
    line("keys", "revoke", "--name", "etl")
    line("keys", "revoke", "--name", "etl", code=2)


def test_a_pipe_has_no_width(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is not printed on a terminal has one line for each row, however long."""
    monkeypatch.delenv("COLUMNS", raising=False)
    line("keys", "create", "--role", "pipeline", "--name", "n" * 60, "-p", "fair", "--days", "9")
    where = {"ACCOUNTANT_HOME": str(line.folder), "ACCOUNTANT_DATABASE_URL": line.url}
    [row] = [
        one
        for one in accountant("keys", "list", width=80, **where).out.splitlines()
        if "n" * 60 in one
    ]
    assert row.split()[3:6:2] == ["pipeline", "fair"]


def test_a_report_opens_texts_and_knows_what_was_published(line: Line) -> None:
    """On the database the report has purposes and the last checkpoint; erased ones are gone."""
    body = ran("0.1") | {"purpose": "about Mrs X"}
    line("import", line.file("past.jsonl", body), "-p", "fair")
    shown = json.loads(line("report", "-p", "fair", "--format", "json"))
    assert [row["name"] for row in shown["datasets"][0]["by_purpose"]] == ["about Mrs X"]
    assert shown["ledger"]["checkpoint"] is None
    line("export", "-p", "fair", str(line.folder / "bundle.tar"))  # which signs
    shown = json.loads(line("report", "-p", "fair", "--format", "json"))
    assert shown["ledger"]["checkpoint"]["size"] == 6
    assert shown["ledger"]["checkpoint"]["continued"] is True
    line("erase", "-p", "fair", "--event", "4", "--reason", "asked to forget")
    shown = line("report", "-p", "fair", "--format", "json")
    assert "(erased)" in shown
    assert "Mrs X" not in shown


def test_erasing_tells_when_somebody_still_reads_the_text(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader keeps the write-ahead log, and with it the text: who erases waits for them, and if
    they do not end is told so, by the exit code too.
    """
    words = ("erase", "-p", "fair", "--reason", "law", "--event")
    line(
        "import",
        line.file("past.jsonl", *(ran("0.1") | {"purpose": p} for p in "ab")),
        "-p",
        "fair",
    )
    file = Path(line.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM text").fetchone()
        monkeypatch.setattr(custody, "_PATIENCE", 0.1)
        shown = line(*words, "4", code=1)
        assert "erased: purpose of event 4" in shown
        assert "may still be found in its write-ahead log" in shown
    assert "may still" not in line(*words, "5")


def test_preview_tells_and_records_nothing(line: Line) -> None:
    """Exit code 1 says that a request would be blocked."""
    small, large = (line.file(f"{e}.json", ask(laplace(e))) for e in ("0.5", "5"))
    assert line.json("preview", small, "-p", "fair")["fits"] == 2
    assert "block" in line("preview", large, "-p", "fair", code=1)
    assert line.lifetime() == "0"
    assert "mechanisms" in line("preview", "-", "-p", "fair", code=2, stdin='{"dataset": "d"}')


def test_fit_answers_the_inverse_question(line: Line) -> None:
    """How often a list fits is what the gates admit one by one; the plan's count is the golden one;
    the noise factor is the smallest with which the list fits once.
    """
    path = line.file("one.json", {"mechanisms": [laplace("0.01")]})
    fits = line.json("fit", path, "--epsilon", "1", "--delta", "1e-6")["fits"]
    assert fits["basic"]["count"] == 100
    assert fits["pld"]["count"] == 564  # how_many_queries.json: non-adaptive PLD, Laplace
    admitted = fits[DEFAULT_FILTER]["count"]
    for count, code in ((admitted, 0), (admitted + 1, 1)):
        asked = line.file("ask.json", ask(laplace("0.01", count)))
        line("preview", asked, "-p", "fair", code=code)
    one = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")])
    for gate in FILTERS:
        book = hospital(f"  - {{id: a, limit: {{epsilon: 1, delta: 1e-6}}, gate: {gate}}}\n")
        assert fits[gate]["count"] == how_many(
            book.state, prepare(book.state, "pipe", one, book.now)
        )
    path = line.file("many.json", {"mechanisms": [laplace("0.01", 1000)]})
    fits = line.json("fit", path, "--epsilon", "1", "--delta", "1e-6")["fits"]
    assert fits["basic"] == {"count": 0, "noise": "10.00000"}
    for gate in FILTERS.keys() - {"basic"}:
        assert 1 < float(fits["pld"]["noise"]) < float(fits[gate]["noise"]) < 10
    responses = {"kind": "randomized_response", "truth_probability": "0.5"}
    path = line.file("rr.json", {"mechanisms": [responses]})
    words = ("fit", path, "--epsilon", "3", "--neighbouring", "replace_one")
    assert line.json(*words)["fits"] == {gate: {"count": 2, "noise": None} for gate in FILTERS}
    claimed = {"mechanisms": [laplace("0.01", claimed={"epsilon": "0.01"})]}
    assert "claim" in line("fit", line.file("c.json", claimed), "--epsilon", "1", code=2)
    line("fit", path, "--epsilon", "x", code=2)
    line("fit", path, "--epsilon", "1", "--delta", "2", code=2)


def test_a_clock_is_accepted_by_two_people_at_the_machine(
    line: Line, world: Callable[..., Any]
) -> None:
    """It is recorded what the clock shows to both, who says that it is right, and why; and it is
    told how long stamps that are ahead stand still.
    """
    made, key = world(), line.folder / "officer"
    key.write_text(made.secrets["officer"])

    def accept(reason: str) -> str:
        said = line("accept-time", "-p", "fair", "--reason", reason)
        assert "accountant accept-time --confirm " in said
        proposed = json.loads(made.stored()[-1])
        digest = sha256(made.stored()[-1]).hexdigest()
        words = ("-p", "fair", "--digest", digest)
        number = str(proposed["sequence"])
        assert "clock-beside-database" in line("confirm", number, *words, code=2)
        confirm = ("accept-time", "--confirm", number, *words)
        assert "same-person" in line(*confirm, code=2)
        return line(*confirm, "--key-file", str(key))

    assert accept("looked at it").startswith("accepted: ")
    event = json.loads(made.stored()[-1])
    assert event["type"] == "clock.accepted.v1"
    assert event["by"] == "officer"
    confirms = event["command"]["confirms"]
    assert confirms["proposer"].startswith("operator:")
    assert event["time"] == confirms["shown"] > event["command"]["clock"]
    with pytest.MonkeyPatch.context() as patch:
        hour_ago = time.time_ns() - 3_600 * 10**9
        patch.setattr(time, "time_ns", lambda: hour_ago)
        said = accept("it was ahead")
    assert f"until {event['time']} its time stands still, and no grant expires" in said
    assert json.loads(made.stored()[-1])["time"] == event["time"]


def test_any_decision_is_explained_with_its_integers(line: Line, world: Callable[..., Any]) -> None:
    """Granted, refused, recorded or in a refused batch: by its event, grant or decision, as the
    service explains it. Exit code 1 if it was refused.
    """
    made = world()
    granted = made.post("/grants", ask(laplace("0.3"))).json()
    made.put("", PEOPLE | {"dimensions": {"country": ["KR", "[red]x[/y]", "JP\x1b[2J", "AT"]}})
    there = ask(laplace("0.8"), subjects={"country": ["AT"]})
    refused = made.post("/grants", there).json()
    recorded = made.post("/invocations", there | {"mechanisms": [laplace("2")]}).json()
    batch = {"items": [{"type": "ask_grant"} | ask(laplace("0.1")), {"type": "ask_grant"} | there]}
    items = made.post("/batch", batch).json()
    for answer, code in ((granted, 0), (refused, 1), (recorded, 0), (items, 1)):
        sequence = answer["sequence"]
        shown = line.json("explain", f"d{sequence}", "-p", "fair", code=code)
        served = made.get(f"/decisions/d{sequence}").json()
        assert {name: shown[name] for name in ("id", "type", "outcome", "rules", "charge")} == {
            name: served[name] for name in ("id", "type", "outcome", "rules", "charge")
        }
    said = line("explain", granted["id"], "-p", "fair")
    assert "decision: allow, by the policy of event 3" in said
    assert "laplace: epsilon 0.3, delta 0 (unclaimed)" in said
    ran = made.post("/invocations", ask(gaussian("1"), NON_PRIVATE)).json()
    told = line("explain", f"d{ran['sequence']}", "-p", "fair")
    assert "gaussian: no epsilon by itself, delta 0 (unclaimed)" in told
    assert "non_private: epsilon infinite, delta" in told
    assert "epsilon: 0 + 300000000 <= 1000000000 (in 1e-9)" in said
    said = line("explain", str(refused["sequence"]), "-p", "fair", code=1)
    assert "block  a: epsilon 0.3 used + 0.8 asked = 1.1 is more than the limit 1" in said
    assert "(dataset d; country AT)" in said
    assert "epsilon: 300000000 + 800000000 > 1000000000 (in 1e-9)" in said
    assert "exhausted accounts: 1" in said
    assert "a, d: all groups asked for" in said


def test_what_holds_no_decision_is_not_explained(line: Line) -> None:
    """An event of another kind, none, and what is no name of one are errors in one line."""
    for event in ("0", "99", "x", "-1", "d", "9" * 30):
        assert "accountant: " in line("explain", "-p", "fair", "--", event, code=2)
    assert "nope" in line("explain", "0", "-p", "nope", code=2)


def test_a_late_ancestor_is_explained(line: Line, world: Callable[..., Any]) -> None:
    """What has registered it is among the few events that are read."""
    made = world()
    made.put("/datasets/w", {"namespace": "n", "name": "w", "parents": ["n/x"]})
    made.post("/invocations", ask(laplace("0.75"), dataset="w"))
    made.put("/datasets/x", {"namespace": "n", "name": "x"})
    refused = made.post("/grants", ask(laplace("0.5"), dataset="x")).json()
    said = line("explain", refused["decision"]["id"], "-p", "fair", code=1)
    assert "epsilon 0.75 used + 0.5 asked = 1.25 is more than the limit 1" in said
    assert "(dataset x)" in said


def test_explaining_reads_no_ledger(line: Line) -> None:
    """The database finds the few events that are needed by an index, however many there are."""
    plan = "EXPLAIN QUERY PLAN SELECT body FROM event WHERE ledger = 'fair' AND sequence <= 9 AND "
    with closing(sqlite3.connect(line.url[10:])) as raw:
        [row] = raw.execute(plan + TERMS)
    assert "event_terms" in row[-1]


def test_a_policy_is_adopted_and_told_what_it_keeps(line: Line) -> None:
    """What a kept order costs is shown; a limit that would close has to be named."""
    lines = "policy: p\nrules:\n  - {{id: a, gate: {}, limit: {{epsilon: {}, delta: 1e-6}}}}\n"
    path = line.folder / "policy.yaml"
    noise = {"kind": "gaussian", "sensitivity": "1", "scale": "20"}
    line("import", "-p", "fair", line.file("runs", ask(noise)), "--batch", "one")
    path.write_text(lines.format("renyi", "0.1"))
    said = line("policy", "adopt", "-p", "fair", str(path))
    assert "new epochs: a" in said
    assert "a goes on at the orders " in said
    assert "a step of DP-SGD, rate 0.01, sigma 1.1: " in said
    assert "in force already" in line("policy", "adopt", "-p", "fair", str(path))
    path.write_text(lines.format("zcdp", "0.1"))
    said = line("policy", "adopt", "-p", "fair", str(path), "--closes", "a")
    assert "a is raised or changed" in said
    [one] = line.json("proposals", "-p", "fair")
    confirm = "confirm", str(one["proposal"]), "-p", "fair", "--digest", one["digest"]
    assert f"accountant {' '.join(confirm)}" in said
    assert "same-person" in line(*confirm, code=2)
    key = line.folder / "pipeline"
    key.write_text(line("keys", "create", "--role", "pipeline", "--name", "etl"))
    assert "role-not-allowed" in line(*confirm, "--key-file", str(key), code=2)
    said = line("decline", str(one["proposal"]), "-p", "fair", "--reason", "not now")
    assert "declined" in said
    assert "nothing waits" in line("proposals", "-p", "fair")


def test_a_third_key_that_may_confirm_takes_two_people(line: Line) -> None:
    """It is proposed, and whoever made it does not confirm it."""
    said = line("keys", "create", "--role", "officer", "--name", "d")
    assert "it is valid once another person confirms" in said
    assert "d" not in {one["name"] for one in line.json("keys", "list")}
    number, _, _, digest = said.split("accountant confirm ")[1].split()[:4]
    confirm = ("confirm", number, "--keys", "--digest", digest)
    assert "same-person" in line(*confirm, code=2)
    assert "a key named d could confirm" in line("proposals", "--keys")
    [one] = line.json("proposals", "--keys")
    assert (one["change"]["role"], one["digest"]) == ("officer", digest)
    for wrong in (("proposals",), ("proposals", "--keys", "-p", "fair")):
        assert "--population, or --keys" in line(*wrong, code=2)
    line("decline", number, "--keys", "--reason", "not this year")
    assert "proposal-closed" in line(*confirm, code=2)


def test_a_policy_that_closes_a_limit_is_confirmed_on_the_command_line(line: Line) -> None:
    """A further limit begins with a sum of epsilons, of which one has no bound."""
    noise = {"kind": "gaussian", "sensitivity": "1", "scale": "20"}
    line("import", "-p", "fair", line.file("runs", ask(noise)), "--batch", "one")
    path = line.folder / "policy.yaml"
    path.write_text("policy: p\nrules:\n" + RULES + "  - {id: b, limit: {epsilon: 9}}\n")
    said = line("policy", "adopt", "-p", "fair", str(path), code=2)
    assert "limit b on dataset d begins" in said
    assert "policy-closes-limit" in said
    command = ("policy", "adopt", "-p", "fair", str(path), "--closes", "b")
    assert line.json(*command) == {"adopted": True, "opens_epoch": ["b"], "kept_orders": []}
