"""The two distributions: what is in each, and the client alone in an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from accountant import __version__

ROOT = Path(__file__).parents[2]
MEGABYTE = 2**20


class Wheels(NamedTuple):
    """The built files."""

    client: Path
    service: Path


def names(wheel: Path) -> set[str]:
    """The files of the package in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("accountant/")}


def stated(folder: Path) -> dict[str, Any]:
    """What a pyproject.toml says of its distribution."""
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Both distributions, built as they are released."""
    folder = tmp_path_factory.mktemp("wheels")
    for place in (ROOT / "packaging" / "client", ROOT):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=place, check=True, capture_output=True)
    [client] = folder.glob("privacy_accountant_client-*.whl")
    [service] = folder.glob("privacy_accountant-*.whl")
    return Wheels(client, service)


def closure(name: str) -> set[str]:
    """A distribution and all that it needs, by the names they are installed under."""
    found, waiting = set(), [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for needed in distribution(one).requires or ():
            if "extra ==" not in needed:
                other = re.split(r"[ <>=!~;\[(]", needed)[0]
                if shutil.which(other) or _installed(other):
                    waiting.append(other)
    return found


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except ModuleNotFoundError:
        return False
    return True


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, wheels: Wheels) -> Path:
    """An environment with the client, httpx2 and what that needs, and nothing else: its Python."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    for name in closure("httpx2"):
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            target = packages / str(file)
            if source.is_file() and ".." not in Path(str(file)).parts:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    with zipfile.ZipFile(wheels.client) as archive:
        archive.extractall(packages)
    return folder / "bin" / "python"


def run(python: Path, program: str) -> str:
    """What a program prints there."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=False, env=env, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_file_is_in_both_and_none_is_in_neither(wheels: Wheels) -> None:
    """Together they are the package: every module belongs to exactly one of them."""
    client, service = names(wheels.client), names(wheels.service)
    assert not client & service
    modules = {str(file.relative_to(ROOT)) for file in (ROOT / "accountant").rglob("*.py")}
    assert modules <= client | service
    assert {name for name in client if name.startswith("accountant/client/")} >= {
        name for name in modules if name.startswith("accountant/client/")
    }


def test_they_have_names_and_a_version_of_their_own() -> None:
    """Both are released together, under free names; the service needs the client."""
    client, service = stated(ROOT / "packaging" / "client"), stated(ROOT)
    assert (client["name"], service["name"]) == ("privacy-accountant-client", "privacy-accountant")
    assert client["version"] == service["version"] == __version__
    assert f"{client['name']}=={__version__}" in service["dependencies"]
    assert [re.split("[<>=]", each)[0] for each in client["dependencies"]] == ["h11", "httpx2"]


def test_the_client_is_small_and_stands_alone(fresh: Path) -> None:
    """In a fresh environment numpy, pydantic and sqlalchemy are neither installed nor imported."""
    program = """
import importlib.util, sys
import accountant.client
from accountant.client import AsyncClient, Client, laplace
for name in ("numpy", "pydantic", "sqlalchemy", "typer", "accountant.budget"):
    assert importlib.util.find_spec(name) is None, name
    assert name not in sys.modules, name
print(repr(Client("http://127.0.0.1:1", "key", "people")), laplace(1, 0.5)["scale"])
"""
    assert run(fresh, program) == "<Client of people at http://127.0.0.1:1> 0.5\n"


def test_the_client_takes_under_five_megabytes(wheels: Wheels) -> None:
    """All that the client itself installs."""
    with zipfile.ZipFile(wheels.client) as archive:
        assert sum(info.file_size for info in archive.infolist()) < 5 * MEGABYTE


def test_no_document_names_another_projects_package() -> None:
    """``accountant`` on the package index is somebody else's."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.suffix in (".md", ".py", ".toml", ".yaml", ".html", "") and file.is_file():
            text = file.read_text(errors="ignore")
            assert not re.search(r"pip install ['\"]?accountant\b", text), name
