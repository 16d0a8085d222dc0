"""Requests that wait for a person, decided on the command line beside the database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import World, ask, laplace
from test_command_line import Line

RULES = "  - {id: a, limit: {epsilon: 4}}\n  - {id: big, action: approve, at_most: {epsilon: 1}}\n"


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population in which two requests wait for a person."""
    made = world().hospital(RULES)
    for _ in range(2):
        assert made.post("/grants", ask(laplace(2), purpose="a table")).status_code == 202
    return made


def test_a_person_decides_beside_the_database(made: World, database: str, tmp_path: Path) -> None:
    """It is listed with its effect, approved under the holder's name of a key, or declined."""
    line = Line(tmp_path, database)
    said = line("approvals", "-p", "fair")
    assert "purpose: a table" in said
    assert "rule a (dataset d): 0 % to 50 %" in said
    one, other = line.json("approvals", "-p", "fair")
    command = "approve", one["id"], "-p", "fair", "--digest", one["digest"]
    assert f"accountant {' '.join(command)}" in said
    key = tmp_path / "key"
    key.write_text(made.secrets["pipeline"])
    assert "role-not-allowed" in line(*command, "--key-file", str(key), code=2)
    key.write_text(made.secrets["officer"])
    assert "granted as g6" in line(*command, "--key-file", str(key), "--reason", "worth it")
    assert made.get("/grants/g6").json()["approved_by"] == "officer"
    declines = "decline", other["id"], "-p", "fair", "--reason", "once is enough"
    assert "--digest" in line(*declines, code=2)
    assert "g5: declined" in line(*declines, "--digest", other["digest"])
    assert "no request waits" in line("approvals", "-p", "fair")
    assert "unknown-proposal" in line("decline", "x", "-p", "fair", "--reason", "y", code=2)


def test_a_policy_says_what_it_leaves_to_a_person(tmp_path: Path) -> None:
    """lint names these rules."""
    file = tmp_path / "policy.yaml"
    file.write_text("policy: p\nrules:\n" + RULES)
    found: Any = Line(tmp_path, "").json("policy", "lint", str(file))
    assert found["approve"] == ["big"]
