"""Sign-in through an identity provider: OpenID Connect, authorization code flow with PKCE (S256).

The browser keeps one random secret while it is away at the provider; state, nonce and the code's
verifier are derived from it, each by a hash of its own. So nothing is stored for visits that never
come back. An ID token is believed only if it is signed by a key of the provider with an algorithm
of ``ALGORITHMS``, is about this visit, meant for us alone, and fresh (OpenID Connect Core 1.0,
3.1.3.7; RFC 7636, RFC 9207).
"""

from __future__ import annotations

import secrets
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final, TypeGuard
from urllib.parse import quote, urlencode, urlsplit

import orjson
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from accountant.auth.ring import Identity
from accountant.budget.commands import Role
from accountant.budget.errors import Forbidden, Problem, Unavailable
from accountant.config.identity import ProviderSettings
from accountant.config.origins import is_sound

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC: Final = ("ES256", "ES384", "ES512")
ALGORITHMS: Final = (*_RSA, *_EC)
"""By which ID tokens may be signed: with keys that only the provider has. Never none, never HMAC,
whose key would be the client's secret, or worse a public key.
"""
SKEW: Final = 60
"""Seconds that the provider's clock and ours may differ."""
VISIT: Final = 600
"""Seconds that a visit to the provider may take: an older ID token is of another visit."""
_STEP: Final = 5.0
"""Seconds for each step of an exchange with the provider."""
_WHOLE: Final = 15.0
_MOST: Final = 1_000_000
"""Bytes of an answer of the provider."""
_KEEP: Final = 3_600.0
"""Seconds that the provider's description and keys are believed."""
_AGAIN: Final = 10.0
"""Seconds between two readings, so that nobody can have us ask the provider all the time."""
_LEAST_RSA: Final = 2_048


class NotSignedIn(Problem):
    """Nobody was signed in: the answer of the provider cannot be believed, or it says no."""

    def __init__(self, detail: str) -> None:
        super().__init__("unauthenticated", f"you were not signed in: {detail}")


@dataclass(frozen=True, slots=True)
class Person:
    """Whom the provider has signed in: who, with which role here (None: with none), the name they
    would like, and the digest of the visit.
    """

    identity: Identity
    role: Role | None
    wish: str
    flow: str


@dataclass(frozen=True, slots=True)
class _Description:
    """What a provider says of itself."""

    authorization: str
    token: str
    jwks: str
    basic: bool
    names_itself: bool


class Provider:
    """The identity provider. Thread-safe. ``now`` returns seconds since 1970."""

    def __init__(self, settings: ProviderSettings, now: Callable[[], float] = time.time) -> None:
        self.settings, self._now = settings, now
        self._lock = threading.Lock()
        self._description: _Description | None = None
        self._keys: list[RSAKey | ECKey] = []
        self._read = self._keys_read = self._failed = float("-inf")

    def begin(self, visit: str, callback: str) -> str:
        """Return the address to which a browser goes that keeps the secret ``visit``. Raise
        Unavailable.
        """
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": callback,
            "scope": self.settings.scopes,
            "state": _derived(visit, "state"),
            "nonce": _derived(visit, "nonce"),
            "code_challenge": _b64(sha256(_derived(visit, "verifier").encode()).digest()),
            "code_challenge_method": "S256",
        }
        where = self._described().authorization
        return f"{where}{'&' if urlsplit(where).query else '?'}{urlencode(asked)}"

    def complete(self, visit: str, callback: str, said: Mapping[str, str]) -> Person:
        """Return who has come back from the provider with the parameters ``said``. Raise
        NotSignedIn, Unavailable.
        """
        if not (visit and compare_digest(said.get("state", "").encode(), _state(visit))):
            raise NotSignedIn("this is not the browser, or not the visit, that went there")
        description = self._described()
        if said.get("iss", self.settings.issuer) != self.settings.issuer or (
            description.names_itself and "iss" not in said
        ):
            raise NotSignedIn("another identity provider has answered")
        if "error" in said or not said.get("code"):
            why = {"access_denied": "that was declined there"}
            raise NotSignedIn(why.get(said.get("error", ""), "the identity provider gave an error"))
        answer = self._exchange(description, said["code"], _derived(visit, "verifier"), callback)
        claims = self.claims(answer.get("id_token"), _derived(visit, "nonce"))
        return Person(
            identity=(self.settings.issuer, claims["sub"]),
            role=self._role(claims),
            wish=str(claims.get(self.settings.name_claim, "")),
            flow=sha256(_state(visit)).hexdigest(),
        )

    def claims(self, token: Any, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token. Raise NotSignedIn unless all of it can be believed."""
        if not isinstance(token, str) or token.count(".") != 2:
            raise NotSignedIn("the identity provider gave no ID token")
        claims, now = self._signed(token), self._now()
        mine, issuer = self.settings.client_id, self.settings.issuer
        exp, iat, nbf = claims.get("exp"), claims.get("iat"), claims.get("nbf", 0)
        if claims.get("iss") != issuer:
            raise NotSignedIn(f"the ID token is not of {issuer}")
        if claims.get("aud") not in (mine, [mine]) or claims.get("azp", mine) != mine:
            raise NotSignedIn("the ID token is meant for another program")
        if not (_is_time(exp) and _is_time(iat) and _is_time(nbf)):
            raise NotSignedIn("the ID token does not say when it was made and until when it holds")
        if now >= exp + SKEW or nbf > now + SKEW:
            raise NotSignedIn("the ID token has expired; if this goes on, a clock is wrong")
        if not now - VISIT - SKEW <= iat <= now + SKEW:
            raise NotSignedIn("the ID token is not of now; if this goes on, a clock is wrong")
        if not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise NotSignedIn("the ID token is of another visit")
        subject = claims.get("sub")
        if not (isinstance(subject, str) and subject.isprintable() and 0 < len(subject) <= 255):
            raise NotSignedIn("the ID token does not say who you are")
        return claims

    def _signed(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that a key of the provider has signed."""
        for again in (False, True):
            for key in self._provider_keys(again=again):
                fits = _RSA if isinstance(key, RSAKey) else _EC
                try:
                    return dict(jwt.decode(token, key, algorithms=fits).claims)
                except (JoseError, ValueError, TypeError):
                    continue
        raise NotSignedIn("the ID token is not signed by a key of the identity provider")

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        found: Any = claims.get(self.settings.role_claim)
        if found is None:
            found = claims
            for part in self.settings.role_claim.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
        held = {found} if isinstance(found, str) else set()
        if isinstance(found, list):
            held = {one for one in found if isinstance(one, str)}
        return next((role for value, role in self.settings.roles if value in held), None)

    # What is asked of the provider

    def _described(self) -> _Description:
        with self._lock:
            here = time.monotonic()
            if self._description is None or here > self._read + _KEEP:
                if self._description is None and here < self._failed + _AGAIN:
                    raise _unreachable("it was asked a moment ago")
                try:
                    self._description = self._discover()
                    self._read = here
                except Unavailable:
                    self._failed = here
                    if self._description is None:
                        raise
                    self._read = here - _KEEP + _AGAIN  # what it said before holds meanwhile
            return self._description

    def _discover(self) -> _Description:
        issuer = self.settings.issuer
        said = self._asked(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if said.get("issuer") != issuer:
            raise _unreachable(f"it calls itself {said.get('issuer')!r}, not {issuer!r}")
        methods = said.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return _Description(
            authorization=_endpoint(said, "authorization_endpoint"),
            token=_endpoint(said, "token_endpoint"),
            jwks=_endpoint(said, "jwks_uri"),
            basic="client_secret_basic" in methods,
            names_itself=said.get("authorization_response_iss_parameter_supported") is True,
        )

    def _provider_keys(self, *, again: bool) -> list[RSAKey | ECKey]:
        """Return the keys of the provider; ``again``: read them anew, for it may have new ones."""
        where = self._described().jwks
        with self._lock:
            here = time.monotonic()
            if here > self._keys_read + (_AGAIN if again or not self._keys else _KEEP):
                said = self._asked(where).get("keys")
                found = [_key(one) for one in said] if isinstance(said, list) else []
                self._keys = [one for one in found if one is not None]
                self._keys_read = here
            return self._keys

    def _exchange(
        self, description: _Description, code: str, verifier: str, callback: str
    ) -> dict[str, Any]:
        """Return what the provider gives for a code."""
        mine, secret = self.settings.client_id, self.settings.client_secret
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": callback}
        form |= {"code_verifier": verifier}
        headers = {}
        if secret and description.basic:  # each part is encoded as in a form (RFC 6749, 2.3.1)
            pair = f"{quote(mine, safe='')}:{quote(secret, safe='')}".encode()
            headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        else:
            form |= {"client_id": mine} | ({"client_secret": secret} if secret else {})
        return self._asked(description.token, form, headers)

    def _asked(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object that the provider answers. No redirect is followed. Raise
        NotSignedIn for a code that it does not take, Unavailable for whatever else goes wrong.
        """
        import httpx2  # noqa: PLC0415 it takes long to load, and many services have no provider

        end, body = time.monotonic() + _WHOLE, b""
        try:
            with (
                httpx2.Client(timeout=_STEP, follow_redirects=False) as client,
                client.stream(
                    "POST" if form else "GET",
                    url,
                    data=dict(form) if form else None,
                    headers={"Accept": "application/json", **(headers or {})},
                ) as answer,
            ):
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > _MOST or time.monotonic() > end:
                        raise _unreachable("its answer is too long, or takes too long")
            status = answer.status_code
            said = orjson.loads(body) if status == 200 or form else {}
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise _unreachable(type(error).__name__) from error
        if form and status in (400, 401) and isinstance(said, dict):
            if said.get("error") == "invalid_grant":
                raise NotSignedIn("the identity provider does not take the code; begin again")
            raise _unreachable("it refuses this service: is the client's secret right?")
        if status != 200 or not isinstance(said, dict):
            raise _unreachable(f"it answers {status}")
        return said


def _is_time(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float)


def new_visit() -> str:
    """Return a fresh secret for a visit to the provider."""
    return secrets.token_urlsafe(32)


def _derived(visit: str, purpose: str) -> str:
    return _b64(sha256(f"{purpose}:{visit}".encode()).digest())


def _state(visit: str) -> bytes:
    return _derived(visit, "state").encode()


def _b64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _unreachable(why: str) -> Unavailable:
    return Unavailable("provider-unavailable", f"the identity provider cannot be asked: {why}")


def _endpoint(said: Mapping[str, Any], name: str) -> str:
    url = said.get(name)
    if not isinstance(url, str) or not is_sound(url):
        raise _unreachable(f"its {name} is no https address")
    return url


def _key(said: Any) -> RSAKey | ECKey | None:
    """Return a public key that signs; None for any other, and for what cannot be read."""
    if not isinstance(said, dict) or said.get("use", "sig") != "sig":
        return None
    try:
        key = JWKRegistry.import_key(said)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAKey):
        return key if key.public_key.key_size >= _LEAST_RSA else None
    return key if isinstance(key, ECKey) else None


def no_role() -> Forbidden:
    """Return the refusal of somebody without a role here."""
    return Forbidden(
        "role-not-allowed",
        "your organisation has signed you in, and gives you no role here: ask whoever looks after "
        "your account for one of the groups that may come in",
    )
