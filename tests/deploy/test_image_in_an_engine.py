"""The image in a container engine, where one is: `make test-image`.

Needs the base image, here or from a registry, and the packages that the lock names.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from containerfile import ROOT
from engine import Engine, chosen_base, found, free_port, wait

from accountant.client import Client, Registrar, laplace

pytestmark = pytest.mark.skipif(
    not os.environ.get("IMAGE"), reason="downloads; run `make test-image`"
)
COMPOSE = ROOT / "deploy" / "compose"
POLICY = '{"policy": "p", "rules": [{"id": "all", "limit": {"epsilon": "1"}, "action": "block"}]}'
Accountant = Callable[..., str]
"""Runs a command of ours beside the service; what it prints."""


@pytest.fixture(scope="module")
def engine() -> Engine:
    """The engine that is there."""
    engine = found()
    if engine is None:
        pytest.skip("neither docker nor podman answers")
    return engine


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    """Our image, built as the documentation says."""
    if not engine.has_image(chosen_base()):
        pytest.skip(f"{chosen_base()} is not here and cannot be fetched; BASE names another image")
    return engine.built()


@contextmanager
def spends(accountant: Accountant, url: str) -> Iterator[None]:
    """A first grant by the steps of the tutorial; after the block, in which the service may have
    been stopped and started, its answer is the same and the next does not fit.
    """
    admin, officer, pipeline = (
        accountant("keys", "create", "--role", role, "--name", role)
        for role in ("admin", "officer", "pipeline")
    )
    with (
        Registrar(url, admin, population="visitors") as steward,
        Registrar(url, officer, population="visitors") as second,
    ):
        steward.register(
            privacy_unit="visitor",
            neighbouring="add_or_remove_one",
            membership="public",
            dimensions={"country": ["CH", "JP"]},
        )
        steward.dataset("visits", namespace="files", name="visits")
        proposed = steward.policy(POLICY)
        second.confirm(proposed["proposal"], proposed["digest"])
    asked = {"subjects": {"country": ["JP"]}, "idempotency_key": "first"}
    noise = [laplace(sensitivity=1, scale="2")]
    with Client(url, pipeline, population="visitors") as client:
        first = client.grant("visits", noise, **asked)
        first.commit()
    yield
    with Client(url, pipeline, population="visitors") as client:
        assert client.grant("visits", noise, **asked).id == first.id
        assert str(client.accounts()["all"].total.spent) == "0.5"
    assert "all agree" in " ".join(accountant("replay", "-p", "visitors").split())
    findings = json.loads(accountant("doctor", "--json"))
    assert findings["wrong"] == 0, findings


def ready(url: str) -> bool:
    """Whether the service says that it is ready."""
    try:
        with urlopen(f"{url}/readyz", timeout=4):  # noqa: S310 (an address of ours)
            return True
    except (URLError, OSError):
        return False


@pytest.fixture
def volume(engine: Engine) -> Iterator[str]:
    """A new volume's name."""
    name = f"accountant-{secrets.token_hex(4)}"
    engine("volume", "create", name)
    yield name
    engine("volume", "rm", name)


def test_a_container_serves_from_a_volume(engine: Engine, image: str, volume: str) -> None:
    """Confined as the documentation says, the migration ends well and the service becomes ready and
    healthy, grants, ends within seconds of SIGTERM with exit code 0, and goes on from its volume
    when it is started again.
    """
    confined = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]  # noqa: S108
    confined += ["--security-opt", "no-new-privileges", "--volume", f"{volume}:/var/lib/accountant"]
    engine("run", "--rm", *confined, image, "migrate")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    name = engine("run", "--detach", *confined, "--publish", f"127.0.0.1:{port}:8321", image)

    def accountant(*words: str) -> str:
        return engine("exec", name, "accountant", *words)

    try:
        wait(lambda: ready(url))
        check = json.loads(engine("inspect", "--format", "{{json .Config}}", name))["Healthcheck"]
        assert check["Test"][0] == "CMD"
        engine("exec", name, *check["Test"][1:])
        with spends(accountant, url):
            engine("stop", "--time", "75", name)
            assert engine("inspect", "--format", "{{.State.ExitCode}}", name) == "0"
            engine("start", name)
            wait(lambda: ready(url))
        _nothing_is_gained(engine, name)
    finally:
        engine("rm", "--force", name)


def _nothing_is_gained(engine: Engine, name: str) -> None:
    """Its user has no capability and writes nowhere but to its volume and /tmp; neither pip nor a
    module of the standard library without bytecode is there.
    """
    status = dict(
        line.split(":\t", 1)
        for line in engine("exec", name, "cat", "/proc/1/status").splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split() == ["10001"] * 4
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Bnd")} == {0}
    for place in ("/opt/accountant/x", "/etc/x", "/usr/local/x"):
        assert not engine.has("exec", name, "touch", place)
    program = (
        "import os, sys, json, asyncio, http.client, importlib.util as u\n"
        "assert u.find_spec('pip') is None and u.find_spec('ensurepip') is None\n"
        "files = [getattr(m, '__cached__', None) for m in sys.modules.values()]\n"
        "files = [f for f in files if f]\n"
        "print(len(files), [f for f in files if not os.path.exists(f)])"
    )
    count, _, missing = engine("exec", name, "python", "-c", program).partition(" ")
    assert (int(count) > 50, missing) == (True, "[]")


@pytest.fixture
def project(engine: Engine, image: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """The compose file under a name of its own, with its own secrets and a free port."""
    if not engine.has("compose", "version"):
        pytest.skip(f"{engine.name} has no compose")
    if not engine.has_image("docker.io/library/postgres:17-bookworm"):
        pytest.skip("PostgreSQL's image is not here and cannot be fetched")
    folder = tmp_path / "secrets"
    subprocess.run([str(COMPOSE / "make-secrets.sh"), str(folder)], check=True)
    more = tmp_path / "more.yaml"
    lines = [f"  {one.name}: {{file: {one}}}" for one in folder.iterdir()]
    more.write_text(
        "services:\n"
        f"  migrate: {{image: {image}}}\n"
        f"  accountant: {{image: {image}, ports: !override ['127.0.0.1:{free_port()}:8321']}}\n"
        "secrets:\n" + "\n".join(lines) + "\n"
    )
    files = ["--file", str(COMPOSE / "compose.yaml"), "--file", str(more)]
    name = f"accountant-{secrets.token_hex(4)}"

    def run(*words: str) -> str:
        return engine("compose", "--project-name", name, *files, *words)

    yield run
    run("down", "--volumes", "--timeout", "75")


def test_compose_serves_from_postgresql(project: Callable[..., str]) -> None:
    """The migration waits for the database and the service for the migration; it grants, goes on
    after all of it was stopped and started again, and is copied.
    """

    def accountant(*words: str) -> str:
        return project("exec", "-T", "accountant", "accountant", *words)

    project("up", "--detach")
    url = f"http://{project('port', 'accountant', '8321')}"
    wait(lambda: ready(url))
    with spends(accountant, url):
        project("stop")
        project("up", "--detach")
        wait(lambda: ready(url))
    assert "visitors: " in accountant("backup", "/var/lib/accountant/copy.tar")
