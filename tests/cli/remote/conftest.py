"""``accountant …`` as a process of its own that asks a real service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from served import Network, Served, network, served

__all__ = ["Network", "Served", "network", "served"]

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60


@dataclass
class Shell:
    """A terminal with the variables of a client; ``key`` names the key that it has."""

    served: Served
    population: str
    folder: Path
    key: str = "pipeline"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The environment; what is empty in ``env`` is not set."""
        found = {name: value for name, value in os.environ.items() if "ACCOUNTANT" not in name}
        found |= {"PYTHONPATH": str(ROOT), "ACCOUNTANT_URL": self.served.url}
        found |= {"ACCOUNTANT_KEY": self.served.keys[self.key]}
        found |= {"ACCOUNTANT_POPULATION": self.population} | self.env
        return {name: value for name, value in found.items() if value}

    def with_(self, key: str | None = None, **env: str) -> Shell:
        """Another terminal."""
        more = self.env | env
        return Shell(self.served, self.population, self.folder, key or self.key, more)

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start a command."""
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        program = [sys.executable, "-m", "accountant", *words]
        return subprocess.Popen(program, env=self.variables, cwd=self.folder, **(options | more))

    def ended(self, process: subprocess.Popen[bytes], code: int, stdin: bytes = b"") -> Said:
        """Wait for a command, and check what always has to hold."""
        out, err = process.communicate(stdin, timeout=SECONDS)
        said = Said(out or b"", err.decode(errors="surrogateescape"))
        assert process.returncode == code, (process.returncode, said)
        told = said.err + said.out.decode(errors="replace")
        assert "Traceback" not in told, told
        for secret in self.served.keys.values():
            assert secret not in told
        return said

    def __call__(self, *words: str, code: int = 0, stdin: bytes = b"") -> Said:
        """Run a command to its end."""
        return self.ended(self.start(*words), code, stdin)

    def json(self, *words: str, code: int = 0) -> Any:
        """What a command prints with --json."""
        return json.loads(self(*words, "--json", code=code).out)

    def wrong(self, *words: str, code: int = 2, stdin: bytes = b"") -> str:
        """The one line on standard error with which a command fails."""
        said = self(*words, code=code, stdin=stdin)
        assert said.out == b""
        assert said.err.startswith("accountant: "), said
        assert said.err.endswith("]\n")
        assert said.err.count("\n") == 1
        return said.err

    def file(self, name: str, document: Any) -> str:
        """A file with a JSON document, or with a text."""
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    def events(self) -> list[dict[str, Any]]:
        """The events after the three that register."""
        with self.served.client(self.population, "auditor") as client:
            return [event.content for event in client.events()][4:]

    def kinds(self) -> list[str]:
        """What happened since, in short."""
        return [event["type"].split(".")[1] for event in self.events()]

    def spent(self) -> tuple[str, str]:
        """What the lifetime rule counts as spent, and as reserved."""
        with self.served.client(self.population, "auditor") as client:
            total = client.accounts()["lifetime"].total
            return str(total.spent), str(total.reserved)


@dataclass
class Said:
    """What a command printed."""

    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output."""
        return self.out.decode()


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    """A terminal with a pipeline's key, about a population of its own."""
    return Shell(served, served.population(), tmp_path)
