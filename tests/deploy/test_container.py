"""The container's file: what it promises, read from its instructions, and its locks."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from importlib.metadata import requires
from pathlib import Path

import pytest
from containerfile import DOCKERFILE, ROOT, Stage, stages
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = ROOT / "requirements.lock"
OURS = {"privacy-accountant", "privacy-accountant-client"}


@pytest.fixture(scope="module")
def build() -> Stage:
    """The stage that builds."""
    return stages()[0]


@pytest.fixture(scope="module")
def final() -> Stage:
    """The stage that runs."""
    found = stages()
    assert len(found) == 2
    return found[-1]


def pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of every package of a lock."""
    parts = re.split(r"^([a-z0-9-]+)==", path.read_text(), flags=re.MULTILINE)[1:]
    return {
        name: (re.split(r"[ ;\\]", rest, maxsplit=1)[0], frozenset(re.findall(r"sha256:\w+", rest)))
        for name, rest in zip(parts[::2], parts[1::2], strict=True)
    }


def test_it_runs_as_nobody_in_particular(final: Stage) -> None:
    """The user is a number other than root's, set after the last command that needs root, and owns
    the home folder and nothing else.
    """
    words = [one.word for one in final.instructions]
    [user] = final.all("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user.rest)
    assert words.index("USER") > max(n for n, word in enumerate(words) if word in ("RUN", "COPY"))
    uid, gid = user.rest.split(":")
    home = final.environment["ACCOUNTANT_HOME"]
    assert f"install -d -o {uid} -g {gid} -m 0700 {home}" in final.all("RUN")[0].rest
    assert "--chown" not in " ".join(one.rest for one in final.instructions)
    assert [one.listed for one in final.all("VOLUME")] == [[home]]


def test_signals_reach_the_service(final: Stage) -> None:
    """No shell stands between the platform and the service: all is in exec form."""
    assert final.all("ENTRYPOINT")[0].listed == ["/opt/accountant/bin/accountant"]
    assert final.all("CMD")[0].listed == ["serve"]
    assert final.all("STOPSIGNAL")[0].rest == "SIGTERM"
    check = final.all("HEALTHCHECK")[0]
    assert check.listed[0] == "/opt/accountant/bin/python"
    assert "/readyz" in check.listed[-1]


def test_nothing_can_be_installed_in_it(final: Stage) -> None:
    """The last stage gets one folder from the first, installs nothing, and has no pip."""
    assert [one.rest for one in final.all("COPY")] == [
        "--from=build /opt/accountant /opt/accountant"
    ]
    [run] = final.all("RUN")
    assert not re.search(r"\bapt|pip3? install|-m pip|gcc|curl|wget", run.rest)
    assert "site-packages/pip*" in run.rest
    assert not final.all("ADD")


def test_every_package_is_pinned_by_its_hash(build: Stage) -> None:
    """Each install takes a lock with hashes, or the wheels that were built from this tree."""
    installs = [
        words
        for run in build.all("RUN")
        for words in run.rest.split("&&")
        if re.search(r"pip .*install", words)
    ]
    assert len(installs) == 3
    for words in installs:
        hashed = "--require-hashes" in words and "--only-binary :all:" in words
        assert hashed or ("--no-index --no-deps" in words and "/opt/wheels/" in words)
        for lock in re.findall(r"-r (\S+)", words):
            assert (ROOT / lock).is_file()


def test_what_is_copied_is_sent(build: Stage) -> None:
    """Each path that the file copies is in the repository, and not left out of what is sent."""
    rules = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    sent = [rule[1:] for rule in rules if rule.startswith("!")]
    copied = [path for one in build.all("COPY") for path in one.rest.split()[:-1]]
    assert len(copied) > 7
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(fnmatch(path, rule) for rule in sent), path
    for path in sent:
        assert any(fnmatch(one, path) for one in copied), path


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_the_locks_agree(name: str) -> None:
    """What the container holds is what the tests ran with: same versions, same hashes."""
    known = pins(LOCK)
    found = pins(DOCKERFILE.parent / name)
    assert found
    assert {one: known.get(one) for one in found} == found, "run `make lock`"


def needed() -> set[str]:
    """Every package that the service needs on this machine, by what the installed ones declare."""
    todo, seen = [(name, "") for name in OURS], set[tuple[str, str]]()
    while todo:
        package, extra = todo.pop()
        if (package, extra) in seen:
            continue
        seen.add((package, extra))
        for one in map(Requirement, requires(package) or []):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                name = canonicalize_name(one.name)
                todo += [(name, more) for more in ("", *one.extras)]
    return {package for package, _ in seen}


def test_the_lock_is_complete_and_no_more() -> None:
    """It has all that the service needs on this machine, and nothing that only tests need."""
    locked = pins(DOCKERFILE.parent / "requirements.lock").keys()
    assert {"fastapi", "psycopg-binary", "uvloop"} <= needed()
    assert needed() - OURS <= locked, "run `make lock`"
    assert not locked & {"pytest", "hypothesis", "mypy", "ruff", "hatchling", "diffprivlib"}
