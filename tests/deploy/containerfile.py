"""The instructions of a Dockerfile, by stage."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "container" / "Dockerfile"


class Instruction(NamedTuple):
    """One instruction, on one line."""

    word: str
    rest: str

    @property
    def listed(self) -> list[str]:
        """Its words in exec form. Raises ValueError if it is in shell form."""
        found = json.loads(self.rest[self.rest.index("[") :])
        assert isinstance(found, list)
        return found


@dataclass
class Stage:
    """What comes after one FROM."""

    base: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[Instruction]:
        """Its instructions of one kind."""
        return [one for one in self.instructions if one.word == word]

    @property
    def environment(self) -> dict[str, str]:
        """What its ENV instructions set."""
        words = " ".join(one.rest for one in self.all("ENV"))
        return dict(pair.split("=", 1) for pair in words.split())


def stages() -> list[Stage]:
    """The stages of our Dockerfile."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    found: list[Stage] = []
    for line in filter(None, map(str.strip, lines)):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append(Stage(rest))
        elif found:
            found[-1].instructions.append(Instruction(word, rest.strip()))
        else:
            assert word == "ARG", line
    return found


def base() -> str:
    """The image that ours is built on, unless a build names another."""
    [found] = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)
    return str(found)
