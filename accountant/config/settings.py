"""Settings, from the environment (prefix ACCOUNTANT_) and from flags of the same name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MOST_WAITING: Final = 4_096
"""Commands in the queue of one ledger; a client that comes then is asked to come again."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are and how often jobs run. Seconds are seconds. The database may be reached
    through another URL by whom its tables belong to; both may hold a password, and are not shown.
    """

    home: Path = Path("var")
    database_url: str = field(default="", repr=False)
    owner_url: str = field(default="", repr=False)
    host: str = "127.0.0.1"
    port: int = 8321
    expiry_seconds: float = 1.0
    report_hours: float = 24.0
    checkpoint_seconds: float = 60.0
    origin: str = "localhost"
    public_log: bool = False
    max_body_bytes: int = field(default=1_000_000)
    most_waiting: int = MOST_WAITING
    max_connections: int = 4_096
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 75.0
    max_held_bytes: int = 64 << 20
    clock_ahead_hours: float = 24.0

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Settings:
        """Reads the variables that are called like the fields, with ACCOUNTANT_ before. Raises
        ValueError, naming the variable, for what cannot be read.
        """
        home = Path(env.get("ACCOUNTANT_HOME") or "var")
        return cls(
            home=home,
            database_url=env.get("ACCOUNTANT_DATABASE_URL") or f"sqlite:///{home}/accountant.db",
            owner_url=env.get("ACCOUNTANT_OWNER_URL") or "",
            host=env.get("ACCOUNTANT_HOST") or "127.0.0.1",
            port=int(_number(env, "ACCOUNTANT_PORT", 8321, 0, 65535)),
            expiry_seconds=_number(env, "ACCOUNTANT_EXPIRY_SECONDS", 1.0, 0.05, 3600),
            report_hours=_number(env, "ACCOUNTANT_REPORT_HOURS", 24.0, 0.001, 24 * 366),
            checkpoint_seconds=_number(env, "ACCOUNTANT_CHECKPOINT_SECONDS", 60.0, 0.1, 86_400),
            origin=_origin(env.get("ACCOUNTANT_ORIGIN") or "localhost"),
            public_log=_yes(env, "ACCOUNTANT_PUBLIC_LOG"),
            max_body_bytes=int(_number(env, "ACCOUNTANT_MAX_BODY_BYTES", 1_000_000, 1_000, 10**9)),
            most_waiting=int(_number(env, "ACCOUNTANT_MOST_WAITING", MOST_WAITING, 1, 10**6)),
            max_connections=int(_number(env, "ACCOUNTANT_MAX_CONNECTIONS", 4_096, 8, 10**6)),
            head_seconds=_number(env, "ACCOUNTANT_HEAD_SECONDS", 10.0, 0.1, 3600),
            body_seconds=_number(env, "ACCOUNTANT_BODY_SECONDS", 10.0, 0.1, 3600),
            clock_ahead_hours=_number(env, "ACCOUNTANT_CLOCK_AHEAD_HOURS", 24.0, 0.01, 24 * 366),
            idle_seconds=_number(env, "ACCOUNTANT_IDLE_SECONDS", 75.0, 0.1, 86_400),
            max_held_bytes=int(
                _number(env, "ACCOUNTANT_MAX_HELD_BYTES", 64 << 20, 1_000_000, 10**12)
            ),
        )


_ORIGIN: Final = re.compile(r"[A-Za-z0-9.:-]{1,100}(/[A-Za-z0-9._~-]{1,60}){0,4}")


def _origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError(
            f"ACCOUNTANT_ORIGIN is {text!r}; it must be like example.org/ledger: the start of an "
            "address without https://"
        )
    return text


def _yes(env: Mapping[str, str], name: str) -> bool:
    text = (env.get(name) or "no").lower()
    if text not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError(f"{name} is {text!r}; it must be yes or no")
    return text in ("yes", "true", "1")


def _number(env: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ValueError(f"{name} is {text!r}; it must be a number from {low:g} to {high:g}")
    return value
