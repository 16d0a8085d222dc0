"""Settings, from the environment (prefix ACCOUNTANT_) and from flags of the same name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are and how often jobs run. Seconds are seconds."""

    home: Path = Path("var")
    database_url: str = ""
    host: str = "127.0.0.1"
    port: int = 8321
    expiry_seconds: float = 1.0
    report_hours: float = 24.0
    max_body_bytes: int = field(default=1_000_000)

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Settings:
        """Reads ACCOUNTANT_HOME, _DATABASE_URL, _HOST, _PORT, _EXPIRY_SECONDS, _REPORT_HOURS and
        _MAX_BODY_BYTES. Raises ValueError, naming the variable, for what cannot be read.
        """
        home = Path(env.get("ACCOUNTANT_HOME") or "var")
        return cls(
            home=home,
            database_url=env.get("ACCOUNTANT_DATABASE_URL") or f"sqlite:///{home}/accountant.db",
            host=env.get("ACCOUNTANT_HOST") or "127.0.0.1",
            port=int(_number(env, "ACCOUNTANT_PORT", 8321, 0, 65535)),
            expiry_seconds=_number(env, "ACCOUNTANT_EXPIRY_SECONDS", 1.0, 0.05, 3600),
            report_hours=_number(env, "ACCOUNTANT_REPORT_HOURS", 24.0, 0.001, 24 * 366),
            max_body_bytes=int(_number(env, "ACCOUNTANT_MAX_BODY_BYTES", 1_000_000, 1_000, 10**9)),
        )


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
