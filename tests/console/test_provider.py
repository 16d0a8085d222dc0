"""People sign in through a real identity provider: Canaille, which pytest-iam runs in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from browser import Browser
from support import World

from accountant.auth.keys import LEDGER
from accountant.auth.links import Links
from accountant.auth.oidc import Person
from accountant.auth.people import name_of
from accountant.auth.ring import KeyRing
from accountant.budget.errors import Conflict
from accountant.ledger.events import Event

if TYPE_CHECKING:
    from pytest_iam import Server

pytestmark = pytest.mark.xdist_group("provider")


@pytest.fixture(scope="session")
def provider(request: pytest.FixtureRequest) -> Server:
    """The provider. Its package takes half a second to load, so others do without it."""
    import pytest_iam  # noqa: PLC0415

    request.config.pluginmanager.register(pytest_iam, "provider")
    found: Server = request.getfixturevalue("iam_server")
    return found


@pytest.fixture
def made(world: Callable[..., World], provider: Server) -> Iterator[World]:
    """A service that is known at the provider."""
    found = world(
        oidc_issuer=f"http://localhost:{provider.port}",
        oidc_client_id="accountant",
        oidc_client_secret="a secret: with / signs",
        oidc_scopes="openid profile groups",
        oidc_roles="privacy-office=officer, auditors=auditor",
    )
    origin = f"http://127.0.0.1:{found.http.port}"
    client = provider.models.Client(
        client_id="accountant",
        client_secret="a secret: with / signs",
        client_name="accountant",
        client_uri=origin,
        redirect_uris=[f"{origin}/console/signin/callback"],
        grant_types=["authorization_code"],
        response_types=["code"],
        scope=["openid", "profile", "groups"],
        token_endpoint_auth_method="client_secret_basic",
    )
    provider.backend.save(client)
    client.audience = [client]
    provider.backend.save(client)
    yield found
    provider.logout()
    forget_codes(provider)
    provider.backend.delete(client)


def officer(provider: Server, **more: Any) -> Any:
    """Somebody of the privacy office."""
    user = provider.random_user(**more)
    group = provider.random_group(display_name="privacy-office", members=[user])
    return user, group


def travel(made: World, browser: Browser, after: str = "") -> Any:
    """Goes to the provider and back; the last answer of the console."""
    away = browser.get(f"/console/signin/oidc?next={after}")
    assert away.status_code == 303, away.text
    return browser.get(at_provider(away.headers["location"]))


def at_provider(location: str) -> str:
    """Where the provider sends a browser back, in which somebody has signed in."""
    answer = httpx2.get(location, follow_redirects=False, trust_env=False)
    assert answer.status_code in (302, 303), answer.text
    return str(answer.headers["location"])


def forget_codes(provider: Server) -> None:
    """Has the provider forget codes that were not used: its memory finds them by their client."""
    with provider.app.app_context():
        for code in provider.backend.query(provider.models.AuthorizationCode):
            provider.backend.delete(code)


def people(made: World) -> list[Event]:
    """The events about people."""
    found = [Event.from_bytes(row.body) for row in made.service.ledgers.read(LEDGER, 0)]
    return [one for one in found if one.type.startswith("person.")]


def test_an_officer_signs_in(made: World, provider: Server) -> None:
    """By PKCE, with the role of their group, to where they were going; the event says who they are
    for the provider, and nothing else of the visit is kept.
    """
    user, _ = officer(provider, display_name="Renée.Dupont@example.org")
    provider.login(user)
    browser = Browser(made)
    answer = travel(made, browser, "/console/fair/accounts")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/fair/accounts")
    page = browser.get("/console/session").text
    [event] = people(made)
    assert f"{event.by} with the role officer" in page
    assert event.by.startswith("renee-dupont.")
    assert set(event.body) == {"issuer", "subject", "role", "flow"}
    assert event.body["issuer"] == made.settings.oidc_issuer
    assert "accountant-visit" not in browser.http.cookies


def test_a_name_stays_and_is_nobody_elses(made: World, provider: Server) -> None:
    """Whoever takes another's name at the provider does not become them, and not a key; whoever is
    called otherwise there stays who they are here.
    """
    first, _ = officer(provider, display_name="admin")
    second, _ = officer(provider, display_name="admin")
    provider.login(first)
    travel(made, Browser(made))
    provider.login(second)
    travel(made, Browser(made))
    with provider.app.app_context():
        provider.backend.update(first, display_name="officer")
        provider.backend.save(first)
    provider.login(first)
    travel(made, Browser(made))
    names = [one.by for one in people(made)]
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("admin.") for name in names)
    credentials = made.service.credentials
    for make in (
        lambda: credentials.create(names[0].upper(), "auditor", "operator:ann"),
        lambda: Links(credentials).create(names[0], "auditor", "operator:ann"),
    ):
        with pytest.raises(Conflict, match="identity provider"):
            make()


def test_a_key_with_the_name_keeps_a_person_out(made: World, provider: Server) -> None:
    """They would act as whoever has the key."""
    user, _ = officer(provider, display_name="zoe")
    provider.login(user)
    who = Person((made.settings.oidc_issuer, user.user_name), "officer", "zoe", "")
    made.service.credentials.create(name_of(KeyRing(), who), "auditor", "operator:ann")
    answer = travel(made, Browser(made))
    assert (answer.status_code, "a key has that name" in answer.text) == (403, True)
    assert people(made) == []


def test_nobody_comes_in_without_a_role(made: World, provider: Server) -> None:
    """The page says so; one event an hour says who tried; sessions from before end."""
    user, group = officer(provider)
    provider.login(user)
    browser = Browser(made)
    assert travel(made, browser).status_code == 303
    with provider.app.app_context():
        provider.backend.update(group, members=[provider.random_user()])
        provider.backend.save(group)
    for _ in range(3):
        answer = travel(made, Browser(made))
        assert (answer.status_code, "gives you no role here" in answer.text) == (403, True)
    assert [one.type for one in people(made)] == ["person.signed_in.v1", "person.refused.v1"]
    assert browser.get("/console/session").status_code == 303


def test_another_role_ends_the_sessions_of_the_first(made: World, provider: Server) -> None:
    """What a session may do is what the last sign-in said."""
    user, group = officer(provider)
    provider.login(user)
    before, after = Browser(made), Browser(made)
    travel(made, before)
    with provider.app.app_context():
        provider.backend.update(group, display_name="auditors")
        provider.backend.save(group)
    travel(made, after)
    assert "the role auditor" in after.get("/console/session").text
    assert before.get("/console/session").status_code == 303


def test_a_code_of_another_visit_lets_nobody_in(made: World, provider: Server) -> None:
    """A code that somebody else got does not fit the visit of this browser, nor does their whole
    address, nor the same one again.
    """
    user, _ = officer(provider)
    provider.login(user)
    theirs, mine = Browser(made), Browser(made)
    stolen = at_provider(theirs.get("/console/signin/oidc").headers["location"])
    code = dict(parse_qsl(urlsplit(stolen).query))["code"]
    away = mine.get("/console/signin/oidc").headers["location"]
    state = dict(parse_qsl(urlsplit(away).query))["state"]
    iss = urlencode({"iss": made.settings.oidc_issuer})
    for address in (stolen, f"/console/signin/callback?code={code}&state={state}&{iss}"):
        visit = mine.http.cookies["accountant-visit"]
        answer = mine.get(address)
        assert answer.status_code == 403
        mine.http.cookies.set("accountant-visit", visit)
    assert "does not take the code" in answer.text
    forget_codes(provider)
    back = theirs.get("/console/signin/oidc").headers["location"]
    visit, back = theirs.http.cookies["accountant-visit"], at_provider(back)
    assert theirs.get(back).status_code == 303
    theirs.http.cookies.set("accountant-visit", visit)
    assert theirs.get(back).status_code == 403
    assert [one.type for one in people(made)] == ["person.signed_in.v1"]
