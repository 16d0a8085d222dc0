"""What ran while the service was away: kept on disk, delivered, and booked exactly once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from forked import ran

from accountant.client import Client, Failed, Spool, Unreachable, calls, laplace

if TYPE_CHECKING:
    from conftest import Network, Served

COUNT = laplace(1, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where reports wait."""
    return tmp_path / "spool"


def spooling(served: Served, population: str, folder: Path, **options: Any) -> Client:
    """A client with a spool that tries once."""
    return served.client(population, spool=folder, **({"attempts": 1} | options))


def spent(served: Served, population: str) -> str:
    """What the lifetime rule counts."""
    with served.client(population, "auditor") as client:
        return str(client.accounts()["lifetime"].total.spent)


def test_a_report_waits_while_the_service_is_away(
    served: Served, network: Network, folder: Path
) -> None:
    """A record and the end of a grant succeed; both are delivered later, in order, once."""
    population = served.population()
    with spooling(served, population, folder, url=network.url) as client:
        grant = client.grant("visits", [COUNT], purpose="test")
        network.plan = ["cut", "cut"]
        with grant:
            pass
        assert grant.settled
        assert client.record("visits", [COUNT], purpose="test") is None
        assert len(Spool(folder)) == 2
        assert client.deliver() == (2, [], None)
        assert (len(Spool(folder)), client.deliver().sent) == (0, 0)
    assert spent(served, population) == "0.5"


def test_an_answer_that_was_lost_is_booked_once(
    served: Served, network: Network, folder: Path
) -> None:
    """The service had the report, the client not its answer: delivering it again adds nothing."""
    population = served.population()
    with spooling(served, population, folder, url=network.url) as client:
        network.plan = ["lose"]
        assert client.record("visits", [COUNT], purpose="test") is None
        assert client.deliver().sent == 1
    assert spent(served, population) == "0.25"


def test_what_the_service_has_at_once_is_not_kept(served: Served, folder: Path) -> None:
    """A delivered report leaves no file."""
    with spooling(served, served.population(), folder) as client:
        assert client.record("visits", [COUNT], purpose="test") is not None
        assert list(folder.iterdir()) == []


def test_a_delivery_stops_where_the_service_is_away(
    served: Served, network: Network, folder: Path
) -> None:
    """What was not sent stays, and the outcome says why."""
    with spooling(served, served.population(), folder, url=network.url) as client:
        network.plan = ["cut"] * 4
        for _ in range(2):
            client.record("visits", [COUNT], purpose="test")
        sent, rejected, stopped = client.deliver()
        assert (sent, rejected) == (0, [])
        assert isinstance(stopped, Unreachable)
        assert len(Spool(folder)) == 2


def test_a_rejected_report_is_put_aside_with_its_reason(
    served: Served, network: Network, folder: Path
) -> None:
    """A report that can never be accepted does not stop those behind it, and is not lost."""
    population = served.population()
    with spooling(served, population, folder, url=network.url) as client:
        network.plan = ["cut", "cut"]
        client.record("nowhere", [COUNT], purpose="test")
        client.record("visits", [COUNT], purpose="test")
        sent, [aside], stopped = client.deliver()
        assert (sent, stopped) == (1, None)
        assert "unknown-dataset" in json.loads(aside.read_text())["rejected"]
        with pytest.raises(Failed, match="nowhere"):
            client.record("nowhere", [COUNT], purpose="test")
        assert len(Spool(folder)) == 0
    assert spent(served, population) == "0.25"


def test_each_population_delivers_its_own(served: Served, network: Network, folder: Path) -> None:
    """One folder may serve several populations: a client sends only what is about its own."""
    one, other = served.population(), served.population()
    with (
        spooling(served, one, folder, url=network.url) as first,
        spooling(served, other, folder) as second,
    ):
        network.plan = ["cut"]
        first.record("visits", [COUNT], purpose="test")
        assert second.deliver().sent == 0
        assert first.deliver().sent == 1


def test_no_key_is_written(served: Served, network: Network, folder: Path) -> None:
    """A report holds what ran, for the owner's eyes, and no API key."""
    with spooling(served, served.population(), folder, url=network.url) as client:
        network.plan = ["cut"]
        client.record("visits", [COUNT], purpose="test")
    [file] = folder.iterdir()
    assert served.keys["pipeline"] not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_a_full_disk_does_not_keep_a_report_from_the_service(
    served: Served, network: Network, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent nevertheless; if the service is away too, the error says both."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with spooling(served, served.population(), folder, url=network.url) as client:
        monkeypatch.setattr(os, "fsync", full)
        assert client.record("visits", [COUNT], purpose="test") is not None
        network.plan = ["cut"]
        with pytest.raises(Unreachable) as raised:
            client.record("visits", [COUNT], purpose="test")
        assert "No space left" in raised.value.__notes__[0]


KILLED = """
import os, signal, sys
from accountant.client import Client, laplace
client = Client.from_env(attempts=1)
client.send = lambda call: os.kill(os.getpid(), signal.SIGKILL)
client.record("visits", [laplace(1, 4)], purpose="test")
"""


def test_a_killed_process_leaves_its_report(served: Served, folder: Path) -> None:
    """A report is on disk before it is sent: killed in between, the next process delivers it."""
    population = served.population()
    env = {"ACCOUNTANT_URL": served.url, "ACCOUNTANT_KEY": served.keys["pipeline"]}
    env |= {"ACCOUNTANT_POPULATION": population, "ACCOUNTANT_SPOOL": str(folder)}
    assert ran(KILLED, environment=os.environ | env).code == -signal.SIGKILL
    with Client.from_env(env=env) as client:
        assert client.deliver().sent == 1
    assert spent(served, population) == "0.25"


@pytest.mark.parametrize(
    "trouble", ["wrong key", "no right", "no population", "other place", "fault"]
)
def test_a_delivery_that_is_not_heard_rejects_nothing(
    served: Served, network: Network, folder: Path, trouble: str
) -> None:
    """Only the service judges a report. Where it does not get to it, the report stays."""
    population = served.population()
    with spooling(served, population, folder, url=network.url) as client:
        network.plan = ["cut"]
        client.record("visits", [COUNT], purpose="test")
        options: dict[str, Any] = {"spool": folder, "attempts": 1}
        other = {
            "wrong key": lambda: Client(served.url, "acct_wrong", population, **options),
            "no right": lambda: served.client(population, "auditor", **options),
            "no population": lambda: moved(served, population, folder, **options),
            "other place": lambda: served.client(
                population, url=f"{served.url}/elsewhere", **options
            ),
            "fault": lambda: served.client(population, url=network.url, **options),
        }[trouble]()
        with other:
            network.plan = ["fault"] if trouble == "fault" else []
            sent, rejected, stopped = other.deliver()
            assert (sent, rejected) == (0, [])
            assert stopped is not None
            assert len(Spool(folder)) == 1


def moved(served: Served, population: str, folder: Path, **options: Any) -> Client:
    """A client of a service that does not know the population of the reports."""
    [file] = folder.iterdir()
    file.write_text(file.read_text().replace(population, "nobody"))
    return served.client("nobody", **options)


def test_a_report_that_is_not_heard_stays(served: Served, folder: Path) -> None:
    """A key that was revoked is an error, and the report waits for the right one."""
    population = served.population()
    with (
        Client(served.url, "acct_wrong", population, spool=folder) as client,
        pytest.raises(Failed, match="unauthenticated") as raised,
    ):
        client.record("visits", [COUNT], purpose="test")
    assert "waits in the spool" in raised.value.__notes__[0]
    with spooling(served, population, folder) as client:
        assert client.deliver().sent == 1
    assert spent(served, population) == "0.25"


def test_a_damaged_report_does_not_stop_the_others(
    served: Served, network: Network, folder: Path
) -> None:
    """What cannot be read is put aside as it is; those behind it are delivered."""
    population = served.population()
    with spooling(served, population, folder, url=network.url) as client:
        for number, text in enumerate(["{", "[]", '{"population": 1}', "\0"]):
            (folder / f"0{number}-damaged.json").write_text(text)
        network.plan = ["cut"]
        client.record("visits", [COUNT], purpose="test")
        sent, rejected, stopped = client.deliver()
        assert (sent, len(rejected), stopped) == (1, 4, None)
        assert rejected[0].read_text() == "{"
        assert client.deliver() == (0, [], None)


def test_what_is_put_aside_is_for_the_owner(served: Served, network: Network, folder: Path) -> None:
    """A rejected report holds what a report holds: nobody else may read it."""
    with spooling(served, served.population(), folder, url=network.url) as client:
        network.plan = ["cut"]
        client.record("nowhere", [COUNT], justification="für mich")
        [aside] = client.deliver().rejected
    assert aside.stat().st_mode & 0o077 == 0
    assert json.loads(aside.read_text(encoding="utf-8"))["body"]["justification"] == "für mich"


def test_a_full_disk_is_left_no_fuller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that could not be written down leaves no file behind."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    spool = Spool(folder)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        spool.keep("people", calls.record("visits", [COUNT]))
    assert list(folder.iterdir()) == []


def test_unfinished_files_are_not_reports(folder: Path) -> None:
    """A file that was being written when the power went is no report."""
    spool = Spool(folder)
    (folder / "00000-abc.unfinished").write_text("{")
    assert list(spool.waiting()) == []
    file = spool.keep("people", calls.record("visits", [COUNT], idempotency_key="../../etc/x"))
    assert file.parent == folder
    [kept] = spool.waiting()
    assert kept.call.key == "../../etc/x"
