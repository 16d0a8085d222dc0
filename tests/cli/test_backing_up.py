"""``accountant backup`` and ``restore`` as operators run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from here import Said, accountant
from support import ask, laplace


def at(home: Path, *words: str) -> Said:
    """Runs a command on the database in ``home``."""
    return accountant(*words, ACCOUNTANT_HOME=str(home))


def test_from_one_machine_to_the_next(world: Callable[..., Any], tmp_path: Path) -> None:
    """The copy is for the owner's eyes only and says so, can be checked alone, and becomes a
    service's home whose evidence verifies without a finding.
    """
    made = world().hospital()
    assert made.post("/grants", ask(laplace("0.1"), purpose="ops")).status_code == 201
    made.publisher.sign("fair")
    made.service.close()
    copy, home = str(tmp_path / "copy.tar"), tmp_path / "next"
    done = at(tmp_path, "backup", copy)
    assert (done.code, "in clear" in done.err) == (0, True), done
    assert (tmp_path / "copy.tar").stat().st_mode & 0o777 == 0o600
    assert "nothing was restored" in at(home, "restore", "--check", copy).err
    assert not home.exists()
    done = at(home, "restore", copy)
    assert (done.code, "valid again" in done.err) == (0, True), done
    bundle = str(tmp_path / "bundle.tar")
    assert at(home, "export", bundle, "-p", "fair").code == 0
    verdict = at(home, "verify", bundle, "--json")
    assert (verdict.code, json.loads(verdict.out)["findings"]) == (0, [])
    again = at(home, "restore", copy)
    assert (again.code, "accountant.db is there" in again.err) == (2, True), again


def test_a_copy_without_the_keys_says_so(world: Callable[..., Any], tmp_path: Path) -> None:
    """A backup that is run where the service's home folder is not lacks the signing keys: the
    command names the folder that it looked into.
    """
    made = world().hospital()
    copy, elsewhere = str(tmp_path / "copy.tar"), str(tmp_path / "elsewhere")
    words = ("--home", elsewhere, "--database-url", made.url, "backup", copy)
    assert "warning" not in at(tmp_path, *words).err
    made.publisher.sign("fair")
    done = at(tmp_path, *words)
    assert (done.code, f"{elsewhere}/vault has none" in done.err) == (0, True), done


def test_a_phase_is_named_as_it_is(world: Callable[..., Any], tmp_path: Path) -> None:
    """``migrate`` says which phases there are, and what it did in one."""
    world().service.close()
    done = at(tmp_path, "migrate", "--phase", "early")
    assert (done.code, "all, pre, post" in done.err) == (2, True), done
    done = at(tmp_path, "migrate", "--phase", "pre")
    assert (done.code, "is ready for the new version" in done.err) == (0, True), done


def test_a_passphrase_seals_the_keys(world: Callable[..., Any], tmp_path: Path) -> None:
    """With a passphrase there is no warning; without it, or with one that is too short, the file is
    not read, and why is said on one line.
    """
    made = world().hospital()
    made.publisher.sign("fair")
    secret, short, copy = tmp_path / "secret", tmp_path / "short", str(tmp_path / "copy.tar")
    secret.write_text("correct horse battery\n")
    short.write_text("horse\n")
    done = at(tmp_path, "backup", copy, "--passphrase-file", str(secret))
    assert (done.code, "in clear" in done.err) == (0, False), done
    for words, why in (
        ([], "accountant: the backup is sealed: give its --passphrase-file"),
        (["--passphrase-file", str(short)], "shorter than 12 bytes"),
    ):
        refused = at(tmp_path / "next", "restore", copy, *words)
        assert (refused.code, why in refused.err) == (2, True), refused
    done = at(tmp_path / "next", "restore", "--check", copy, "--passphrase-file", str(secret))
    assert done.code == 0, done
