"""What a pipeline may see: what concerns it, and of other clients nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.routing import iter_route_contexts
from support import ROLES, World, ask, laplace

from accountant.api.app import create_app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "access.md"
ROW = re.compile(r"^\| `(\w+) (\S+)` \| ?(\w*) \| (\w+) \|$", re.M)
LETTERS = dict(zip(ROLES, "apou", strict=True))
RULES = """
  - {id: all, limit: {epsilon: 3}}
  - {id: each, per: client, limit: {epsilon: 2}}
  - {id: both, clients: [mine-one, secret-client], limit: {epsilon: 2.5}}
  - {id: hidden-rule, clients: [secret-*], limit: {epsilon: 2}}
  - {id: near, of: hidden-rule, at: 50%}
  - {id: mine, part_of: all, limit: {epsilon: 0.5}, clients: [mine-*, secret-client]}
  - {id: hidden-part, part_of: all, limit: {epsilon: 0.7}, clients: [secret-*]}
"""
SECRET = ("secret", "hidden")
"""What a pipeline must not meet: names of others, of their rules, their texts."""


class Row(NamedTuple):
    """A line of the documented table."""

    method: str
    path: str
    roles: str
    seen: str


def documented() -> list[Row]:
    """The table of the page, with whole paths."""
    rows = [Row(*found) for found in ROW.findall(PAGE.read_text(encoding="utf-8"))]
    whole = [row.path.replace("…", "/v1/populations/{population}") for row in rows]
    return [row._replace(path=path) for row, path in zip(rows, whole, strict=True)]


def roles_of(dependant: Any) -> Iterator[str]:
    """The roles that a handler's dependencies admit."""
    for one in dependant.dependencies:
        yield from getattr(one.call, "roles", ())
        yield from roles_of(one)


def routes(world: World) -> dict[tuple[str, str], str]:
    """All calls of the service, with the letters of their roles."""
    found: dict[tuple[str, str], str] = {}
    app = create_app(world.service, world.settings, world.publisher)
    for route in iter_route_contexts(app.routes):
        roles = "".join(LETTERS[role] for role in ROLES if role in set(roles_of(route.dependant)))
        for method in route.methods or ():
            found[method, str(route.path_format)] = roles
    return found


@pytest.fixture(scope="module")
def left(
    empty_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """The home of a service that two pipelines use: mine-one, and one that nobody may hear of; and
    its secrets.
    """
    home = tmp_path_factory.mktemp("shared")
    shutil.copy(empty_database, home / "accountant.db")
    made = World(f"sqlite:///{home}/accountant.db").hospital(RULES.replace("\n", "", 1))
    for name in ("mine-one", "secret-client"):
        made.secrets[name] = made.service.credentials.create(name, "pipeline", "test")
    text = {"purpose": "secret purpose", "justification": "secret reason"}
    for body in (
        {"allotment": "mine"},
        {"allotment": "hidden-part", **text},
        text,
    ):
        answer = made.post("/grants", ask(laplace("0.2"), **body), who="secret-client")
        assert answer.status_code == 201, answer.text
    assert made.post("/grants", ask(laplace("0.1")), who="mine-one").status_code == 201
    made.publisher.publish("fair")
    made.close()
    return home, made.secrets


@pytest.fixture
def shared(left: tuple[Path, dict[str, str]], tmp_path: Path) -> Iterator[World]:
    """That service in a home of this test's own."""
    home = shutil.copytree(left[0], tmp_path / "home")
    made = World(f"sqlite:///{home}/accountant.db", secrets=left[1])
    yield made
    made.close()


def test_the_table_has_every_call(shared: World) -> None:
    """A new call fails this until the page says who may make it, and what a pipeline sees there."""
    rows = {(row.method, row.path): row.roles for row in documented()}
    assert len(rows) == len(documented())
    assert rows == routes(shared)
    assert {row.seen for row in documented()} == {"own", "concerned", "all", "none"}
    assert all((row.seen == "none") == ("p" not in row.roles) for row in documented() if row.roles)


THEIRS = {
    "grant": "g4",
    "sequence": "4",
    "decision": "d4",
    "place": "0/000.p/5",
    "dataset": "d",
} | {
    "dimension": "sex",
    "proposal": "2",
}
MINE = THEIRS | {"grant": "g7", "sequence": "7", "decision": "d7"}
BODIES: dict[str, Any] = {
    "/grants": ask(laplace("5")),
    "/preview": ask(laplace("5"), allotment="mine"),
    "/invocations": ask(laplace("5")),
    "/preview/batch": {"items": [ask(laplace("5"))]},
    "/batch": {"items": [{"type": "ask_grant"} | ask(laplace("5"))]},
    "/republications": {"dataset": "d", "answer": "0" * 64},
    "/release": {"reason": "not run"},
    "/answers": {"positives": 1, "negatives": 0},
    "/sparse-vector": {"dataset": "d", "mechanism": {"kind": "sparse_vector"}},
}


@pytest.mark.parametrize("row", documented(), ids=lambda row: f"{row.method} {row.path[-24:]}")
def test_a_pipeline_sees_nothing_of_others(shared: World, row: Row) -> None:
    """Whatever it calls, on its own things or on those of others, no answer has a word of theirs;
    and what is another's is refused.
    """
    body = next((body for end, body in BODIES.items() if row.path.endswith(end)), None)
    for names in (MINE, THEIRS):
        path = row.path.format(population="fair", **names)
        headers = shared.auth("mine-one") | {"Idempotency-Key": f"k-{names['grant']}"}
        content = {} if row.method == "GET" else {"json": body or {}}
        answer = shared.http.request(row.method, path, headers=headers, **content)
        if row.path not in ("/", "/docs", "/openapi.json"):  # which describe the program
            assert not [word for word in SECRET if word in answer.text], (path, answer.text)
        assert answer.status_code < 500
        if row.seen == "none":
            assert answer.status_code == 403
        if (
            row.seen == "own"
            and names is THEIRS
            and "{" in row.path.removeprefix("/v1/populations/{population}")
        ):
            assert answer.status_code == 403, path
        if row.method == "GET" and names is MINE and row.seen != "none":
            assert answer.status_code in (200, 307), (path, answer.text)


def test_a_pipeline_sees_the_rules_that_concern_it(shared: World) -> None:
    """Those in whose scope it is, with the patterns that match it; and the accounts of these."""
    policy = shared.get("", who="mine-one").json()["policy"]
    assert [rule["id"] for rule in policy["rules"]] == ["all", "each", "both", "mine"]
    assert [rule.get("clients") for rule in policy["rules"][2:]] == [["mine-one"], ["mine-*"]]
    lines = shared.get("/accounts", who="mine-one").json()["accounts"]
    assert [(one["rule"], one["client"]) for one in lines] == [
        ("all", ""), ("each", "mine-one"), ("both", ""), ("mine", ""),
    ]  # fmt: skip
    assert [one["total"]["spent"] + one["total"]["reserved"] for one in lines] == [
        "00.7", "00.1", "00.7", "00.2",
    ]  # fmt: skip
    assert lines[0]["total"]["remaining"] == "1.5"
    assert lines[0]["total"]["kept"] == "0.8"


@pytest.mark.parametrize("who", ["admin", "officer", "auditor"])
def test_overseers_see_everything(shared: World, who: str) -> None:
    """The whole policy, every account, every grant, and who used a limit up."""
    policy = shared.get("", who=who).json()["policy"]
    assert len(policy["rules"]) == 7
    lines = shared.get("/accounts", who=who).json()["accounts"]
    assert {one["rule"] for one in lines} == {
        "all", "each", "both", "hidden-rule", "mine", "hidden-part",
    }  # fmt: skip
    assert len(shared.get("/grants", who=who).json()["grants"]) == 4
    refused = shared.post("/grants", ask(laplace("2")), who="mine-one").json()
    shown = shared.get(f"/decisions/{refused['decision']['id']}", who=who).json()
    assert "secret-client" in str(shown["used_up_by"])


def test_a_pipeline_may_hold_a_receipt_of_its_own_event(shared: World) -> None:
    """Its receipt proves its own event, and no other can be had."""
    assert shared.get("/receipts/7", who="mine-one").status_code == 200
    assert shared.get("/receipts/4", who="mine-one").status_code == 403
