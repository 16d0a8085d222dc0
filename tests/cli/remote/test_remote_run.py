"""``accountant run``: a command under a grant, whatever becomes of it, of us and of the service."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from accountant.client import Spool

if TYPE_CHECKING:
    from conftest import Network, Shell

COUNT = "laplace:sensitivity=1,scale=4"
REQUEST = ("--dataset", "visits", "--mechanism", COUNT, "--purpose", "test")
COMMITTED = ["reserved", "committed"]
RELEASED = ["reserved", "released"]
WAIT = """
import os, pathlib, signal, sys, time
{before}
pathlib.Path("unfinished").write_text(str(os.getpid()))
pathlib.Path("unfinished").rename("started")
time.sleep(60)
"""


def python(code: str) -> tuple[str, str, str]:
    """A child that runs some Python."""
    return sys.executable, "-c", code


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    """Wait."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waiting(shell: Shell, *options: str, before: str = "", **more: Any) -> subprocess.Popen[bytes]:
    """A run whose child has started, and sleeps."""
    child = python(WAIT.format(before=before))
    process = shell.start("run", *REQUEST, *options, "--", *child, **more)
    until((shell.folder / "started").exists)
    return process


def test_a_command_runs_under_its_grant(shell: Shell) -> None:
    """It has our input and outputs, its exit code is ours, and the grant is committed."""
    code = "import sys; print('out', sys.stdin.read()); print('err', file=sys.stderr)"
    said = shell("run", *REQUEST, "--", *python(code), stdin=b"in")
    assert said.text == "out in\n"
    assert said.err.startswith("err\n")
    assert said.err.endswith("accountant: g4: committed, epsilon 0.25, delta 0 charged\n")
    assert shell.kinds() == COMMITTED
    assert shell.spent() == ("0.25", "0")


def test_a_command_that_fails_is_charged(shell: Shell) -> None:
    """Noise may have been drawn before it failed, be it by a code or by a signal."""
    shell("run", *REQUEST, "--", *python("raise SystemExit(7)"), code=7)
    shell("run", *REQUEST, "--", *python("import os; os.kill(os.getpid(), 9)"), code=128 + 9)
    shell("run", *REQUEST, "--", "/bin/sh", "-c", "exit 255", code=255)
    assert shell.kinds() == COMMITTED * 3
    assert shell.spent() == ("0.75", "0")


def test_a_command_that_attests_that_nothing_ran_is_not_charged(shell: Shell) -> None:
    """By a code that was agreed on, and by its own exit only: a signal attests nothing."""
    agreed = ("--nothing-ran", "75", "--nothing-ran", "137")
    for code in (75, 137):
        shell("run", *REQUEST, *agreed, "--", *python(f"raise SystemExit({code})"), code=code)
    assert shell.kinds() == RELEASED * 2
    assert shell.events()[1]["command"]["reason"] != ""
    shell("run", *REQUEST, *agreed, "--", *python("import os; os.kill(os.getpid(), 9)"), code=137)
    shell("run", *REQUEST, *agreed, "--", *python("raise SystemExit(76)"), code=76)
    shell("run", *REQUEST, *agreed, "--", *python(""))
    assert shell.kinds()[4:] == COMMITTED * 3


def test_a_command_that_cannot_be_started_is_not_charged(shell: Shell) -> None:
    """No such program, one that may not run, one that is none: nothing ran."""
    empty = shell.file("empty", "\x7fELF")
    missing = shell.file("script", "#!/nowhere/interpreter\n")
    for file in (empty, missing):
        Path(file).chmod(0o700)
    plain = shell.file("plain", "")
    programs = {"no-such-program-ü\udcff": 127, plain: 126, empty: 126, missing: 127}
    for program, code in programs.items():
        said = shell("run", *REQUEST, "--", program, code=code)
        assert "[not-started]" in said.err
        assert "nothing charged" in said.err
    assert shell.kinds() == RELEASED * len(programs)
    assert shell.spent() == ("0", "0")


def test_what_is_refused_is_not_started(shell: Shell) -> None:
    """The exit code is 1, the reason one line, and the refusal is in the ledger."""
    dear = ("--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=0.5")
    child = python("open('ran', 'w')")
    told = shell.wrong("run", *dear, "--purpose", "test", "--", *child, code=1)
    assert "[budget-exceeded]" in told
    assert "is more than the limit 1" in told
    for wrong in (shell.with_("auditor"), shell.with_(ACCOUNTANT_KEY="acct_other")):
        wrong.wrong("run", *REQUEST, "--", *child)
    shell.with_(ACCOUNTANT_URL="http://127.0.0.1:9").wrong("run", *REQUEST, "--", *child)
    assert not (shell.folder / "ran").exists()
    assert shell.kinds() == ["refused"]


def test_the_child_has_its_grant_and_no_key_of_ours(shell: Shell) -> None:
    """A key from a file is not handed on; one in the environment is there anyway."""
    names = ["GRANT", "URL", "POPULATION", "KEY", "KEY_FILE"]
    code = (
        f"import os, json; print(json.dumps([os.environ.get('ACCOUNTANT_' + n) for n in {names}]))"
    )
    key, url = shell.served.keys["pipeline"], shell.served.url
    file = shell.file("key", key + "\n")
    hidden = shell.with_(ACCOUNTANT_KEY="", ACCOUNTANT_KEY_FILE=file, ACCOUNTANT_POPULATION="")
    said = hidden("run", *REQUEST, "-p", shell.population, "--", *python(code))
    assert json.loads(said.out) == ["g4", url, shell.population, None, file]
    process = shell.start("run", *REQUEST, "--", *python(code))
    assert json.loads(process.communicate()[0])[3] == key


SETTLES = """
import os
from accountant.client import Client, laplace
with Client.from_env() as ledger:
    {what}
raise SystemExit({code})
"""


@pytest.mark.parametrize(
    ("what", "kind", "code"),
    [
        ("ledger.commit(os.environ['ACCOUNTANT_GRANT'], [laplace(1, 4)])", "committed", 0),
        ("ledger.commit(os.environ['ACCOUNTANT_GRANT'])", "committed", 75),
        ("ledger.release(os.environ['ACCOUNTANT_GRANT'], 'no rows')", "released", 0),
        ("ledger.release(os.environ['ACCOUNTANT_GRANT'], 'no rows')", "released", 1),
    ],
)
def test_what_the_command_settles_itself_stands(
    shell: Shell, what: str, kind: str, code: int
) -> None:
    """It knows best what ran; its exit code then changes nothing."""
    child = python(SETTLES.format(what=what, code=code))
    request = ("--dataset", "visits", "--mechanism", f"{COUNT},count=2", "--purpose", "test")
    said = shell("run", *request, "--nothing-ran", "75", "--", *child, code=code)
    assert said.err == "accountant: g4: settled by the command itself\n"
    assert shell.kinds() == ["reserved", kind]


def test_a_grant_that_expires_meanwhile_is_charged(shell: Shell) -> None:
    """A command may outlast its grant: that is charged in full, and the run still succeeds."""
    child = python("import time; time.sleep(1.5)")
    said = shell("run", *REQUEST, "--ttl", "1", "--", *child)
    assert "expired" in said.err
    failing = python("import time; time.sleep(1.5); raise SystemExit(75)")
    said = shell("run", *REQUEST, "--ttl", "1", "--nothing-ran", "75", "--", *failing, code=75)
    assert "charged in full" in said.err
    spent, reserved = map(float, shell.spent())
    assert spent + reserved == 0.5


def test_a_child_that_forks_is_charged_when_it_ends(shell: Shell) -> None:
    """What it leaves running in the background does not keep us, though it holds our outputs."""
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(30)
    os._exit(0)
print("parent")
"""
    began = time.monotonic()
    process = shell.start("run", *REQUEST, "--", *python(code), stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"parent\n"
    assert process.wait(10) == 0
    assert time.monotonic() - began < 20
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()
    assert shell.kinds() == COMMITTED


def killed(shell: Shell, process: subprocess.Popen[bytes]) -> None:
    """Kill the wrapper, and only then its child, which goes on without it."""
    process.kill()
    process.wait()
    os.kill(int((shell.folder / "started").read_text()), signal.SIGKILL)
    process.communicate()


# Signals


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_signals_are_passed_on(shell: Shell, name: str) -> None:
    """The child ends as it does on that signal, we end as it did, and what ran is charged."""
    handles = f"signal.signal(signal.{name}, lambda *_: sys.exit(42))"
    process = waiting(shell, "--nothing-ran", "43", before=handles)
    process.send_signal(getattr(signal, name))
    shell.ended(process, 42)
    assert shell.kinds() == COMMITTED


def test_a_child_that_a_signal_kills_is_charged(shell: Shell) -> None:
    """As shells have it, the exit code is 128 and the signal."""
    process = waiting(shell)
    process.terminate()
    shell.ended(process, 128 + signal.SIGTERM)
    assert shell.kinds() == COMMITTED


def test_a_child_may_take_its_time(shell: Shell) -> None:
    """Signals do not end us before the child: it is asked twice, and settles when it ends."""
    code = """
import pathlib, signal, time
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
pathlib.Path("started").write_text("")
while len(came) < 2:
    time.sleep(0.01)
raise SystemExit(5)
"""
    process = shell.start("run", *REQUEST, "--", *python(code))
    until((shell.folder / "started").exists)
    for _ in range(2):
        process.terminate()
        time.sleep(0.3)
    shell.ended(process, 5)
    assert shell.kinds() == COMMITTED


def test_ctrl_c_at_a_terminal_reaches_the_child_once(shell: Shell) -> None:
    """The terminal has sent it to both; a second one would make many programs give up at once."""
    code = """
import pathlib, signal, time
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
pathlib.Path("started").write_text("")
while not came:
    time.sleep(0.01)
time.sleep(0.5)
pathlib.Path("came").write_text(str(len(came)))
"""
    program = [sys.executable, "-m", "accountant", "run", *REQUEST, "--", *python(code)]
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover (another process)
        os.chdir(shell.folder)
        os.execve(program[0], program, shell.variables)  # noqa: S606
    until((shell.folder / "started").exists)
    os.write(terminal, b"\x03")
    until((shell.folder / "came").exists)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)
    assert (shell.folder / "came").read_text() == "1"
    assert shell.kinds() == COMMITTED


def test_who_is_stopped_before_it_begins_is_not_charged(shell: Shell, network: Network) -> None:
    """A signal while the budget is reserved starts nothing, and gives the budget back."""
    network.plan, network.wait = ["busy"], "2"
    process = shell.with_(ACCOUNTANT_URL=network.url).start(
        "run", *REQUEST, "--", *python("open('ran', 'w')")
    )
    until(lambda: bool(network.keys))
    process.terminate()
    shell.ended(process, 128 + signal.SIGTERM)
    assert not (shell.folder / "ran").exists()
    assert shell.kinds() == RELEASED


def test_a_second_signal_ends_at_once(shell: Shell, network: Network) -> None:
    """Who cannot wait for the service is let go; what was reserved then expires."""
    network.plan, network.wait = ["busy"] * 9, "20"
    process = shell.with_(ACCOUNTANT_URL=network.url).start("run", *REQUEST, "--", "true")
    until(lambda: bool(network.keys))
    began = time.monotonic()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    shell.ended(process, -signal.SIGINT)
    assert time.monotonic() - began < 10


def test_ignored_signals_stay_ignored(shell: Shell) -> None:
    """Under nohup the child goes on when the terminal closes; ignored children have exit codes."""

    def before() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    child = "import os, signal; os.kill(os.getppid(), 1); os.kill(os.getpid(), 1); os._exit(9)"
    process = shell.start("run", *REQUEST, "--", *python(child), preexec_fn=before)
    shell.ended(process, 9)
    assert shell.kinds() == COMMITTED


def test_a_wrapper_that_is_killed_leaves_the_grant_to_expire(shell: Shell) -> None:
    """kill -9 settles nothing: the child goes on, the grant expires, and is charged in full."""
    process = waiting(shell, "--ttl", "1", "--idempotency-key", "night-1")
    killed(shell, process)
    assert shell.kinds() == ["reserved"]
    assert shell.spent() == ("0", "0.25")
    time.sleep(1.2)
    told = shell.wrong("run", *REQUEST, "--ttl", "1", "--idempotency-key", "night-1", "--",
                       *python("open('again', 'w')"), code=1)  # fmt: skip
    assert "it has expired and is charged in full" in told
    assert not (shell.folder / "again").exists()


# One piece of work, started more than once


def test_a_run_is_not_repeated_under_its_key(shell: Shell) -> None:
    """The answer says how the earlier run ended, and nothing is started or charged again."""
    child = python("open('ran', 'a').write('x')")
    key = ("--idempotency-key", "dbt-2026-11-26")
    shell("run", *REQUEST, *key, "--", *child)
    told = shell.wrong("run", *REQUEST, *key, "--", *child, code=1)
    assert "[may-have-run]" in told
    assert "it is committed" in told
    assert (shell.folder / "ran").read_text() == "x"
    assert shell.kinds() == COMMITTED
    other = ("--dataset", "visits", "--mechanism", COUNT + ",count=2", "--purpose", "test")
    assert "[idempotency-key-reused]" in shell.wrong("run", *other, *key, "--", *child)


def test_a_run_that_was_killed_is_told_how_to_settle(shell: Shell) -> None:
    """While its grant is open, somebody who knows may commit or release it."""
    key = ("--idempotency-key", "k")
    killed(shell, waiting(shell, *key))
    told = shell.wrong("run", *REQUEST, *key, "--", "true", code=1)
    assert "accountant release g4 --reason" in told
    shell("release", "g4", "--reason", "the machine lost power before it began")
    assert "it is released" in shell.wrong("run", *REQUEST, *key, "--", "true", code=1)


def test_of_two_runs_at_once_one_is_started(shell: Shell) -> None:
    """Whoever asks second under the same key starts nothing."""
    child = python("open('ran', 'a').write('x'); import time; time.sleep(1)")
    for turn in range(3):
        words = ("run", *REQUEST, "--idempotency-key", f"at-once-{turn}", "--", *child)
        both = [shell.start(*words) for _ in range(2)]
        for process in both:
            process.communicate(timeout=60)
        assert sorted(process.returncode for process in both) == [0, 1]
    assert (shell.folder / "ran").read_text() == "xxx"
    assert shell.kinds() == COMMITTED * 3


# A service that is away


def test_a_commit_that_is_lost_is_found_again(shell: Shell, network: Network) -> None:
    """An answer that did not come is asked for under the same key, and charged once."""
    network.plan = ["lose", "cut", "busy", "pass", "lose", "busy", "cut"]
    shell.with_(ACCOUNTANT_URL=network.url)("run", *REQUEST, "--", "true")
    assert shell.kinds() == COMMITTED
    assert shell.spent() == ("0.25", "0")


def test_a_commit_that_cannot_be_delivered_is_said(shell: Shell, network: Network) -> None:
    """Without a spool a success becomes 2, another exit code stays; the grant will expire."""
    away = shell.with_(ACCOUNTANT_URL=network.url)
    network.plan = ["pass", *["cut"] * 5]
    told = away.wrong("run", *REQUEST, "--", "true")
    assert "g4 is open until" in told
    assert "[no-answer]" in told
    network.plan = ["pass", *["cut"] * 5]
    away.wrong("run", *REQUEST, "--", "sh", "-c", "exit 9", code=9)
    assert shell.kinds() == ["reserved"] * 2
    assert shell.spent() == ("0", "0.5")


@pytest.mark.parametrize("treatment", ["page", "portal", "other", "forbidden"])
def test_a_strange_answer_to_a_commit_does_not_lose_the_exit_code(
    shell: Shell, network: Network, treatment: str
) -> None:
    """Whatever stands between us and the service says: it is one line, and the code is kept."""
    network.plan = ["pass", *[treatment] * 5]
    away = shell.with_(ACCOUNTANT_URL=network.url)
    away.wrong("run", *REQUEST, "--", "sh", "-c", "exit 9", code=9)
    assert shell.kinds() == ["reserved"]


@pytest.mark.parametrize("treatment", ["page", "portal", "other", "forbidden"])
def test_a_strange_answer_to_a_request_starts_nothing(
    shell: Shell, network: Network, treatment: str
) -> None:
    """What is no grant is none."""
    network.plan = [treatment] * 5
    away = shell.with_(ACCOUNTANT_URL=network.url)
    away.wrong("run", *REQUEST, "--", *python("open('ran', 'w')"))
    assert not (shell.folder / "ran").exists()


def test_with_a_spool_the_commit_waits(shell: Shell, network: Network) -> None:
    """The run succeeds, and the report is delivered later, once."""
    spool = shell.folder / "spool"
    away = shell.with_(ACCOUNTANT_URL=network.url, ACCOUNTANT_SPOOL=str(spool))
    network.plan = ["pass", *["cut"] * 5]
    said = away("run", *REQUEST, "--", "true")
    assert "waits in the spool" in said.err
    network.plan = ["pass", *["lose"] * 5]
    away("run", *REQUEST, "--nothing-ran", "75", "--", "sh", "-c", "exit 75", code=75)
    assert len(Spool(spool)) == 2
    assert away("deliver").text == "delivered: 2, rejected: 0, still waiting: 0\n"
    assert sorted(shell.kinds()) == ["committed", "released", "reserved", "reserved"]
    assert shell.spent() == ("0.25", "0")


def test_killed_while_it_commits_with_a_spool_it_is_delivered(
    shell: Shell, network: Network
) -> None:
    """The report is on disk before it is sent: kill -9 there loses nothing."""
    spool = shell.folder / "spool"
    away = shell.with_(ACCOUNTANT_URL=network.url, ACCOUNTANT_SPOOL=str(spool))
    network.plan, network.wait = ["pass", "busy"], "20"
    process = away.start("run", *REQUEST, "--", "true")
    until(lambda: len(network.keys) == 2)
    process.kill()
    process.communicate()
    assert shell.kinds() == ["reserved"]
    away("deliver")
    assert shell.kinds() == COMMITTED


def test_a_spool_that_cannot_be_written_starts_nothing(shell: Shell) -> None:
    """A folder that is a file is said before anything is spent."""
    file = shell.file("spool", "")
    told = shell.with_(ACCOUNTANT_SPOOL=file).wrong("run", *REQUEST, "--", "true")
    assert "[io-error]" in told
    assert shell.kinds() == []


def test_a_request_may_be_in_a_file(shell: Shell) -> None:
    """And the command has its own standard input."""
    body = {"dataset": "visits", "purpose": "test", "ttl_seconds": 60,
            "mechanisms": [{"kind": "laplace", "sensitivity": 1, "scale": 4}]}  # fmt: skip
    file = shell.file("request.json", body)
    assert shell("run", "--request", file, "--", "cat", stdin="für\n".encode()).text == "für\n"
    assert shell.events()[0]["command"]["ttl_seconds"] == 60


def test_a_command_may_have_options_like_ours(shell: Shell) -> None:
    """What stands behind the first -- is the command's."""
    said = shell("run", *REQUEST, "--", "echo", "--help", "--", "--local", "-p", "x")
    assert said.text == "--help -- --local -p x\n"
    assert Path(shell.folder).exists()
