"""Evidence and reports through the client: whole or not at all."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accountant import verify_minimal
from accountant.auditing.verify import verify
from accountant.client import AsyncClient, Failed, Unreachable, laplace
from accountant.client.files import Bundle, Incomplete, Whole

if TYPE_CHECKING:
    from conftest import Network, Served


@pytest.fixture
def population(served: Served) -> str:
    """A population with a record."""
    name = served.population()
    with served.client(name) as client:
        client.record("visits", [laplace(1, 4)], purpose="Prüfung")
    return name


def sound(file: Path) -> bool:
    """Whether both verifiers have no finding."""
    data = file.read_bytes()
    found = verify_minimal.verify(io.BytesIO(data))["findings"]
    return not found and not verify([io.BytesIO(data)]).findings


def test_a_bundle_is_fetched_whole(served: Served, population: str, tmp_path: Path) -> None:
    """It verifies, replaces what stood there, and its manifest is returned; a part can be had."""
    file = tmp_path / "bundle.tar"
    file.write_text("old")
    with served.client(population, "auditor") as client:
        manifest = client.evidence(file)
        assert sound(file)
        assert manifest["ledger"] == population
        assert "Prüfung".encode() in file.read_bytes()
        client.evidence(file, first=0, last=1, texts=False)
        assert "Prüfung".encode() not in file.read_bytes()
        with pytest.raises(Failed) as refused:
            client.evidence(file, first=999)
        assert refused.value.code == "no-such-events"
    assert sound(file)
    assert list(tmp_path.iterdir()) == [file]


def test_both_clients_fetch_the_same(served: Served, population: str, tmp_path: Path) -> None:
    """The asynchronous client writes the same bytes, and both read the report."""
    one, other = tmp_path / "one.tar", tmp_path / "other.tar"

    async def fetched() -> bytes:
        async with AsyncClient(served.url, served.keys["officer"], population) as client:
            await client.evidence(other)
            return await client.report("csv")

    with served.client(population, "auditor") as client:
        client.evidence(one)
        report = client.report("csv")
        assert json.loads(client.report("json"))["population"]["name"] == population
        assert client.report().lstrip().startswith(b"<!doctype html>")
    assert asyncio.run(fetched()) == report
    assert one.read_bytes() == other.read_bytes()


def test_a_pipeline_gets_no_evidence(served: Served, population: str, tmp_path: Path) -> None:
    """Its key is refused, and no file is left."""
    with served.client(population) as client:
        for ask in (lambda: client.evidence(tmp_path / "x.tar"), client.report):
            with pytest.raises(Failed) as refused:
                ask()
            assert (refused.value.status, refused.value.code) == (403, "role-not-allowed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("treatment", ["half", "unsaid", "portal", "other", "page", "cut"])
def test_what_is_not_whole_is_not_kept(
    served: Served, network: Network, population: str, tmp_path: Path, treatment: str
) -> None:
    """A download that breaks off, or another document in its place, leaves what was there."""
    file = tmp_path / "bundle.tar"
    file.write_text("old")
    network.plan = [treatment] * 2
    with (
        served.client(population, "auditor", url=network.url, attempts=2) as client,
        pytest.raises((Incomplete, Unreachable)),
    ):
        client.evidence(file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_download_that_broke_off_is_begun_again(
    served: Served, network: Network, population: str, tmp_path: Path
) -> None:
    """The second attempt writes from the beginning."""
    file = tmp_path / "bundle.tar"
    network.plan = ["half", "busy", "half"]
    with served.client(population, "auditor", url=network.url) as client:
        client.evidence(file)
    assert sound(file)


def test_a_full_disk_is_an_error(served: Served, population: str, tmp_path: Path) -> None:
    """What cannot be written raises; a device is written to, and never replaced."""
    with served.client(population, "auditor") as client:
        with pytest.raises(OSError, match="No space left"):
            client.evidence("/dev/full")
        client.evidence("/dev/null")
        for wrong in (tmp_path, tmp_path / "nowhere" / "x.tar"):
            with pytest.raises(OSError, match=r"folder"):
                client.evidence(wrong)
    assert Path("/dev/full").is_char_device()
    assert Path("/dev/null").is_char_device()


def test_a_bundle_is_known_by_its_ends(tmp_path: Path, served: Served, population: str) -> None:
    """However it is cut into parts, the whole bundle is one, and no beginning of it."""
    file = tmp_path / "bundle.tar"
    with served.client(population, "auditor") as client:
        expected = client.evidence(file)
    data = file.read_bytes()
    for step in (1, 7, 511, 512, 100_000):
        with Bundle(tmp_path / "again.tar") as again:
            again.begin()
            for first in range(0, len(data), step):
                again.write(data[first : first + step])
            assert again.manifest() == expected
    for size in (0, 1, 512, 1_024, len(data) // 2, len(data) - 512, len(data) - 1):
        with Bundle(tmp_path / "again.tar") as again:
            again.begin()
            again.write(data[:size])
            with pytest.raises(Incomplete):
                again.manifest()


def test_a_file_that_is_not_kept_is_gone(tmp_path: Path) -> None:
    """Nothing stands under its name or another."""
    with Whole(tmp_path / "x") as file:
        file.begin()
        file.write(b"half")
    assert list(tmp_path.iterdir()) == []
