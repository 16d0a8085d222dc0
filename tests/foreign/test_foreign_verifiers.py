"""Programs that nobody here wrote verify a real ledger, and notice when it was tampered with."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from accountant import verify_minimal
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.notes import parse

from conftest import HERE, Ledger, Published  # isort: skip

PROGRAMS = ("sigstore_checks", "metamorphic_checks", "aics_checks", "scales_checks")
WITNESS = "witness.example/w1"


def run(*command: str | Path) -> Any:
    """The finished process."""
    command = tuple(map(str, command))
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def flip(path: Path, place: int) -> None:
    """Changes one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(bytes(data))


def test_go_verifies_everything(go: Path, published: Published) -> None:
    """Go's checksum database code opens every checkpoint, and proves every entry, from our tiles;
    it builds the same tree from the entries.
    """
    done = run(go, published.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == (
        f"{published.size} entries, {published.checkpoints} checkpoints, "
        f"{published.receipts} receipts\n"
    )


TAMPERED = ["log/tile/0/003", "log/tile/1/000.p/11", "log/tile/entries/007", "log/checkpoint"]
TAMPERED += ["checkpoints/000004", "receipts/970.tlog-proof", "receipts/970.json", "keys"]


@pytest.mark.parametrize("path", TAMPERED)
def test_go_notices_any_change(go: Path, forged: Published, path: str) -> None:
    """One changed bit anywhere in what is published, and Go's code refuses it."""
    flip(forged.folder / path, 133)
    done = run(go, forged.folder)
    assert done.returncode != 0, done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_python_and_rust_verify_checkpoints_and_receipts(
    foreign_python: Path, published: Published, program: str
) -> None:
    """sigstore, metamorphic-log, aics-tlog and tlog-scales agree with every checkpoint and
    receipt, and those that read tiles with these too.
    """
    done = run(foreign_python, HERE / "programs" / f"{program}.py", published.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == (f"{published.checkpoints} checkpoints, {published.receipts} receipts\n")


@pytest.mark.parametrize("path", ["checkpoints/000004", "receipts/970.json"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_python_and_rust_notice_changes(
    foreign_python: Path, forged: Published, program: str, path: str
) -> None:
    """A checkpoint or an entry that was changed is refused by each of them."""
    flip(forged.folder / path, 40)
    assert run(foreign_python, HERE / "programs" / f"{program}.py", forged.folder).returncode != 0


def test_our_verifiers_find_the_same_ledger_sound(published: Published) -> None:
    """What the programs of others verify is what the verifier for auditors has no finding in."""
    with (published.folder / "bundle.tar").open("rb") as bundle:
        found = verify_minimal.verify(bundle, (published.folder / "keys").read_text().split()[0])
    assert found["findings"] == []
    assert found["events"] == published.size


# -- a witness of somebody else's ------------------------------------------------------------


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


class Witness:
    """aics-witness on a port of its own."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.command = [str(python), "-m", "aics_witness"]
        self.config = ["--config", str(folder / "witness.json")]
        self.port = free_port()
        made = run(*self.command, "init", *self.config, "--name", WITNESS)
        assert made.returncode == 0, made.stdout + made.stderr
        self.key = next(word for word in made.stdout.split() if word.startswith(f"{WITNESS}+"))
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def trust(self, origin: str, key: str) -> None:
        """Adds a log, or a key of one."""
        added = run(*self.command, "add-log", *self.config, "--origin", origin, "--vkey", key)
        assert added.returncode == 0, added.stdout + added.stderr
        if self.process:
            self.process.send_signal(signal.SIGHUP)
            time.sleep(0.5)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Runs it."""
        command = [*self.command, "serve", *self.config, "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ.copy())
        try:
            for _ in range(100):
                with socket.socket() as trying:
                    if trying.connect_ex(("127.0.0.1", self.port)) == 0:
                        break
                time.sleep(0.1)
            yield
        finally:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def status(self) -> dict[str, Any]:
        """What it knows of the one log."""
        shown = run(*self.command, "status", *self.config, "--json")
        assert shown.returncode == 0, shown.stdout + shown.stderr
        status: dict[str, Any] = json.loads(shown.stdout)["logs"][0]
        return status


@pytest.fixture
def witness(foreign_python: Path, tmp_path: Path) -> Witness:
    """A fresh witness that trusts no log yet."""
    if run(foreign_python, "-c", "import aics_witness").returncode != 0:
        pytest.skip("aics-witness is not installed in .venv-foreign")
    return Witness(foreign_python, tmp_path)


@pytest.fixture
def watched(open_ledger: Callable[..., Ledger], witness: Witness) -> Iterator[Ledger]:
    """A ledger whose policy requires the witness."""
    ledger = open_ledger(
        "publication:\n  required: 1\n"
        f'  witnesses:\n    - {{url: "{witness.url}", key: "{witness.key}"}}\n'
    )
    ledger.publisher.sign("fair")
    state = ledger.world.service.state("fair")
    key = state.custody.keys[-1].text
    witness.trust("example.org/fair", key)
    with witness.serving():
        yield ledger
    ledger.world.close()


def test_a_witness_cosigns_a_growing_ledger(watched: Ledger, witness: Witness) -> None:
    """A witness that we did not write takes our consistency proofs, over a rotated key too, and
    what it has cosigned is published.
    """
    publisher = watched.publisher
    for number in range(6):
        watched.spend(2 ** (number + 2))
        if number == 3:
            new = publisher.rotate("fair", "operator:test")
            witness.trust("example.org/fair", str(new))
        signed = publisher.publish("fair")
        assert signed is not None
        assert [name for name, _ in signed.cosignatures] == [WITNESS]
        assert signed == publisher.published("fair")
    head = Checkpoint.from_text(parse(signed.note).text)
    assert witness.status()["size"] == head.size == signed.size


def test_a_witness_that_is_away_holds_publication_up(watched: Ledger, witness: Witness) -> None:
    """While it does not answer nothing more is published; when it is back, the newest head is."""
    published = watched.publisher.publish("fair")
    assert published is not None
    assert witness.process is not None
    witness.process.terminate()
    witness.process.wait(10)
    watched.spend(3)
    assert watched.publisher.publish("fair") is None
    assert watched.publisher.published("fair") == published
    with witness.serving():
        later = watched.publisher.publish("fair")
    assert later is not None
    assert later.size > published.size
    witness.process = subprocess.Popen(["true"])  # for the fixture to end
