"""How people sign in and out: by a one-time code, or through the identity provider."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote, unquote

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from accountant.auth.oidc import VISIT, new_visit
from accountant.auth.people import enter
from accountant.budget.errors import Problem, Unavailable
from accountant.budget.facts import SECOND
from accountant.config.logs import logger
from accountant.console.access import (
    COOKIE,
    SIGN_IN,
    Form,
    Refused,
    Visitor,
    console_of,
    cookie_of,
    fields_of,
    form,
    local_path,
    pages,
    sentence,
    session_of,
    set_cookie,
    visitor,
)
from accountant.console.rendering import render
from accountant.door.keys import Attempts
from accountant.ledger.events import rfc3339

After = Annotated[str, Query(alias="next")]
"""Where to go once one has signed in."""
router = pages()
_log = logger()
VISIT_COOKIE: Final = "accountant-visit"
"""Keeps the secret of a visit to the identity provider, and where to go then."""
_MOST_CODE: Final = 100
"""Characters of a code; ours have 39."""
_GUESSED: Final = "Too many wrong codes came from this address; try again in {} seconds."


@router.get("/signin")
def show(request: Request, after: After = "") -> Response:
    """Show how to sign in; whoever has, goes on."""
    path = local_path(after)
    if session_of(request) is not None:
        return RedirectResponse(path, 303)
    return _page(request, path)


def _page(
    request: Request, path: str, code: str = "", wrong: str = "", status: int = 200
) -> HTMLResponse:
    """Return the page on which one signs in. ``path``: where to go then."""
    offers = console_of(request).provider is not None
    page = render("signin.html.j2", next=path, code=code, wrong=wrong, provider=offers)
    return HTMLResponse(page, status)


@router.get("/signin/link/{code}")
def show_link(request: Request, code: str) -> Response:
    """Show a button that uses the code. To open the address does not: programs that check mail
    open it, too.
    """
    return _page(request, local_path(""), code=code[:_MOST_CODE])


async def code_sent(request: Request) -> dict[str, str]:
    """Return the fields of the form with the code."""
    return await fields_of(request, ("code",), ("next",))


@router.post("/signin/code")
def enter_by_code(
    request: Request, sent: Annotated[dict[str, str], Depends(code_sent)]
) -> Response:
    """Sign in by a one-time code. Wrong ones are counted for each address, as wrong keys are."""
    path, address = local_path(sent.get("next", "")), address_of(request)
    attempts: Attempts = request.app.state.console.attempts
    if wait := attempts.wait(address):
        headers = {"Retry-After": str(wait)}
        raise Refused(429, _GUESSED.format(wait), headers)
    try:
        token = console_of(request).sessions.enter_by_link(sent["code"][:_MOST_CODE])
    except Problem as problem:
        if problem.code != "unauthenticated":
            raise
        attempts.wrong(address)
        _log.warning("a wrong one-time code", address=address)
        return _page(request, path, wrong=sentence(problem), status=403)
    return entered(request, token, path)


def entered(request: Request, token: str, path: str) -> Response:
    """Return the answer to a sign-in: the cookie of the new session, in place of any other."""
    console = console_of(request)
    if before := cookie_of(request, COOKIE):
        console.sessions.end(before)
    response = RedirectResponse(path, 303)
    set_cookie(response, console.place, COOKIE, token, console.sessions.longest // SECOND)
    return response


@router.get("/signin/oidc")
def leave(request: Request, after: After = "") -> Response:
    """Send the visitor to the identity provider."""
    console = console_of(request)
    if console.provider is None:
        raise Refused(404, "No identity provider is set up here; sign in with a one-time link.")
    visit = new_visit()
    response = RedirectResponse(console.provider.begin(visit, _callback(request)), 303)
    where = quote(local_path(after), safe="")
    set_cookie(response, console.place, VISIT_COOKIE, f"{visit}.{where}", VISIT)
    return response


@router.get("/signin/callback")
def come_back(request: Request) -> Response:
    """Sign in whoever comes back from the identity provider, in the browser that went there."""
    console, address = console_of(request), address_of(request)
    if console.provider is None:
        raise Refused(404, "No identity provider is set up here; sign in with a one-time link.")
    visit, _, where = cookie_of(request, VISIT_COOKIE).partition(".")
    said = dict(request.query_params)
    if len(said) != len(request.query_params.multi_items()):
        said = {}  # two programs could read it differently
    if wait := console.attempts.wait(address):
        raise Refused(429, _GUESSED.format(wait), {"Retry-After": str(wait)})
    try:
        person = console.provider.complete(visit, _callback(request), said)
        token = enter(request.app.state.service.credentials, console.sessions, person)
    except Problem as problem:
        if problem.code == "unauthenticated":
            console.attempts.wrong(address)
        status = {"too-many-sign-ins": 429}.get(problem.code, 403)
        status = 503 if isinstance(problem, Unavailable) else status
        _log.warning("nobody was signed in", reason=problem.detail)
        response: Response = _page(request, local_path(""), wrong=sentence(problem), status=status)
    else:
        response = entered(request, token, local_path(unquote(where)))
    set_cookie(response, console.place, VISIT_COOKIE, "", 0)
    return response


def _callback(request: Request) -> str:
    """Return the address to which the provider sends a browser back."""
    origin = console_of(request).place.origin or f"http://{request.headers.get('host', '')}"
    return f"{origin}{SIGN_IN}/callback"


@router.get("/session")
def show_session(who: Annotated[Visitor, Depends(visitor(anywhere=True))]) -> Response:
    """Show who has signed in, and a button that ends the session."""
    until = rfc3339(who.until)[:16].replace("T", " ")
    return HTMLResponse(render("session.html.j2", who=who, until=until))


@router.post("/signout")
def sign_out(request: Request, sent: Annotated[Form, Depends(form(anywhere=True))]) -> Response:
    """End the session, here and in all copies of the cookie."""
    console = console_of(request)
    console.sessions.end(cookie_of(request, COOKIE))
    response = RedirectResponse(SIGN_IN, 303)
    set_cookie(response, console.place, COOKIE, "", 0)
    return response


def address_of(request: Request) -> str:
    """Return the address that a request came from, as the door sees it."""
    return str(request.scope.get("state", {}).get("address", ""))
