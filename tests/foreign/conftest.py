"""A real ledger, published as files, and the programs of others that are to verify it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import World, ask, laplace, migrate

from accountant.publishing.export import covering, write_bundle, write_tiles
from accountant.publishing.publisher import Publisher
from accountant.store.vault import Vault

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent.parent / ".venv-foreign" / "bin" / "python"
GOPATH = "/usr/share/gocode"
EVENTS = 3000
SIGNED = (1, 2, 255, 256, 257, 700, 1024, 2999)
"""How many invocations are recorded when a checkpoint is signed, beside the last one."""


@dataclass(frozen=True)
class Published:
    """A folder: log/ (tlog-tiles), keys, checkpoints/, receipts/ (each beside its entry)."""

    folder: Path
    size: int
    checkpoints: int
    receipts: int


@dataclass(frozen=True)
class Ledger:
    """A service on a file of its own, and what publishes its ledger ``fair``."""

    world: World
    publisher: Publisher

    def spend(self, count: int) -> None:
        """Records so many invocations."""
        for number in range(count):
            body = ask(laplace("0.001"), purpose=f"answer {number}")
            assert self.world.post("/invocations", body).status_code == 201


@pytest.fixture(scope="session")
def open_ledger(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ledger]:
    """Makes ledgers, each with a population, a dataset and a policy."""

    def opened(publication: str = "") -> Ledger:
        home = tmp_path_factory.mktemp("home")
        url = f"sqlite:///{home}/accountant.db"
        migrate(url)
        world = World(url)
        vault = Vault(home)
        world.service.vault = vault
        rules = "  - {id: a, limit: {epsilon: 1000}}\n" + publication
        world.hospital(rules, {"sex": ["f", "m"]})
        return Ledger(world, Publisher(world.service, vault, "example.org"))

    return opened


@pytest.fixture(scope="session")
def published(
    open_ledger: Callable[..., Ledger], tmp_path_factory: pytest.TempPathFactory
) -> Published:
    """A ledger of some thousand events with checkpoints in between and a rotated key, exported."""
    ledger, folder = open_ledger(), tmp_path_factory.mktemp("published")
    world, publisher, before = ledger.world, ledger.publisher, 0
    for count in (*SIGNED, EVENTS):
        ledger.spend(count - before)
        if count == 700:
            publisher.rotate("fair", "operator:test")
        signed, before = publisher.sign("fair"), count
    ledgers = world.service.ledgers
    write_tiles(folder / "log", ledgers, "fair", signed, lambda _: None)
    (folder / "checkpoints").mkdir()
    for each in ledgers.signed("fair"):
        (folder / "checkpoints" / f"{each.number:06d}").write_bytes(each.full)
    state = world.service.state("fair")
    keys = [f"{key.text}\n" for key in state.custody.keys]
    (folder / "keys").write_text("".join(keys))
    (folder / "receipts").mkdir()
    chosen = [*range(0, signed.size, 97), 255, 256, signed.size - 1]
    for sequence in chosen:
        receipt = publisher.log("fair").receipt(sequence, signed)
        (folder / "receipts" / f"{sequence}.tlog-proof").write_bytes(receipt.to_bytes())
        [row] = ledgers.read("fair", sequence, 1)
        (folder / "receipts" / f"{sequence}.json").write_bytes(row.body)
    state = world.service.state("fair")
    with (folder / "bundle.tar").open("wb") as out:
        entries = covering(0, None, signed.size)
        write_bundle(out, ledgers, "fair", signed, state, entries)
    world.close()
    return Published(folder, signed.size, signed.number + 1, len(set(chosen)))


@pytest.fixture
def forged(published: Published, tmp_path: Path) -> Published:
    """A copy to be tampered with."""
    shutil.copytree(published.folder, tmp_path / "forged")
    return Published(tmp_path / "forged", published.size, published.checkpoints, published.receipts)


@pytest.fixture(scope="session")
def go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program, built with the golang.org/x/mod of the system."""
    compiler = shutil.which("go")
    if compiler is None:
        pytest.skip("Go is not installed (Debian: golang-go)")
    if not Path(GOPATH, "src/golang.org/x/mod/sumdb").is_dir():
        pytest.skip("golang.org/x/mod is not installed (Debian: golang-golang-x-mod-dev)")
    binary = tmp_path_factory.mktemp("go") / "verify"
    cache = {"GOPATH": GOPATH, "GO111MODULE": "off", "GOCACHE": str(binary.parent / "cache")}
    command = [compiler, "build", "-o", str(binary), "."]
    subprocess.run(command, cwd=HERE / "go", env=os.environ | cache, check=True)
    return binary


@pytest.fixture(scope="session")
def foreign_python() -> Path:
    """The interpreter that has the programs of ``requirements.txt``."""
    if not PYTHON.exists():
        pytest.skip(".venv-foreign is not made (make test-foreign makes it)")
    return PYTHON
