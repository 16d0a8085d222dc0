"""ID tokens and answers that cannot be believed let nobody in."""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest
from browser import Browser, new_code
from hostile import CURVE, OTHER, RSA, Hostile, hostile, signed
from joserfc.jwk import RSAKey
from support import World, logged

from accountant.auth.keys import LEDGER
from accountant.auth.oidc import NotSignedIn, Provider, new_visit
from accountant.budget.errors import Unavailable
from accountant.config.identity import ProviderSettings, provider_of
from accountant.config.settings import Settings

CALLBACK = "http://127.0.0.1/console/signin/callback"
SECRET = "s3cret-of-the-client"


@pytest.fixture(scope="module")
def served() -> Iterator[Hostile]:
    """The provider of this module."""
    with hostile() as found:
        yield found


@pytest.fixture
def bad(served: Hostile) -> Hostile:
    """The provider as it is at first."""
    served.__init__(int(served.issuer.rpartition(":")[2]))  # type: ignore[misc]
    return served


def provider(bad: Hostile, **more: Any) -> Provider:
    """Our side of it."""
    given: dict[str, Any] = {
        "issuer": bad.issuer,
        "client_id": "us",
        "client_secret": SECRET,
        "scopes": "openid",
        "role_claim": "groups",
        "roles": (("office", "officer"), ("all", "auditor")),
        "name_claim": "name",
    }
    return Provider(ProviderSettings(**given | more))


def claims(bad: Hostile, **more: Any) -> dict[str, Any]:
    """What a good ID token says; without what is None."""
    now = int(time.time())
    said = {"iss": bad.issuer, "aud": "us", "sub": "u1", "iat": now, "exp": now + 300}
    said |= {"nonce": "n", "groups": ["office"], "name": "Ann"}
    return {name: value for name, value in (said | more).items() if value is not None}


def unsigned(said: dict[str, Any], alg: str) -> str:
    """A token without a signature."""
    return ".".join(map(encoded, (orjson.dumps({"alg": alg}), orjson.dumps(said), b"")))


def encoded(data: bytes) -> str:
    """Bytes as a token has them."""
    return urlsafe_b64encode(data).decode().rstrip("=")


@pytest.mark.parametrize("alg", ["RS256", "PS384", "ES256"])
def test_a_good_token_is_believed(bad: Hostile, alg: str) -> None:
    """By any of our algorithms, which fits the key."""
    key = CURVE if alg == "ES256" else RSA
    assert provider(bad).claims(signed(claims(bad), key, alg), "n")["sub"] == "u1"


def hashed(said: dict[str, Any], secret: bytes) -> str:
    """A token with an HMAC in place of a signature."""
    header = orjson.dumps({"alg": "HS256", "kid": "one"})
    body = f"{encoded(header)}.{encoded(orjson.dumps(said))}"
    return f"{body}.{encoded(hmac.digest(secret, body.encode(), 'sha256'))}"


FORGED: dict[str, Callable[[Hostile], str]] = {
    "none": lambda bad: unsigned(claims(bad), "none"),
    "None": lambda bad: unsigned(claims(bad), "None"),
    "no signature": lambda bad: unsigned(claims(bad), "RS256"),
    "hmac with the public key": lambda bad: hashed(claims(bad), RSA.as_pem(private=False)),
    "hmac with the client's secret": lambda bad: hashed(claims(bad), SECRET.encode()),
    "another key of the same name": lambda bad: signed(claims(bad), OTHER),
    "a key in the token": lambda bad: signed(claims(bad), OTHER, jwk=OTHER.as_dict(private=False)),
    "changed": lambda bad: signed(claims(bad))[:-4] + "AAAA",
    "no token": lambda bad: "",
    "wrong nonce": lambda bad: signed(claims(bad, nonce="m")),
    "no nonce": lambda bad: signed(claims(bad, nonce=None)),
    "wrong audience": lambda bad: signed(claims(bad, aud="them")),
    "another audience beside us": lambda bad: signed(claims(bad, aud=["us", "them"])),
    "no audience": lambda bad: signed(claims(bad, aud=None)),
    "for another party": lambda bad: signed(claims(bad, azp="them")),
    "expired": lambda bad: signed(claims(bad, exp=int(time.time()) - 61)),
    "never expires": lambda bad: signed(claims(bad, exp=None)),
    "expires in words": lambda bad: signed(claims(bad, exp="tomorrow")),
    "of an hour ago": lambda bad: signed(claims(bad, iat=int(time.time()) - 3_600)),
    "from later": lambda bad: signed(claims(bad, iat=int(time.time()) + 120)),
    "not yet": lambda bad: signed(claims(bad, nbf=int(time.time()) + 120)),
    "another issuer": lambda bad: signed(claims(bad, iss=f"{bad.issuer}/")),
    "no subject": lambda bad: signed(claims(bad, sub=None)),
    "a subject with a line end": lambda bad: signed(claims(bad, sub="u\n1")),
}


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
@pytest.mark.parametrize("how", FORGED)
def test_a_token_that_cannot_be_believed_is_refused(bad: Hostile, how: str) -> None:
    """Each for one reason; the message shows nothing of the token."""
    token = FORGED[how](bad)
    with pytest.raises(NotSignedIn) as found:
        provider(bad).claims(token, "n")
    assert not token or token not in str(found.value)


def test_clocks_may_differ_by_a_minute(bad: Hostile) -> None:
    """In either direction."""
    now = int(time.time())
    for more in ({"exp": now - 50, "iat": now - 350}, {"iat": now + 50, "nbf": now + 50}):
        assert provider(bad).claims(signed(claims(bad, **more)), "n")


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
def test_keys_that_change_are_read_again(bad: Hostile) -> None:
    """A token of a new key is believed, but nobody has us read the keys all the time; short keys,
    and keys for something else, are none.
    """
    ours = provider(bad)
    assert ours.claims(signed(claims(bad)), "n")
    bad.keys = [OTHER]
    for _ in range(3):
        with pytest.raises(NotSignedIn):
            ours.claims(signed(claims(bad), OTHER), "n")
    assert bad.asked.count("/jwks_uri") == 1
    ours._keys_read -= 11  # as if time had passed
    assert ours.claims(signed(claims(bad), OTHER), "n")
    short = RSAKey.generate_key(1024, {"kid": "short"})
    bad.keys = [short]
    with pytest.raises(NotSignedIn):
        provider(bad).claims(signed(claims(bad), short), "n")


@pytest.mark.parametrize(
    "more",
    [
        {"issuer": "https://other.example"},
        {"token_endpoint": "http://other.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
    ],
)
def test_a_description_that_cannot_be_is_not_followed(bad: Hostile, more: dict[str, Any]) -> None:
    """Neither another issuer's, nor one that leads to where others listen."""
    bad.more = more
    with pytest.raises(Unavailable):
        provider(bad).begin(new_visit(), CALLBACK)


def test_a_provider_that_fails_is_not_asked_all_the_time(bad: Hostile) -> None:
    """Once in ten seconds; when it is back it is asked again."""
    ours, bad.status = provider(bad), 500
    for _ in range(5):
        with pytest.raises(Unavailable):
            ours.begin(new_visit(), CALLBACK)
    assert len(bad.asked) == 1
    bad.status, ours._failed = 200, ours._failed - 11
    assert ours.begin(new_visit(), CALLBACK).startswith(f"{bad.issuer}/authorization_endpoint?")


def test_the_answer_names_the_provider(bad: Hostile) -> None:
    """Where the provider does so, each answer has to, and be its own (RFC 9207)."""
    bad.more, visit = {"authorization_response_iss_parameter_supported": True}, new_visit()
    ours = provider(bad)
    asked = dict(parse_qsl(urlsplit(ours.begin(visit, CALLBACK)).query))
    bad.token = signed(claims(bad, nonce=asked["nonce"]))
    said = {"code": "c", "state": asked["state"]}
    for wrong in ({}, {"iss": "https://other.example"}):
        with pytest.raises(NotSignedIn, match="another identity provider"):
            ours.complete(visit, CALLBACK, said | wrong)
    assert ours.complete(visit, CALLBACK, said | {"iss": bad.issuer}).role == "officer"
    assert (asked["code_challenge_method"], len(asked["code_challenge"])) == ("S256", 43)
    assert len({asked[name] for name in ("state", "nonce", "code_challenge")}) == 3
    assert not any(visit in value for value in asked.values())


@pytest.mark.parametrize(
    ("claim", "said", "role"),
    [
        ("groups", {"groups": ["all", "office"]}, "officer"),
        ("groups", {"groups": "all"}, "auditor"),
        ("groups", {"groups": "office all"}, None),
        ("groups", {"groups": [["office"], 1, {"office": 1}]}, None),
        ("groups", {"groups": {"office": True}}, None),
        ("groups", {"groups": None}, None),
        ("realm.roles", {"realm": {"roles": ["office"]}}, "officer"),
        ("realm.roles", {"realm": "roles"}, None),
        ("https://x.example/r", {"https://x.example/r": ["all"]}, "auditor"),
    ],
)
def test_a_role_comes_from_the_claim_alone(
    bad: Hostile, claim: str, said: dict[str, Any], role: str | None
) -> None:
    """The first of the mapping that is there in full; what is no text or list of texts is none."""
    found = provider(bad, role_claim=claim)._role(claims(bad) | {"groups": None} | said)
    assert found == role


@pytest.fixture
def made(world: Callable[..., World], bad: Hostile) -> World:
    """A service that trusts the provider."""
    return world(
        oidc_issuer=bad.issuer,
        oidc_client_id="us",
        oidc_client_secret=SECRET,
        oidc_roles="office=officer",
        oidc_name_claim="name",
    )


def leave(browser: Browser) -> dict[str, str]:
    """Goes to the provider; what we ask there."""
    return dict(parse_qsl(urlsplit(browser.get("/console/signin/oidc").headers["location"]).query))


def test_a_visit_lets_in_once(made: World, bad: Hostile) -> None:
    """Also where the provider takes its code again; and not without the cookie, nor with another
    state, nor where a parameter stands twice. Codes, secrets and tokens are in no log.
    """
    browser = Browser(made)
    asked = leave(browser)
    visit = browser.http.cookies["accountant-visit"]
    bad.token = signed(claims(bad, nonce=asked["nonce"]))
    path = f"/console/signin/callback?state={asked['state']}&code=the-code"
    with logged() as lines:
        assert Browser(made).get(path).status_code == 403
        assert browser.get(f"{path}&code=another").status_code == 403
        browser.http.cookies.set("accountant-visit", visit)
        assert browser.get(path.replace("state=", "state=x")).status_code == 403
        browser.http.cookies.set("accountant-visit", visit)
        assert browser.get(path).status_code == 303
        again = Browser(made)
        again.http.cookies.set("accountant-visit", visit)
        answer = again.get(path)
    assert (answer.status_code, "was used already" in answer.text) == (403, True)
    for secret in ("the-code", SECRET, visit, bad.token, asked["state"]):
        assert secret not in str(lines)
        assert all(secret not in row.body.decode() for row in made.service.ledgers.read(LEDGER, 0))


def test_one_person_does_not_fill_the_ledger(made: World, bad: Hostile) -> None:
    """The twenty-first sign-in within an hour is refused, without an event."""
    browser, size = Browser(made), 0
    for turn in range(21):
        asked = leave(browser)
        bad.token = signed(claims(bad, nonce=asked["nonce"]))
        answer = browser.get(f"/console/signin/callback?state={asked['state']}&code=c")
        assert answer.status_code == (303 if turn < 20 else 429), answer.text
        before, size = size, made.service.ledgers.head(LEDGER).size
    assert before == size


def test_many_strangers_do_not_fill_the_ledger(made: World, bad: Hostile) -> None:
    """Of those who have no role here a hundred an hour are recorded."""
    made.http.close()
    ring = made.service.credentials
    from accountant.auth.oidc import Person  # noqa: PLC0415
    from accountant.auth.people import _turn_away  # noqa: PLC0415

    before = made.service.ledgers.head(LEDGER).size
    for number in range(103):
        _turn_away(ring, Person((bad.issuer, f"u{number}"), None, "", str(number)), "person.x")
    assert made.service.ledgers.head(LEDGER).size == before + 100


def test_without_the_provider_a_link_still_lets_in(made: World, bad: Hostile) -> None:
    """The page says that the provider cannot be asked."""
    browser, bad.status = Browser(made), 500
    answer = browser.get("/console/signin/oidc")
    assert (answer.status_code, "cannot be asked" in answer.text) == (503, True)
    assert browser.post("/console/signin/code", {"code": new_code(made)}).status_code == 303


def test_a_refusal_of_the_provider_is_told_in_our_words(made: World) -> None:
    """What it sends is not shown."""
    browser = Browser(made)
    state = leave(browser)["state"]
    text = "<b>call 555</b>"
    answer = browser.get(
        "/console/signin/callback",
        params={"state": state, "error": "access_denied", "error_description": text},
    )
    assert (answer.status_code, "declined there" in answer.text) == (403, True)
    assert "555" not in answer.text


GOOD = {"oidc_issuer": "https://id.example.org", "oidc_client_id": "us", "oidc_roles": "a=officer"}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"oidc_issuer": "http://id.example.org"}, "ISSUER"),
        ({"oidc_issuer": "https://id.example.org/?a"}, "ISSUER"),
        ({"oidc_issuer": ""}, "ISSUER is not set"),
        ({"oidc_client_id": ""}, "CLIENT_ID"),
        ({"oidc_roles": ""}, "ROLES is not set"),
        ({"oidc_roles": "a"}, "ROLES"),
        ({"oidc_roles": "a=boss"}, "ROLES"),
        ({"oidc_roles": "a=pipeline"}, "nobody signs in as a pipeline"),
        ({"oidc_roles": "a=officer,a=admin"}, "twice"),
        ({"oidc_scopes": "profile"}, "SCOPES"),
        ({"oidc_client_secret_file": "/nowhere/at/all"}, "cannot be read"),
        ({"oidc_client_secret": SECRET, "oidc_client_secret_file": "x"}, "both set"),
    ],
)
def test_settings_that_cannot_be_are_named(more: dict[str, str], reason: str) -> None:
    """When the service starts, without the secret."""
    with pytest.raises(ValueError, match=reason) as found:
        provider_of(Settings(**GOOD | more))  # type: ignore[arg-type]
    assert SECRET not in str(found.value)


def test_the_secret_is_not_shown(tmp_path: Any) -> None:
    """Neither by the settings nor by what is made of them; it may stand in a file."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    for more in ({"oidc_client_secret": SECRET}, {"oidc_client_secret_file": f"{tmp_path}/secret"}):
        settings = Settings(**GOOD | more)  # type: ignore[arg-type]
        found = provider_of(settings)
        assert found is not None
        assert found.client_secret == SECRET
        assert SECRET not in repr(settings) + repr(found)
