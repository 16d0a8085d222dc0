"""A snapshot on disk is believed only as it was written, by this service, with this code."""

from __future__ import annotations

import hmac
import logging
import os
import shutil
import signal
import time
from hashlib import sha256
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from accountant.budget.apply import fold
from accountant.budget.snapshot import dump, load
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.privacy import engine
from accountant.store.snapshots import Snapshots, code_digest
from accountant.store.whole import whole
from bench.mixed import LEDGER, mixed

EVENTS = list(mixed(60))
STATE = fold(LEDGER, EVENTS)
PARTS = dump(STATE)
TREE, _ = Tree().grown([leaf_hash(event.to_bytes()) for event in EVENTS])
PACKAGE = Path(__file__).resolve().parents[2] / "accountant"


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    """A folder with one snapshot in it."""
    made = Snapshots(tmp_path)
    assert made.keep(LEDGER, TREE, PARTS)
    return made


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LogCapture:
    """What is logged."""
    seen, every = LogCapture(), structlog.make_filtering_bound_logger(logging.INFO)
    logger = structlog.wrap_logger(None, [seen], wrapper_class=every)
    monkeypatch.setattr("accountant.store.snapshots._log", logger)
    return seen


def path(snapshots: Snapshots, ledger: str = LEDGER) -> Path:
    """The file of a snapshot."""
    return snapshots.folder / f"{ledger}.snapshot"


def test_what_was_kept_is_read(snapshots: Snapshots) -> None:
    """The tree and the state come back, also to another process of the same service."""
    for reader in (snapshots, Snapshots(snapshots.folder.parent)):
        found = reader.read(LEDGER)
        assert found is not None
        tree, data = found
        assert tree == TREE
        assert load(LEDGER, data) == STATE


def test_the_last_one_takes_the_place_of_the_one_before(snapshots: Snapshots) -> None:
    """A ledger has one snapshot, its key is made once, and nothing else is left behind."""
    assert snapshots.keep(LEDGER, Tree(), [b"later"])
    found = snapshots.read(LEDGER)
    assert found is not None
    assert (found[0], bytes(found[1])) == (Tree(), b"later")
    assert os.listdir(snapshots.folder) == [f"{LEDGER}.snapshot"]


def test_only_the_owner_reads_it(snapshots: Snapshots, tmp_path: Path) -> None:
    """Snapshot and key are for nobody else; a key that others may read is not used."""
    key = tmp_path / "vault" / "_snapshots.key"
    for file in (path(snapshots), key):
        assert file.stat().st_mode & 0o777 == 0o600
    assert snapshots.folder.stat().st_mode & 0o777 == 0o700
    key.chmod(0o640)
    assert snapshots.read(LEDGER) is None
    assert snapshots.keep(LEDGER, TREE, PARTS) is False


def test_every_changed_bit_is_noticed(snapshots: Snapshots) -> None:
    """Whichever bit was changed: in the format, the head, the state or the code at the end."""
    sound = path(snapshots).read_bytes()
    places = {*range(400), *range(400, len(sound), 61), *range(len(sound) - 40, len(sound))}
    for place in sorted(places):
        changed = bytearray(sound)
        changed[place] ^= 1 << place % 8
        path(snapshots).write_bytes(changed)
        assert snapshots.read(LEDGER) is None, place
    path(snapshots).write_bytes(sound)
    assert snapshots.read(LEDGER) is not None


def test_every_truncation_is_noticed(snapshots: Snapshots) -> None:
    """A snapshot that was not written to its end, or has more after it, is none."""
    sound = path(snapshots).read_bytes()
    lengths = {*range(400), *range(400, len(sound), 61), *range(len(sound) - 40, len(sound))}
    for length in sorted(lengths):
        path(snapshots).write_bytes(sound[:length])
        assert snapshots.read(LEDGER) is None, length
    for after in (b"\0", sound):
        path(snapshots).write_bytes(sound + after)
        assert snapshots.read(LEDGER) is None


def test_a_fresh_digest_does_not_make_it_true(snapshots: Snapshots, tmp_path: Path) -> None:
    """Who can write the folder, but has not the key, cannot lower what was spent."""
    changed = path(snapshots).read_bytes()[:-32].replace(b'"bound":["', b'"bound":["0', 1)
    ends = [
        sha256(changed).digest(),
        hmac.digest(b"", changed, "sha256"),
        hmac.digest(bytes(32), changed, "sha256"),
    ]
    for end in ends:
        path(snapshots).write_bytes(changed + end)
        assert snapshots.read(LEDGER) is None
    key = (tmp_path / "vault" / "_snapshots.key").read_bytes()
    path(snapshots).write_bytes(changed + hmac.digest(key, changed, "sha256"))
    assert snapshots.read(LEDGER) is not None  # with the key: so it is the key that counts


def test_another_ledgers_snapshot_is_none(snapshots: Snapshots) -> None:
    """Files that changed their places are noticed."""
    assert snapshots.keep("other", TREE, PARTS)
    shutil.copy(path(snapshots, "other"), path(snapshots))
    assert snapshots.read("other") is not None
    assert snapshots.read(LEDGER) is None


def test_another_code_makes_it_stale(snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other code has folded, or code with other bounds, is folded again."""
    other = Snapshots(snapshots.folder.parent, code="0" * 64)
    assert other.read(LEDGER) is None
    monkeypatch.setattr(engine, "CURRENT", engine.CURRENT + 1)
    assert snapshots.read(LEDGER) is None


@pytest.mark.parametrize(
    "source",
    ["budget/apply.py", "budget/rules/limit.py", "privacy/units.py", "ledger/events.py"],
)
def test_any_change_of_the_code_is_seen(tmp_path: Path, source: str) -> None:
    """The digest is over all that a fold runs through: changed, added, renamed or taken away."""
    package = tmp_path / "accountant"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, package, ignore=ignored)
    seen = {code_digest()}
    assert code_digest.__wrapped__(package) in seen
    file = package / source
    file.write_bytes(file.read_bytes() + b"\n")
    digests = [code_digest.__wrapped__(package)]
    (package / "budget" / "new.py").write_bytes(b"")
    digests.append(code_digest.__wrapped__(package))
    (package / "budget" / "new.py").rename(package / "privacy" / "new.py")
    digests.append(code_digest.__wrapped__(package))
    file.unlink()
    if source != "ledger/events.py":
        digests.append(code_digest.__wrapped__(package))
    else:
        with pytest.raises(FileNotFoundError):
            code_digest.__wrapped__(package)
    assert len(seen | set(digests)) == 1 + len(digests)


def test_what_does_not_fold_is_not_in_the_digest(tmp_path: Path) -> None:
    """A change of the pages or of the store leaves snapshots as good as they were."""
    package = tmp_path / "accountant"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "service.py").write_text("")
    shutil.rmtree(package / "reporting")
    assert code_digest.__wrapped__(package) == code_digest()


@pytest.mark.parametrize("damage", ["lost", "another", "short", "empty", "a folder"])
def test_without_the_key_every_snapshot_is_stale(
    snapshots: Snapshots, tmp_path: Path, damage: str
) -> None:
    """A lost key costs a fold; a new one is made where there is none."""
    key = tmp_path / "vault" / "_snapshots.key"
    contents = {"another": bytes(32), "short": b"short", "empty": b""}
    if damage in contents:
        key.write_bytes(contents[damage])
    else:
        key.unlink()
    if damage == "a folder":
        key.mkdir(mode=0o700)
    assert snapshots.read(LEDGER) is None
    assert snapshots.keep(LEDGER, TREE, PARTS) is (damage in ("lost", "another"))
    assert (snapshots.read(LEDGER) is not None) is (damage in ("lost", "another"))


def test_none_is_no_error(snapshots: Snapshots, log: LogCapture) -> None:
    """A ledger without a snapshot, a file of something else: why is told, and nothing raised."""
    path(snapshots, "text").write_text("something else, and long enough for a code at its end")
    path(snapshots, "folder").mkdir()
    path(snapshots, "dangling").symlink_to(snapshots.folder / "nowhere")
    for ledger in ("missing", "text", "folder", "dangling"):
        assert snapshots.read(ledger) is None
        entry = log.entries.pop()
        assert entry["log_level"] == "info"
        assert entry["population"] == ledger
        assert entry["reason"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_is_not_ours_to_read_is_none(snapshots: Snapshots) -> None:
    """A snapshot that another user wrote is not read."""
    path(snapshots).chmod(0)
    assert snapshots.read(LEDGER) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, log: LogCapture) -> None:
    """A full disk costs time at the next start, and is told."""
    (tmp_path / "snapshots").write_text("")
    made = Snapshots(tmp_path)
    assert made.keep(LEDGER, TREE, PARTS) is False
    assert made.read(LEDGER) is None
    assert {entry["log_level"] for entry in log.entries} == {"info", "warning"}


def test_what_a_killed_process_left_is_removed(snapshots: Snapshots) -> None:
    """The part of a snapshot that a kill cut off is gone with the next one that is kept, an hour
    later: services that are killed again and again fill no disk. A younger one may be at work.
    """
    if (child := os.fork()) == 0:
        with whole(path(snapshots)) as file:
            file.write(bytes(10**6))
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    [left] = snapshots.folder.glob(".*")
    assert snapshots.keep(LEDGER, TREE, PARTS)
    assert left.exists()
    os.utime(left, (0, time.time() - 2 * 3_600))
    assert snapshots.keep(LEDGER, TREE, PARTS)
    assert list(snapshots.folder.iterdir()) == [path(snapshots)]
    assert snapshots.read(LEDGER) is not None
