"""Who looks at a page: from the cookie to the session, and from a form to its fields.

A page that changes something is a form. It is taken only from a page of ours: the browser says
where it comes from (``Origin``, ``Sec-Fetch-Site``), and the form carries the session's token.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute

from accountant.api.problems import answer_to
from accountant.auth.keys import Key
from accountant.auth.oidc import Provider
from accountant.auth.sessions import Session, Sessions, same_token
from accountant.budget.commands import Role
from accountant.config.origins import host_of, is_loopback
from accountant.console.place import Place
from accountant.console.rendering import render
from accountant.door.keys import Attempts
from accountant.door.messages import shown
from accountant.door.reading import FORM_BYTES
from accountant.reporting.desk import Behind

COOKIE: Final = "accountant"
SIGN_IN: Final = "/console/signin"
HOME: Final = "/console"
MOST_FIELDS: Final = 32
CSRF: Final = "csrf"
"""The field of each form of a session that holds its token."""
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: with that browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_LOCAL: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,1000}")
"""A path of ours: one slash, and no backslash, which browsers take for a slash."""
_NOT_OURS: Final = "this form was not sent by a page of this service: nothing was done"


class Refused(Exception):
    """A visit that is answered by a page that says why."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, dict(headers or {})


class SignInFirst(Exception):
    """A visit without a session, which goes on once the visitor has signed in."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Reading(Exception):
    """The ledger is being read: there is nothing to show of it yet."""

    def __init__(self, population: str, behind: Behind) -> None:
        super().__init__(population)
        self.population, self.behind = population, behind


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whoever has signed in and looks at a page: as which key they act, the token for their forms,
    and until when their session lasts at most (microseconds since 1970).
    """

    key: Key
    csrf: str
    until: int

    @property
    def name(self) -> str:
        """The name in events."""
        return self.key.name

    @property
    def role(self) -> Role:
        """The role."""
        return self.key.role

    @classmethod
    def of(cls, session: Session) -> Visitor:
        """Return the visitor of a session."""
        return cls(session.key, session.csrf, session.until)


@dataclass(frozen=True, slots=True)
class Console:
    """What the console needs beside the service; ``app.state.console``."""

    place: Place
    sessions: Sessions
    attempts: Attempts
    provider: Provider | None = None


def console_of(request: Request) -> Console:
    """Return the console, if the request comes by an address at which it may be used. Raise
    Refused: cookies would go over the network in clear.
    """
    console: Console = request.app.state.console
    host = request.headers.get("host", "")
    if not console.place.origin and not is_loopback(host_of(host)):
        raise Refused(
            403,
            "The console is not set up for this address. Set ACCOUNTANT_PUBLIC_URL to the https "
            "address at which people reach it, or open it on the machine itself.",
        )
    return console


def cookie_of(request: Request, name: str) -> str:
    """Return the value of one of our cookies, empty if there is none."""
    return request.cookies.get(console_of(request).place.prefix + name, "")


def set_cookie(response: Response, place: Place, name: str, value: str, seconds: int) -> None:
    """Set one of our cookies; an empty value takes it away."""
    response.set_cookie(
        place.prefix + name,
        value,
        max_age=seconds if value else 0,
        path="/",
        secure=place.secure,
        httponly=True,
        samesite="lax",
    )


def session_of(request: Request) -> Session | None:
    """Return the session of whoever asks, if there is one."""
    token = cookie_of(request, COOKIE)
    return console_of(request).sessions.find(token) if token else None


def visitor(*roles: Role, anywhere: bool = False) -> Callable[..., Visitor]:
    """Return a dependency: the visitor, who must have one of ``roles``; any, if none are named; and
    whose key must reach the population in the path, or all populations if it names none. A page
    that shows everybody their own is ``anywhere``. Without a session a page is shown after the
    visitor has signed in.
    """

    def found(request: Request) -> Visitor:
        session = session_of(request)
        if session is None:
            query = f"?{request.url.query}" if request.url.query else ""
            raise SignInFirst(request.url.path + query if request.method == "GET" else HOME)
        request.state.client = session.key.name
        if roles and session.key.role not in roles:
            needs = " or ".join(roles)
            text = f"You have the role {session.key.role}; this page needs {needs}."
            raise Refused(403, text)
        population = request.path_params.get("population")
        if population is not None or not anywhere:
            session.key.check_scope(population)
        return Visitor.of(session)

    found.roles = roles  # type: ignore[attr-defined]
    return found


def form(
    *required: str,
    optional: tuple[str, ...] = (),
    roles: tuple[Role, ...] = (),
    anywhere: bool = False,
) -> Callable[..., Awaitable[Form]]:
    """Return a dependency: a form of a visitor with one of ``roles``, with its fields."""
    who = visitor(*roles, anywhere=anywhere)

    async def found(request: Request, sent: Visitor = Depends(who)) -> Form:  # noqa: B008
        fields = await fields_of(request, (*required, CSRF), optional)
        if not same_token(fields.pop(CSRF), sent.csrf):
            raise Refused(403, f"The page was made for another session: {_NOT_OURS}.")
        return Form(sent, fields)

    return found


@dataclass(frozen=True, slots=True)
class Form:
    """A form that was sent by a page of ours: by whom, and the values of its fields."""

    visitor: Visitor
    fields: dict[str, str]


async def fields_of(
    request: Request, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the fields of a form that a page of ours sent, read strictly. Raise Refused."""
    check_origin(request)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise Refused(415, "A form is sent as application/x-www-form-urlencoded.")
    body = await request.body()
    if len(body) > FORM_BYTES:
        raise Refused(413, f"The form has {len(body)} bytes; the most is {FORM_BYTES}.")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError:
        raise Refused(400, "The form cannot be read.") from None
    fields = dict(pairs)
    known = {*required, *optional}
    if len(fields) != len(pairs) or not fields.keys() <= known or not fields.keys() >= {*required}:
        raise Refused(400, f"The form has to have these fields once: {', '.join(sorted(known))}.")
    return fields


def check_origin(request: Request) -> None:
    """Raise Refused unless the browser says that a page of ours sends the request."""
    console = console_of(request)
    said = request.headers.getlist("origin")
    site = request.headers.getlist("sec-fetch-site")
    ours = all(console.place.is_ours(one, request.headers.get("host", "")) for one in said)
    same = all(one == "same-origin" for one in site)
    if not (ours and same and len(said) <= 1 and (said or site)):
        raise Refused(403, f"The browser says that another site sent it: {_NOT_OURS}.")


def local_path(text: str) -> str:
    """Return where to go next: a path of the console, or its first page for anything else."""
    plain = unquote(text)
    if not _LOCAL.fullmatch(text) or not _LOCAL.fullmatch(plain) or "/../" in f"{plain}/":
        return HOME
    path = urlsplit(text).path
    inside = path == HOME or path.startswith(f"{HOME}/")
    return text if inside and not path.startswith(SIGN_IN) else HOME


class Page(APIRoute):
    """A page: it has our headers whatever happens, and says what went wrong as a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response = await handler(request)
            except SignInFirst as first:
                path = local_path(first.path)
                where = SIGN_IN if path == HOME else f"{SIGN_IN}?next={quote(path, safe='')}"
                response = RedirectResponse(where, 303)
            except Refused as refused:
                response = refusal(refused.status, refused.text, refused.headers)
            except Reading as reading:
                response = HTMLResponse(render("reading.html.j2", reading=reading), 503)
                response.headers["Refresh"] = "2"
            except RequestValidationError:
                response = refusal(404, "There is no such page.")
            except Exception as error:
                known = answer_to(error, shown(request.url.path))
                if known is None:
                    raise
                status = 403 if known.status_code == 401 else known.status_code
                response = refusal(status, sentence(error))
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answer


def pages() -> APIRouter:
    """Return a router for pages under /console."""
    return APIRouter(prefix=HOME, route_class=Page, include_in_schema=False)


def sentence(error: Exception) -> str:
    """Return what a foreseen error says, as a sentence."""
    detail: str = getattr(error, "detail", "the service cannot answer now; try again")
    return f"{detail[:1].upper()}{detail[1:]}."


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """Return the page that says why there is no other."""
    page = render("refused.html.j2", text=text)
    return HTMLResponse(page, status, dict(headers or {}))
