"""An import that is killed and started again until it is through."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import laplace

from harness.deployment import POPULATION, Deployment
from harness.programs import Process

CLIENT = "importer"
LITTLE = laplace("0.00001", 1)


def moment(number: int) -> str:
    """When the invocation of a line ran."""
    return f"2025-11-{number // 3600 + 1:02}T12:{number // 60 % 60:02}:{number % 60:02}Z"


@dataclass
class Importing:
    """The lines of ``file``, which are to be there once each, in order, in the end."""

    deployment: Deployment
    file: Path
    lines: int

    def __post_init__(self) -> None:
        with self.file.open("w") as out:
            for number in range(self.lines):
                line = {"dataset": "wide", "mechanisms": [LITTLE], "ran_at": moment(number)}
                out.write(json.dumps(line) + "\n")

    def _words(self) -> list[str]:
        words = ["import", str(self.file), "--population", POPULATION, "--client", CLIENT]
        return [*words, "--batch", "past"]

    def begin(self) -> Process:
        """Starts it, or starts it again."""
        return self.deployment.begin(*self._words())

    def finish(self) -> None:
        """Lets it run to its end, and once more, which records nothing."""
        self.deployment.command(*self._words())
        again = self.deployment.command(*self._words())
        assert f"0 recorded (0 of them over budget), {self.lines} already recorded before" in again

    def compare(self, by_key: dict[tuple[str, str], dict[str, Any]]) -> None:
        """Every line has one event, in the order of the lines; takes these from ``by_key``."""
        ours = [by_key.pop(place) for place in list(by_key) if place[0] == CLIENT]
        ran = [event["command"]["ran_at"] for event in ours]
        assert ran == [moment(number) for number in range(self.lines)]
