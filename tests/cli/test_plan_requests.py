"""``accountant plan``: which of several requests to admit, from a file, on a real ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from here import accountant
from support import laplace


def run(folder: Path, database: str, *words: str, code: int = 0) -> str:
    """What the command prints."""
    where = {"ACCOUNTANT_DATABASE_URL": database, "ACCOUNTANT_HOME": str(folder)}
    done = accountant("plan", *words, "-p", "fair", width=120, **where)
    assert done.code == code, done
    return done.out + done.err


def test_a_file_of_requests(world: Callable[..., Any], database: str, tmp_path: Path) -> None:
    """With 0.5 of 1 spent, the two requests that are worth most fit; nothing is recorded."""
    there = world().hospital("  - {id: a, limit: {epsilon: 1}}\n")
    spent = there.post("/grants", {"dataset": "d", "mechanisms": [laplace("0.5")]}, key="k")
    assert spent.status_code == 201
    lines = [
        {
            "client": name,
            "weight": weight,
            "ask": {"dataset": "d", "mechanisms": [laplace(epsilon)]},
        }
        for name, weight, epsilon in (("big", 2, "0.5"), ("one", 3, "0.3"), ("two", 1, "0.2"))
    ]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    size = there.service.head("fair").size
    found = json.loads(run(tmp_path, database, str(file), "--json"))
    assert sorted(found["admitted"]) == [1, 2]
    assert (found["weight"], found["best"], found["left"]) == (4, True, {"a": "0"})
    said = run(tmp_path, database, str(file))
    assert "2 of 3 requests fit, weight 4 of 6: nothing better exists" in said
    assert there.service.head("fair").size == size


def test_a_bad_line_is_named(world: Callable[..., Any], database: str, tmp_path: Path) -> None:
    """A line that is no request ends it with the line's number; so does an empty file."""
    world().hospital("  - {id: a, limit: {epsilon: 1}}\n")
    good = json.dumps({"ask": {"dataset": "d", "mechanisms": [laplace("0.1")]}})
    for text, said in (
        (f"{good}\n{{}}", "line 2: "),
        (f'{good}\n{{"weight": 0}}', "line 2: "),
        ("{", "line 1: this is not acceptable JSON"),
        ("", "holds no request"),
        (good.replace('"d"', '"nothing"'), "no dataset is called"),
    ):
        (tmp_path / "r.jsonl").write_text(text)
        assert said in run(tmp_path, database, str(tmp_path / "r.jsonl"), code=2)
