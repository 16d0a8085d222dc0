"""Variables that nothing reads stop every command, whoever it asks."""

from __future__ import annotations

import os

import pytest
from forked import SERVICE, ran

from accountant.client import command_line
from accountant.config.settings import Settings

KUBERNETES = {
    "ACCOUNTANT_SERVICE_HOST": "10.0.0.1",
    "ACCOUNTANT_SERVICE_PORT": "8321",
    "ACCOUNTANT_SERVICE_PORT_HTTP": "8321",
    "ACCOUNTANT_PORT": "tcp://10.0.0.1:8321",
    "ACCOUNTANT_PORT_8321_TCP": "tcp://10.0.0.1:8321",
    "ACCOUNTANT_PORT_8321_TCP_ADDR": "10.0.0.1",
    "ACCOUNTANT_READER_PORT": "tcp://10.0.0.2:8321",
}
"""What a pod finds beside Services that are called ``accountant`` and ``accountant-reader``."""


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ACCOUNTANT_CHECKPOINT_SECOND", "ACCOUNTANT_CHECKPOINT_SECONDS"),
        ("ACCOUNTANT_API_KEY", "ACCOUNTANT_KEY"),
        ("ACCOUNTANT_DATABASE", "ACCOUNTANT_DATABASE_URL"),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_nearest(name: str, nearest: str) -> None:
    """A misspelt setting is not passed over; the message says which may be meant."""
    with pytest.raises(ValueError, match=rf"^{name} is no setting .*\b{nearest}\b.* may be meant"):
        Settings.from_environment({name: "1"})


def test_a_name_that_is_like_no_other_is_an_error_too() -> None:
    """Where nothing is near, the message says where all settings are listed."""
    with pytest.raises(
        ValueError, match=r"^ACCOUNTANT_ZZZZZZZZ.*accountant\. Correct.*settings.md"
    ):
        Settings.from_environment({"ACCOUNTANT_ZZZZZZZZ": ""})


def test_variables_of_the_client_and_of_others_are_no_errors() -> None:
    """The client's variables are known to the service, and what Kubernetes sets is passed over."""
    others = {
        "ACCOUNTANT_URL": "x",
        "ACCOUNTANT_KEY": "y",
        "ACCOUNTANT_TRAINING": "{}",
        "PATH": "/",
    }
    assert Settings.from_environment(others | KUBERNETES) == Settings.from_environment({})


@pytest.mark.parametrize("words", [["grants", "--json"], ["deliver"]])
def test_commands_that_ask_a_service_look_as_well(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline with a misspelt variable ends with 2 before anything is sent."""
    env = {"ACCOUNTANT_URL": "http://127.0.0.1:9", "ACCOUNTANT_KEY": "k"}
    assert command_line.main(words, env=env | {"ACCOUNTANT_SPOOLS": "/nowhere"}) == 2
    said = capsys.readouterr().err
    assert "ACCOUNTANT_SPOOLS is no setting" in said
    assert "ACCOUNTANT_SPOOL " in said
    assert command_line.main(words, env=env | KUBERNETES) == 2
    assert "no setting" not in capsys.readouterr().err


def test_commands_beside_the_database_look_as_well() -> None:
    """A command that reads the database ends with 2 and one line, and does not begin."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ACCOUNTANT_")}
    done = ran(SERVICE, "migrate", environment=env | {"ACCOUNTANT_HOMES": "/nowhere"})
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("accountant: ACCOUNTANT_HOMES is no setting of accountant; ")
