"""The settings of the identity provider, checked together."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, get_args

from accountant.budget.commands import Role
from accountant.config.origins import is_sound
from accountant.config.settings import Settings

PEOPLE: Final[tuple[Role, ...]] = ("admin", "officer", "auditor")
"""The roles that people may sign in with. Pipelines use keys."""
_SCOPES: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Which provider, who we are for it, and what its claims mean. ``roles`` in order: the first
    that somebody has is theirs.
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: str
    role_claim: str
    roles: tuple[tuple[str, Role], ...]
    name_claim: str


def provider_of(settings: Settings) -> ProviderSettings | None:
    """Return the settings of the provider, None if none is set. Raise ValueError, naming the
    variable and not showing the secret.
    """
    issuer = settings.oidc_issuer
    if not issuer:
        if settings.oidc_client_id or settings.oidc_roles:
            raise ValueError("ACCOUNTANT_OIDC_ISSUER is not set, and other settings of OIDC are")
        return None
    if not is_sound(issuer) or "?" in issuer:
        raise ValueError(
            f"ACCOUNTANT_OIDC_ISSUER is {issuer!r}; it must be an https address, as the provider "
            "writes it"
        )
    if not settings.oidc_client_id:
        raise ValueError("ACCOUNTANT_OIDC_CLIENT_ID is not set: the provider gave you one")
    if not _SCOPES.fullmatch(settings.oidc_scopes) or "openid" not in settings.oidc_scopes.split():
        raise ValueError("ACCOUNTANT_OIDC_SCOPES must be words, and openid among them")
    return ProviderSettings(
        issuer=issuer,
        client_id=settings.oidc_client_id,
        client_secret=_secret(settings),
        scopes=settings.oidc_scopes,
        role_claim=settings.oidc_role_claim,
        roles=_roles(settings.oidc_roles),
        name_claim=settings.oidc_name_claim,
    )


def _secret(settings: Settings) -> str:
    file = settings.oidc_client_secret_file
    if not file:
        return settings.oidc_client_secret
    if settings.oidc_client_secret:
        raise ValueError(
            "ACCOUNTANT_OIDC_CLIENT_SECRET and ACCOUNTANT_OIDC_CLIENT_SECRET_FILE are both set"
        )
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ValueError(
            f"ACCOUNTANT_OIDC_CLIENT_SECRET_FILE: {file} cannot be read: {reason}"
        ) from None


def _roles(text: str) -> tuple[tuple[str, Role], ...]:
    """Return values of the claim with the role that each stands for, in order."""
    found: list[tuple[str, Role]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        value, sign, role = (part.strip() for part in entry.rpartition("="))
        if not (value and sign and role in get_args(Role)):
            raise ValueError(
                f"ACCOUNTANT_OIDC_ROLES has {entry!r}; it must be like privacy-office=officer, "
                "audit=auditor: a value of the claim and a role"
            )
        if role not in PEOPLE:
            raise ValueError(
                f"ACCOUNTANT_OIDC_ROLES has {entry!r}; nobody signs in as a {role}, only as "
                f"{', '.join(PEOPLE)}"
            )
        found.append((value, role))
    if len({value for value, _ in found}) != len(found):
        raise ValueError("ACCOUNTANT_OIDC_ROLES names a value twice")
    if not found:
        raise ValueError(
            "ACCOUNTANT_OIDC_ROLES is not set, so nobody could come in: name the values of the "
            "claim and their roles, like privacy-office=officer, audit=auditor"
        )
    return tuple(found)
