"""A container engine, if one is there: what a test asks of it.

``ENGINE`` names one (docker or podman), else the first that answers is taken. ``BASE`` names
another base image, and ``BUILD_OPTIONS`` holds more words for the build: ``--network=host``, say.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from containerfile import DOCKERFILE, ROOT, base

IMAGE = "accountant:tested"


@dataclass(frozen=True)
class Engine:
    """docker or podman."""

    name: str

    def __call__(self, *words: str, check: bool = True, **more: Any) -> str:
        """Run one of its commands; what it says on standard output, without space around it."""
        done = subprocess.run(
            [self.name, *words], capture_output=True, text=True, check=False, **more
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name} {shlex.join(words)}\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def has(self, *words: str) -> bool:
        """Whether one of its commands ends well."""
        return subprocess.run([self.name, *words], capture_output=True, check=False).returncode == 0

    def built(self) -> str:
        """Build our image; its name. Raises AssertionError with what the engine says."""
        # Podman leaves the health check out of an image of its own format.
        words = ["--format", "docker"] if self.name == "podman" else []
        words += ["--build-arg", f"BASE={chosen_base()}"]
        words += shlex.split(os.environ.get("BUILD_OPTIONS", ""))
        self("build", *words, "-f", str(DOCKERFILE), "-t", IMAGE, str(ROOT))
        return IMAGE

    def has_image(self, name: str) -> bool:
        """Whether an image is here or can be fetched."""
        return self.has("image", "inspect", name) or self.has("pull", "--quiet", name)


@cache
def found() -> Engine | None:
    """The engine that answers."""
    for name in filter(None, [os.environ.get("ENGINE"), "docker", "podman"]):
        try:
            if Engine(name).has("info"):
                return Engine(name)
        except FileNotFoundError:
            continue
    return None


def chosen_base() -> str:
    """The image to build ours on."""
    return os.environ.get("BASE") or base()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait(until: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.5)
