"""The steps of the container's file, run here without a container: `make test-image`.

It downloads what the lock names, hence not with every run of the tests. What a container adds is
left to its engine: namespaces, and the base image.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from pwd import getpwnam
from typing import Any

import pytest
from containerfile import ROOT, stages
from engine import free_port

pytestmark = [
    pytest.mark.skipif(not os.environ.get("IMAGE"), reason="downloads; run `make test-image`"),
    pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which takes root"),
]
_MDWE, _REFUSE_EXEC_GAIN, _NO_NEW_PRIVS = 65, 1, 38
"""prctl(2): PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN (the unit's MemoryDenyWriteExecute) and
PR_SET_NO_NEW_PRIVS.
"""


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """A folder in place of the container's root, after all steps of the first stage; read-only."""
    root = Path(tempfile.mkdtemp(prefix="accountant-image-", dir="/tmp"))
    root.chmod(0o755)
    (root / "src").mkdir()
    (root / "opt").mkdir()
    python = base(root / "usr" / "local")
    for word, rest in stages()[0].instructions:
        if word == "COPY":
            *paths, to = rest.split()
            for path in paths:
                name = Path(path).name if to.endswith("/") else ""
                copy(ROOT / path, root / "src" / to / name)
        elif word == "RUN":
            step = rest.replace("/opt/", f"{root}/opt/")
            step = step.replace("python -m venv", f"{python} -m venv")
            done = subprocess.run(
                ["sh", "-ec", step],
                cwd=root / "src",
                capture_output=True,
                text=True,
                check=False,
                env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
            )
            assert done.returncode == 0, f"{rest}\n{done.stdout}{done.stderr}"
        else:
            assert word == "WORKDIR", word
    subprocess.run(["chmod", "-R", "a+rX,a-w", str(root / "opt"), str(root / "usr")], check=True)
    yield root
    subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
    shutil.rmtree(root)


def base(to: Path) -> Path:
    """Puts the interpreter that runs the tests where any user may run it, as the base image has
    one; its path.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    origin = Path(sys.base_prefix)
    unwanted = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a")
    shutil.copytree(origin / "lib" / name, to / "lib" / name, ignore=unwanted, symlinks=True)
    for library in (origin / "lib").glob("libpython*.so*"):
        shutil.copy(library, to / "lib")
    (to / "bin").mkdir()
    shutil.copy(origin / "bin" / name, to / "bin" / name)
    return to / "bin" / name


def copy(path: Path, to: Path) -> None:
    """As COPY does."""
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(path, to)


def confined() -> None:
    """What the unit and the manifests take away, as far as a process can take it from itself."""
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0)


def test_the_service_runs_from_it(image: Path) -> None:
    """From a read-only tree, as a user without a name to it, without new privileges or memory that
    is written and run, the service starts by the file's own CMD, its health check passes, a key is
    made, and SIGTERM ends it in order.
    """
    final, user = stages()[-1], getpwnam("nobody")
    home = Path(tempfile.mkdtemp(prefix="accountant-home-", dir="/tmp"))
    os.chown(home, user.pw_uid, user.pw_gid)
    port = free_port()
    environment = final.environment | {
        "PATH": "/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(image / "usr" / "local" / "lib"),
        "ACCOUNTANT_HOME": str(home),
        "ACCOUNTANT_PORT": str(port),
    }
    options: dict[str, Any] = {
        "cwd": home,
        "env": environment,
        "user": user.pw_uid,
        "group": user.pw_gid,
        "extra_groups": [],
        "preexec_fn": confined,
    }

    def here(words: list[str]) -> list[str]:
        return [
            word.replace("/opt/", f"{image}/opt/").replace(":8321/", f":{port}/") for word in words
        ]

    entry = final.all("ENTRYPOINT")[0].listed
    subprocess.run(here([*entry, "migrate"]), check=True, **options)
    service = subprocess.Popen(here([*entry, *final.all("CMD")[0].listed]), **options)
    try:
        check = here(final.all("HEALTHCHECK")[0].listed)
        deadline = time.monotonic() + 120
        while subprocess.run(check, capture_output=True, check=False, **options).returncode:
            assert service.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.5)
        made = [*entry, "keys", "create", "--role", "admin", "--name", "me"]
        done = subprocess.run(here(made), capture_output=True, text=True, check=True, **options)
        assert done.stdout.strip()
        service.send_signal(signal.SIGTERM)
        assert service.wait(90) == 0
    finally:
        service.kill()
        service.wait()
        shutil.rmtree(home)
    assert not [one for one in (image / "opt").rglob("*") if one.stat().st_uid == user.pw_uid]


def test_nothing_that_builds_is_left(image: Path) -> None:
    """The folder that the last stage gets has neither pip nor what builds wheels."""
    packages = next((image / "opt" / "accountant" / "lib").glob("python3*")) / "site-packages"
    names = {one.name.partition("-")[0].lower() for one in packages.iterdir()}
    assert {"accountant", "numpy", "psycopg"} <= names
    assert not names & {"pip", "setuptools", "wheel", "hatchling"}
