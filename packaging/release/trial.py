"""Each wheel in an environment of its own, and used there as its reader would."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POLICY = "policy: trial\nrules:\n  - {id: lifetime, limit: {epsilon: 1}}\n"
REGISTERED = {
    "privacy_unit": "person",
    "neighbouring": "add_or_remove_one",
    "membership": "public",
    "dimensions": {"country": ["CH", "JP"]},
}
PIPELINE = """
import os
from accountant.client import Client, Refused, laplace
with Client.from_env() as ledger:
    with ledger.grant("visits", [laplace(1, 2)], purpose="trial"):
        pass
    try:
        ledger.grant("visits", [laplace(1, 1)], purpose="trial")
    except Refused as refusal:
        print(refusal.code)
"""
_START, _PAUSE = 120.0, 0.1  # seconds


def client(folder: Path, wheel: Path, lock: Path) -> None:
    """Installs the client with what it needs in the versions of ``lock``, and imports it."""
    python = environment(folder)
    pinned = folder / "constraints.txt"
    pinned.write_text(
        "\n".join(re.findall(r"^[A-Za-z0-9][^ \\]*==[^ \\]+", lock.read_text(), re.M))
    )
    install(python, "-c", str(pinned), str(wheel))
    run(python, "-c", "from accountant.client import AsyncClient, Client, laplace; laplace(1, 2)")
    if "Name: numpy" in run(python, "-m", "pip", "show", "httpx2", "numpy", check=False):
        raise SystemExit(f"{wheel.name}: brings numpy along")


def service(folder: Path, wheels: list[Path], lock: Path) -> Path:
    """Installs the service by its lock, starts it, and has two people and a pipeline use it; the
    environment's Python.
    """
    python = environment(folder)
    install(python, "--require-hashes", "--only-binary", ":all:", "-r", str(lock))
    install(python, "--no-index", "--no-deps", *map(str, wheels))
    home, port = folder / "home", _free_port()
    base = f"http://127.0.0.1:{port}"
    env = _plain() | {"ACCOUNTANT_HOME": str(home), "ACCOUNTANT_PORT": str(port)}

    def command(*words: str) -> str:
        return run(python, "-m", "accountant", *words, env=env)

    command("migrate")
    keys = {
        role: command("keys", "create", "--role", role, "--name", role).split()[-1]
        for role in ("admin", "officer", "pipeline", "auditor")
    }
    with running(python, env, base, folder / "log"):
        people = f"{base}/v1/populations/people"
        call(people, keys["admin"], "PUT", REGISTERED)
        call(f"{people}/datasets/visits", keys["admin"], "PUT", {"namespace": "n", "name": "t"})
        adopted = call(f"{people}/policy", keys["admin"], "PUT", POLICY)
        confirmed = f"{people}/proposals/{adopted['proposal']}/confirm"
        call(confirmed, keys["officer"], "POST", {"digest": adopted["digest"]})
        here = env | {"ACCOUNTANT_URL": base, "ACCOUNTANT_KEY": keys["pipeline"]}
        refused = run(python, "-c", PIPELINE, env=here | {"ACCOUNTANT_POPULATION": "people"})
        if refused.strip() != "budget-exceeded":
            raise SystemExit(f"a grant beyond the limit was answered by {refused!r}")
        for page in ("/docs", "/console/signin", "/console/static/console.css"):
            urllib.request.urlopen(base + page, timeout=30).close()
        bundle = str(folder / "people.tar")
        command("export", "-p", "people", bundle)
        command("verify", bundle)
        run(python, "-m", "accountant.verify_minimal", bundle)
        command("report", "-p", "people", "-o", str(folder / "report.html"))
    return python


@contextmanager
def running(python: Path, env: dict[str, str], base: str, log: Path) -> Iterator[None]:
    """A service that answers, until the block ends; it has to end in order."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, "-m", "accountant", "serve"], env=env, stderr=out, stdout=out, cwd="/"
        )
    try:
        deadline = time.monotonic() + _START
        while not _ready(base):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service did not start:\n{log.read_text()}")
            time.sleep(_PAUSE)
        yield
        process.terminate()
        if process.wait(_START):
            raise SystemExit(f"the service ended by {process.returncode}:\n{log.read_text()}")
    finally:
        process.kill()
        process.wait()


def call(url: str, key: str, method: str, body: Any) -> Any:
    """One request; a text is sent as it is."""
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {"Authorization": f"Bearer {key}"}
    if isinstance(body, str):
        headers["Content-Type"] = "application/yaml"
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{method} {url}: {error.read().decode()}") from None


def environment(folder: Path) -> Path:
    """A new environment with pip, and its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def install(python: Path, *words: str) -> None:
    """Installs by pip."""
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)


def run(python: Path, *words: str, env: dict[str, str] | None = None, check: bool = True) -> str:
    """What a program prints there; nothing of this tree is on its path."""
    env = _plain() if env is None else env
    done = subprocess.run(
        [python, *words], cwd="/", env=env, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def _plain() -> dict[str, str]:
    """The variables of this process, without those that Python or the service would read."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "ACCOUNTANT_"))
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _ready(base: str) -> bool:
    try:
        urllib.request.urlopen(f"{base}/readyz", timeout=5).close()
    except OSError:
        return False
    return True
