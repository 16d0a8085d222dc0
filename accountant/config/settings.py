"""Settings, read from environment variables with the prefix ACCOUNTANT_."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

MOST_WAITING: Final = 4_096
"""Commands that may wait in the queue of one ledger; a further one is answered with 503."""
_ORIGIN: Final = re.compile(r"[A-Za-z0-9.:-]{1,100}(/[A-Za-z0-9._~-]{1,60}){0,4}")
_LINK: Final = re.compile(r"(tcp|udp|sctp)://")
"""How the value of ACCOUNTANT_PORT begins where Kubernetes set it, for a Service ``accountant``."""
_IN_FILES: Final = ("database_url", "owner_url", "callback_secret")
"""What may stand in a file that ``<name>_file`` names, as container platforms mount secrets."""
_WORDS: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def _within(low: float, high: float, default: float) -> Any:
    """Declare a number with its bounds, both included."""
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True)
class Settings:
    """The settings of one process; docs/reference/settings.md describes each."""

    home: Path = Path("var")
    database_url: str = field(default="", repr=False)  # It may hold a password
    database_url_file: str = ""
    owner_url: str = field(default="", repr=False)
    owner_url_file: str = ""
    host: str = "127.0.0.1"
    port: int = _within(0, 65_535, 8321)
    expiry_seconds: float = _within(0.05, 3_600, 1.0)
    report_hours: float = _within(0.001, 24 * 366, 24.0)
    checkpoint_seconds: float = _within(0.1, 86_400, 60.0)
    origin: str = "localhost"
    public_log: bool = False
    max_body_bytes: int = _within(1_000, 10**9, 1_000_000)
    most_waiting: int = _within(1, 10**6, MOST_WAITING)
    max_connections: int = _within(8, 10**6, 4_096)
    head_seconds: float = _within(0.1, 3_600, 10.0)
    body_seconds: float = _within(0.1, 3_600, 10.0)
    idle_seconds: float = _within(0.1, 86_400, 75.0)
    max_held_bytes: int = _within(1_000_000, 10**12, 64 << 20)
    clock_ahead_hours: float = _within(0.01, 24 * 366, 24.0)
    one_core: bool = True
    callback_hosts: str = ""
    callback_secret: str = field(default="", repr=False)
    callback_secret_file: str = ""
    callback_seconds: float = _within(0.05, 3_600, 2.0)
    alerts: str = ""
    alert_seconds: float = _within(0.05, 86_400, 60.0)
    public_url: str = ""
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = field(default="", repr=False)
    oidc_client_secret_file: str = ""
    oidc_scopes: str = "openid profile"
    oidc_role_claim: str = "groups"
    oidc_roles: str = ""
    oidc_name_claim: str = "preferred_username"
    key_days: int = _within(0, 36_500, 0)
    session_hours: float = _within(0.1, 24 * 30, 12.0)
    session_idle_minutes: float = _within(1, 24 * 60, 30.0)

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Settings:
        """Read the variables that are named like the fields; an empty one counts as not set. Raise
        ValueError, naming the variable, for a value that is not valid, and for a name that neither
        the service nor its client knows.
        """
        names = {one: f"ACCOUNTANT_{one.name.upper()}" for one in fields(cls)}
        if {name for name in env if name.startswith("ACCOUNTANT_")} - set(names.values()):
            from accountant.client import environment  # noqa: PLC0415 (seldom needed here)

            environment.check_names(env)
        values = {
            one.name: _read(one, name, env[name])
            for one, name in names.items()
            if env.get(name) and not (one.name == "port" and _LINK.match(env[name]))
        }
        for name in _IN_FILES:
            if name not in values and (file := values.get(f"{name}_file")):
                values[name] = _secret(f"ACCOUNTANT_{name.upper()}_FILE", file)
        home = values.get("home", cls.home)
        return cls(**{"database_url": f"sqlite:///{home}/accountant.db"} | values)


def _secret(name: str, file: str) -> str:
    """Return what a file holds, without its end of line. Raises ValueError, naming the variable."""
    try:
        text = Path(file).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ValueError(f"{name}: {file} cannot be read: {reason}") from None
    if not text:
        raise ValueError(f"{name}: {file} is empty")
    return text


def _read(one: Field[Any], name: str, text: str) -> Any:
    kind: Any = type(one.default)
    if kind is bool:
        if text.lower() not in _WORDS:
            raise ValueError(f"{name} is {text!r}; it must be yes or no")
        return _WORDS[text.lower()]
    if kind in (int, float):
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        low, high = one.metadata["low"], one.metadata["high"]
        if not low <= value <= high:
            raise ValueError(f"{name} is {text!r}; it must be a number from {low:g} to {high:g}")
        return kind(value)
    if one.name == "origin" and not _ORIGIN.fullmatch(text):
        raise ValueError(
            f"{name} is {text!r}; it must be like example.org/ledger: the start of an address "
            "without https://"
        )
    return kind(text) if kind is str else Path(text)
