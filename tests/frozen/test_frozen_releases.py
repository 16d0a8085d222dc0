"""What a release promised is kept, and what it wrote is read, by every later version."""

from __future__ import annotations

import io
import json
import lzma
import secrets
import tarfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from growing import lost
from house import ORIGIN
from support import Clock, World, ask, laplace
from surface import surface

from accountant.auditing.verify import verify
from accountant.publishing.export import covering, write_bundle
from accountant.reporting.statement import accounts_json
from accountant.store.migrate import migrate
from accountant.store.restore import restore
from bench.postgres import Server

RELEASES = sorted(one for one in Path(__file__).parent.iterdir() if (one / "home.tar.xz").exists())
ANSWERED = {"answers", "schemas answered"}
PARTS = ("sequence", "accounts", "lifetime")

every_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


@pytest.fixture(scope="module")
def today() -> dict[str, Any]:
    """The surface of this tree."""
    return surface()


def gone(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What of a surface is not there any more, or takes less than it did."""
    sides = [name for name in old["http"] if name in ANSWERED]
    answered = {name: old["http"][name] for name in sides}
    asked = old | {"http": {name: old["http"][name] for name in old["http"].keys() - ANSWERED}}
    return [
        *lost(asked, new),
        *lost(answered, new["http"], asked=False),
    ]


@every_release
def test_the_surface_only_grows(release: Path, today: dict[str, Any]) -> None:
    """Requests, policies and commands that a release took are taken; answers have every field that
    they had; and no option, setting, metric, problem code, function, type of event, migration or
    golden bundle of it is gone or another.
    """
    promised = json.loads(lzma.decompress((release / "surface.json.xz").read_bytes()))
    assert not gone(promised, today)


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a type of event": lambda new: new["events"].remove("grant.reserved.v1"),
    "a command's field": lambda new: new["commands"]["AskGrant"]["properties"].pop("purpose"),
    "a field that is newly required": lambda new: (
        new["commands"]["AskGrant"].setdefault("required", []).append("purpose")
    ),
    "an answer's field that may be missing": lambda new: new["http"]["schemas answered"]["Problem"][
        "required"
    ].remove("title"),
    "a tighter bound": lambda new: new["policy"]["properties"]["rules"].update(maxItems=1),
    "a setting": lambda new: new["settings"].remove("ACCOUNTANT_HOME"),
    "an option": lambda new: new["command line"]["accountant verify"].remove("--json"),
    "a metric's label": lambda new: new["metrics"]["accountant_limit_epsilon"].pop(),
    "a method of the client": lambda new: new["client"]["accountant.client"].pop("Client.grant"),
    "another status": lambda new: new["problems"].update({"budget-exceeded": 400}),
    "a bundle made anew": lambda new: new["evidence"].update({"bundle-1.tar": "0" * 64}),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_promise_is_noticed(broken: str, today: dict[str, Any]) -> None:
    """Whatever is taken away from the surface of today is found."""
    less = deepcopy(today)
    BROKEN[broken](less)
    assert not gone(today, today)
    assert gone(today, less)


def test_what_only_grows_is_no_broken_promise(today: dict[str, Any]) -> None:
    """A new type of event, an optional field, a field of an answer, and a wider bound are fine."""
    more = deepcopy(today)
    more["events"].append("thing.happened.v1")
    more["commands"]["AskGrant"]["properties"]["mood"] = {"type": "string"}
    more["http"]["schemas answered"]["Problem"]["properties"]["mood"] = {"type": "string"}
    more["http"]["schemas answered"]["Problem"]["required"].append("mood")
    more["policy"]["properties"]["rules"]["maxItems"] = 10**6
    assert not gone(today, more)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Where a backup may be restored: a database that is not there yet, and its owner's URL."""
    if request.param == "sqlite":
        (tmp_path / "restored").mkdir()
        yield f"sqlite:///{tmp_path}/restored/accountant.db", ""
        return
    server: Server = request.getfixturevalue("postgres")
    name = f"f_{secrets.token_hex(6)}"
    server.create(name)
    yield server.url("app", name), server.url("owner", name)
    server.drop(name)


@every_release
def test_a_service_goes_on_with_a_home(
    release: Path, world: Callable[..., World], tmp_path: Path
) -> None:
    """The home that a release left is migrated; its ledger amounts to what it did, replays, is
    signed with the key it had, verifies, and grants.
    """
    with tarfile.open(release / "home.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    home = tmp_path / "home"
    place = f"sqlite:///{home}/accountant.db"
    assert not migrate(place)
    goes_on(release, world, place, home)


@every_release
@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_a_service_goes_on_with_a_backup(
    release: Path, world: Callable[..., World], url: tuple[str, str], tmp_path: Path
) -> None:
    """A backup that a release made is restored to either database, and the service goes on."""
    place, owner = url
    home = tmp_path / "restored"
    restore(place, home, io.BytesIO((release / "backup").read_bytes()), owner_url=owner)
    goes_on(release, world, place, home)


def goes_on(release: Path, world: Callable[..., World], url: str, home: Path) -> None:
    """The service has what the release had, and works."""
    expected = json.loads((release / "totals.json").read_text())
    made = world(Clock(expected["now"]), url=url, home=home, origin=ORIGIN)
    state = made.service.state("fair")
    shown = accounts_json(state, by="sex")
    assert {part: shown[part] for part in PARTS} == {part: expected[part] for part in PARTS}
    key = state.custody.key
    assert made.post("/grants", ask(laplace("0.001"), purpose="after")).status_code == 201
    signed, state = made.publisher.signed_state("fair")
    assert state.custody.key == key
    out = io.BytesIO()
    entries = covering(0, None, signed.size)
    write_bundle(out, made.service.ledgers, "fair", signed, state, entries)
    verdict = verify([io.BytesIO(out.getvalue())])
    assert (verdict.findings, verdict.decided) == ([], True)
