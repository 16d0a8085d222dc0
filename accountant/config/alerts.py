"""What is told to whom: the file that ACCOUNTANT_ALERTS names, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from accountant.budget.commands import IDENTIFIER
from accountant.budget.errors import Invalid
from accountant.budget.policy_file import parsed
from accountant.config.origins import is_loopback, is_sound
from accountant.config.settings import Settings

Kind = Literal[
    "verification",
    "witness",
    "clock",
    "overrun",
    "read",
    "threshold",
    "forecast",
    "proposal",
    "request",
    "orphaned",
    "refusal",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""The gravest first."""
_MOST_SECRET: Final = 4_096
"""Bytes of a file that holds a secret."""
_HOST: Final = r"^[A-Za-z0-9.:-]{1,253}$"
_ADDRESS: Final = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}$"
"""An address of the usual form (HTML's, without names and quotes)."""
Name = Annotated[str, Field(pattern=f"^{IDENTIFIER}$")]
Percent = Annotated[int, Field(ge=1, le=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Terms(_Strict):
    """From when on something is worth an alert."""

    thresholds: Annotated[tuple[Percent, ...], Field(max_length=20)] = (50, 80, 95)
    """Per cent of a limit that are spent or reserved."""
    forecast_days: Annotated[float, Field(gt=0, le=366)] = 14
    """Within how many days a limit runs out."""
    orphaned: Annotated[float, Field(gt=0, le=1)] = 0.8
    """The share of its life after which an open grant is told of."""


class Webhook(_Strict):
    """An address that takes CloudEvents, signed with the secret of a file."""

    url: str
    secret_file: Path

    @field_validator("url")
    @classmethod
    def _sound(cls, url: str) -> str:
        return sound(url)


class Slack(_Strict):
    """An incoming webhook of Slack, or of what takes the same JSON. Who knows its address may post
    there, so a file holds it.
    """

    url_file: Path


class Mail(_Strict):
    """A mail server, whom mails come from and go to, and as whom we sign in there, if at all."""

    host: Annotated[str, Field(pattern=_HOST)]
    port: Annotated[int, Field(ge=1, le=65_535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: Annotated[str, Field(alias="from", pattern=_ADDRESS)]
    to: Annotated[tuple[Annotated[str, Field(pattern=_ADDRESS)], ...], Field(min_length=1)]
    user: Annotated[str, Field(max_length=200)] = ""
    password_file: Path | None = None

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if self.security == "none" and not is_loopback(self.host):
            raise ValueError("security: none is for a mail server on this machine alone")
        if bool(self.user) != (self.password_file is not None):
            raise ValueError("user and password_file go together")
        return self


class Channel(_Strict):
    """Where alerts go. Without ``kinds`` all kinds go there, without ``populations`` those of all
    populations.
    """

    name: Name
    kinds: frozenset[Kind] = frozenset(KINDS)
    populations: frozenset[Name] | None = None
    webhook: Webhook | None = None
    slack: Slack | None = None
    mail: Mail | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [getattr(self, name) for name in WAYS]
        if sum(way is not None for way in ways) != 1:
            raise ValueError(f"a channel has one of: {', '.join(WAYS)}")
        return self

    def takes(self, population: str, kind: str) -> bool:
        """Return whether an alert goes there."""
        return kind in self.kinds and (self.populations is None or population in self.populations)


WAYS: Final = ("webhook", "slack", "mail")
"""The fields of a channel that say how alerts go there."""


class AlertSettings(_Strict):
    """The file as a whole."""

    alerts: Terms = Terms()
    channels: Annotated[tuple[Channel, ...], Field(min_length=1, max_length=20)]

    @field_validator("channels")
    @classmethod
    def _apart(cls, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
        if len({one.name for one in channels}) < len(channels):
            raise ValueError("two channels have the same name")
        return channels


def sound(url: str) -> str:
    """Return an address to which alerts may go. Raise ValueError, which does not show it: some
    addresses are secrets.
    """
    if not is_sound(url):
        raise ValueError("must be an address with https, or with http on this machine")
    return url


def secret_in(file: Path, channel: str) -> str:
    """Return the secret that a file holds. Raise ValueError, which does not show it."""
    try:
        content = file.read_bytes()[: _MOST_SECRET + 1]
        secret = content.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        raise ValueError(f"the file {file} of channel {channel} cannot be read: {reason}") from None
    if not secret or len(content) > _MOST_SECRET:
        raise ValueError(f"the file {file} of channel {channel} must hold the secret alone")
    return secret


def alert_settings_of(settings: Settings) -> AlertSettings | None:
    """Return what the file says, None if no file is named. Raise ValueError, naming the variable,
    the line, and what to do.
    """
    if not settings.alerts:
        return None
    try:
        text = Path(settings.alerts).read_text("utf-8")
        return parsed(text, AlertSettings)
    except Invalid as error:
        reason = error.detail.partition(": ")[2]  # which says how policies are read
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
    raise ValueError(f"ACCOUNTANT_ALERTS: {settings.alerts}: {reason}")
