"""Which database the settings name, and what of that anybody gets to see."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from places import Hosted

from accountant.cli import common, main
from accountant.config.settings import Settings
from accountant.store.ledgers import parsed, shown


def accountant(hosted: Hosted, home: Path, *words: str, owner: bool = True) -> str:
    """What a command says, run in this process: starting one costs a second."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCOUNTANT_HOME", str(home))
        patch.setenv("ACCOUNTANT_DATABASE_URL", hosted.url)
        patch.setenv("ACCOUNTANT_OWNER_URL", hosted.owner_url if owner else "")
        patch.setattr(sys, "argv", ["accountant", *words])
        for console in (common.out, common.errors):
            patch.setattr(console, "_width", 300)
        with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit):
            main()
    return said.getvalue()


def test_commands_work_on_a_server_and_show_no_password(hosted: Hosted, tmp_path: Path) -> None:
    """Migrating, making a key and listing it work through PostgreSQL; nothing that is printed has a
    password, also where something fails.
    """
    said = [accountant(hosted, tmp_path, "migrate")]
    assert "the database is up to date: postgresql+psycopg://app:***@" in said[0]
    said.append(accountant(hosted, tmp_path, "keys", "create", "--role", "admin", "--name", "me"))
    said.append(accountant(hosted, tmp_path, "keys", "list"))
    assert "admin" in said[-1]
    said.append(accountant(hosted, tmp_path, "migrate", owner=False))
    assert "permission denied" in said[-1] or "up to date" in said[-1]
    hosted.server.drop(hosted.name)
    said.append(accountant(hosted, tmp_path, "keys", "list"))
    assert "does not exist" in said[-1]
    for secret in (hosted.server.app[:24], hosted.server.owner):
        assert not [text for text in said if secret in text]
        assert secret not in repr(Settings(database_url=hosted.url, owner_url=hosted.owner_url))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_urls_of_postgresql(scheme: str) -> None:
    """The three usual spellings name the same database."""
    url = f"{scheme}://u:p@h:5433/d?sslmode=verify-full"
    assert shown(url) == "postgresql+psycopg://u:***@h:5433/d?sslmode=verify-full"


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "postgresql+psycopg2://h/d", "sqlite://", "nonsense", "", "sqlite:///"]
)
def test_other_databases_are_refused_by_name(url: str) -> None:
    """A database that would vanish, or that nobody has tried, is refused with what to give."""
    with pytest.raises(ValueError, match=r"sqlite:///"):
        parsed(url)


def test_both_urls_come_from_the_environment() -> None:
    """The owner's URL is there only if it is set."""
    env = {"ACCOUNTANT_DATABASE_URL": "postgresql://a@h/d"}
    assert Settings.from_environment(env).owner_url == ""
    both = Settings.from_environment(env | {"ACCOUNTANT_OWNER_URL": "postgresql://o@h/d"})
    assert (both.database_url, both.owner_url) == ("postgresql://a@h/d", "postgresql://o@h/d")


def test_secrets_come_from_files(tmp_path: Path) -> None:
    """A file that a variable names is read without its end of line; the variable itself goes
    before it; a file that is not there, or empty, is an error that names the variable.
    """
    (tmp_path / "url").write_text("postgresql://o@h/d\n")
    (tmp_path / "empty").write_text("\n")
    env = {"ACCOUNTANT_OWNER_URL_FILE": str(tmp_path / "url")}
    assert Settings.from_environment(env).owner_url == "postgresql://o@h/d"
    both = env | {"ACCOUNTANT_OWNER_URL": "postgresql://x@h/d"}
    assert Settings.from_environment(both).owner_url == "postgresql://x@h/d"
    for name, why in (("missing", "cannot be read: No such file"), ("empty", "is empty")):
        wrong = {"ACCOUNTANT_CALLBACK_SECRET_FILE": str(tmp_path / name)}
        with pytest.raises(ValueError, match=f"ACCOUNTANT_CALLBACK_SECRET_FILE: .*{why}"):
            Settings.from_environment(wrong)
