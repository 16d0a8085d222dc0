"""Which command line starts, and what it loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accountant.__main__ import OF_A_SERVICE, OF_BOTH, asks_a_service
from accountant.client.command_line.parsers import BESIDE_THE_DATABASE, COMMANDS
from accountant.client.environment import VARIABLES

if TYPE_CHECKING:
    from conftest import Shell

ROOT = Path(__file__).resolve().parents[3]
SERVICE = {"typer", "rich", "pydantic", "numpy", "sqlalchemy", "fastapi", "starlette",
           "structlog", "orjson", "msgspec", "cryptography", "flint", "click"}  # fmt: skip
LOADED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv[0] = "accountant"
import accountant.__main__
accountant.__main__.main()
"""
REQUEST = ("--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=10",
           "--purpose", "test")  # fmt: skip


@pytest.mark.parametrize("words", [("preview", *REQUEST), ("run", *REQUEST, "--", "true"),
                                   ("accounts",), ("verify", "nothing.tar"), ("grants", "--help")],
                         ids=lambda words: words[0])  # fmt: skip
def test_a_command_loads_nothing_of_the_service(shell: Shell, words: tuple[str, ...]) -> None:
    """It needs httpx2 and the standard library: no package of the service, and no other room."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        env=shell.variables, cwd=shell.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    loaded = set(done.stderr.split("\n")[-2].split())
    assert "argparse" in loaded
    assert not loaded & SERVICE
    rooms = {name.split(".")[1] for name in loaded if name.startswith("accountant.")}
    assert rooms <= {"client", "__main__"}


def test_a_preview_starts_at_once(shell: Shell) -> None:
    """A whole preview, process and request, takes less than 0.3 s of this machine's time."""
    took = []
    for _ in range(5):
        began = time.monotonic()
        before = os.times()
        shell("preview", *REQUEST)
        after = os.times()
        took.append(min(time.monotonic() - began,
                        after.children_user + after.children_system
                        - before.children_user - before.children_system))  # fmt: skip
    assert min(took) < 0.3


def test_both_lists_name_the_same_commands() -> None:
    """What the program hands to which command line is what each has."""
    assert set(COMMANDS) == OF_A_SERVICE | OF_BOTH
    assert BESIDE_THE_DATABASE == OF_BOTH


@pytest.mark.parametrize(
    ("words", "url", "asks"),
    [
        (("preview", "x"), "http://x", True),
        (("preview", "x"), "", False),
        (("preview", "x", "--local"), "http://x", False),
        (("--home", "x", "preview", "x"), "http://x", False),
        (("run", "--", "x", "--local"), "http://x", True),
        (("run",), "", True),
        (("compose", "x"), "http://x", False),
        ((), "http://x", False),
        (("--help",), "http://x", False),
    ],
)
def test_which_command_line_is_meant(words: tuple[str, ...], url: str, *, asks: bool) -> None:
    """A command of both asks the service where there is an address, unless it says --local."""
    assert asks_a_service(words, {"ACCOUNTANT_URL": url}) is asks


def test_local_reads_the_database(shell: Shell) -> None:
    """With --local the address does not count."""
    said = shell("accounts", "-p", "people", "--local", code=2)
    assert "there is no database at" in said.err
    assert "event" in shell("accounts").text


TERMS = "--privacy-unit", "person", "--neighbouring", "replace_one", "--membership", "public"


def test_a_command_says_what_is_not_set(shell: Shell) -> None:
    """Each variable that is missing is named, with what it is."""
    for command in OF_A_SERVICE - {"deliver"}:
        words = {"commit": ("g1",), "release": ("g1", "--reason", "x"), "grants": ()}
        words |= {"populations": ("create", *TERMS), "republish": ("g1", "-", "--dataset", "d")}
        bare = shell.with_(**dict.fromkeys(VARIABLES, ""))
        more = ("--", "true") if command == "run" else ()
        told = bare.wrong(command, *words.get(command, REQUEST), *more)
        assert "[not-configured]" in told
        for name in ("ACCOUNTANT_URL", "ACCOUNTANT_KEY", "ACCOUNTANT_POPULATION"):
            assert name in told, command
    told = shell.with_(ACCOUNTANT_POPULATION="").wrong("grants")
    assert "ACCOUNTANT_URL" not in told
    assert "ACCOUNTANT_POPULATION" in told
    assert shell.with_(ACCOUNTANT_POPULATION="").json("grants", "-p", shell.population) == []


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n\n"], ids=repr)
def test_the_key_may_be_in_a_file(shell: Shell, end: str) -> None:
    """Line ends around it are no part of it."""
    file = shell.file("key", shell.served.keys["pipeline"] + end)
    assert shell.with_(ACCOUNTANT_KEY="", ACCOUNTANT_KEY_FILE=file).json("grants") == []
    assert shell.with_(ACCOUNTANT_KEY=shell.served.keys["pipeline"] + end).json("grants") == []


def test_a_key_that_is_none_is_not_shown(shell: Shell) -> None:
    """Nor is a file that is missing, empty or of two lines more than an error."""
    bare = shell.with_(ACCOUNTANT_KEY="")
    secret = "acct_one\nacct_two"
    for file in ("missing", shell.file("empty", ""), shell.file("two", secret), "/dev/zero"):
        told = bare.with_(ACCOUNTANT_KEY_FILE=file).wrong("grants")
        assert "acct_" not in told
    for key in ("acct_se cret", "acct_secrét", "x" * 5000):
        told = shell.with_(ACCOUNTANT_KEY=key).wrong("grants")
        assert key not in told
    told = shell.with_(ACCOUNTANT_KEY="acct_unknown").wrong("grants")
    assert "[unauthenticated]" in told


@pytest.mark.parametrize(
    "words",
    [
        ("grant",),
        ("grant", "--dataset", "visits"),
        ("grant", "--mechanism", "laplace"),
        ("grant", *REQUEST, "request.json"),
        ("grant", *REQUEST, "--ttl", "soon"),
        ("grant", *REQUEST, "--idempotency-key", "ü"),
        ("grant", *REQUEST, "--unknown", "x"),
        ("commit",),
        ("commit", "../admin"),
        ("commit", "7"),
        ("release", "g1"),
        ("explain", "x7"),
        ("receipt",),
        ("run", *REQUEST),
        ("run", *REQUEST, "--"),
        ("run", *REQUEST, "true"),
        ("run", *REQUEST, "--nothing-ran", "0", "--", "true"),
        ("run", *REQUEST, "--nothing-ran", "256", "--", "true"),
        ("run", "--request", "-", "--", "true"),
        ("deliver",),
        ("report", "--out", "x.pdf"),
        ("preview", *REQUEST, "--client", "other"),
        ("verify", "a.tar", "b.tar"),
        ("verify", "missing.tar"),
        ("export", "missing/x.tar"),
        ("export", "x.tar", "--tiles"),
        ("grants", "-p", "no/such"),
    ],
    ids=" ".join,
)
def test_misuse_is_one_line_and_changes_nothing(shell: Shell, words: tuple[str, ...]) -> None:
    """The exit code is 2, and nothing was asked."""
    shell.wrong(*words)
    assert shell.kinds() == []


def test_who_does_not_read_on_hears_no_complaint(shell: Shell) -> None:
    """A reader that has seen enough ends the command quietly; a full disk does not."""
    reader, writer = os.pipe()
    os.close(reader)
    assert shell.ended(shell.start("accounts", stdout=writer), 2).err == ""
    os.close(writer)
    with Path("/dev/full").open("wb") as full:
        said = shell.ended(shell.start("accounts", stdout=full), 2)
    assert said.err.endswith("No space left on device [io-error]\n")


def test_closed_outputs_are_no_trap(shell: Shell) -> None:
    """Without standard error it is silent; without standard output it says so."""
    process = shell.start("run", *REQUEST, "--", "sh", "-c", "exit 9",
                          stderr=None, preexec_fn=lambda: os.close(2))  # fmt: skip
    assert process.communicate()[0] == b""
    assert process.returncode == 9
    assert shell.kinds() == ["reserved", "committed"]
    said = shell.ended(shell.start("accounts", stdout=None, preexec_fn=lambda: os.close(1)), 2)
    assert said.err == "accountant: standard output is closed [io-error]\n"


def test_it_runs_where_the_service_is_not_installed(shell: Shell, tmp_path: Path) -> None:
    """With httpx2 and what the client's distribution has, it asks, says what it cannot, and lists
    its own commands.
    """
    place = tmp_path / "alone"
    shutil.copytree(ROOT / "packaging" / "client" / "accountant", place / "accountant")
    for name in sorted(SERVICE):
        (place / f"{name}.py").write_text(f"raise ModuleNotFoundError('no', name={name!r})\n")
    alone = shell.with_(PYTHONPATH=str(place))
    assert alone.json("grants") == []
    assert "run" in alone("--help").text
    for words in (("serve",), ("accounts", "--local")):
        assert "is not installed here" in alone.wrong(*words)
    assert "[not-configured]" in alone.with_(ACCOUNTANT_URL="").wrong("accounts")
