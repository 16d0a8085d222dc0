"""The blocks of code on the pages, and how each language is checked."""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import typer
import yaml
from support import make, mechanism

from accountant import cli
from accountant.api.app import create_app
from accountant.budget.policy_file import parse_policy
from accountant.client.command_line.parsers import BESIDE_THE_DATABASE, parse
from accountant.client.command_line.parsers import COMMANDS as OF_A_SERVICE
from accountant.client.environment import VARIABLES
from accountant.config.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    {
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *ROOT.glob("*/README.md"),
        ROOT / "accountant/queries/README.md",
        ROOT / "packaging/client/README.md",
    }
)
_FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_REASON = re.compile(r"<!-- not run: (\S.{8,}) -->\n *\Z")
_SETTINGS = VARIABLES.keys() | {
    f"ACCOUNTANT_{one.upper()}" for one in Settings.__dataclass_fields__
}
_BESIDE = set().union(*cli.COMMANDS.values()) - (OF_A_SERVICE.keys() - BESIDE_THE_DATABASE)


class Block(NamedTuple):
    """A block of code on a page."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None
    """Why it is not run, if the page says so."""

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"


class Wrong(AssertionError):
    """A block that would not do what the page says."""


@cache
def blocks() -> list[Block]:
    """All blocks of all pages."""
    return [block for page in PAGES for block in _of_page(page)]


def _of_page(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    for found in _FENCE.finditer(text):
        reason = _REASON.search(text[: found.start()])
        line = text.count("\n", 0, found.start()) + 1
        code = textwrap.dedent(found[3])
        yield Block(name, line, found[2], code, reason[1] if reason else None)


def check_yaml(code: str) -> None:
    """A policy, or a part of one: rules, or allotments of a limit called lifetime."""
    document = yaml.safe_load(code)
    if isinstance(document, list):
        document = {"rules": document}
    if not isinstance(document, dict) or not document.keys() & {"rules", "allotments"}:
        raise Wrong("it is no part of a policy, and no test runs it")
    limit = {"id": "lifetime", "limit": {"epsilon": 3, "delta": "1e-6"}, "gate": "basic"}
    whole = {"policy": "example", "rules": [limit]} | document
    parse_policy(yaml.safe_dump(whole, sort_keys=False))


def check_json(code: str) -> None:
    """A mechanism, a request for budget, or the registration of a population."""
    _valid(_only_once(code))


def _valid(body: dict[str, Any], **more: str) -> None:
    if "kind" in body:
        mechanism(body)
    elif "mechanisms" in body:
        make("ask_grant", **body)
    elif "privacy_unit" in body:
        make("register_population", **body)
    elif "namespace" in body:
        make("register_dataset", **body, **more)
    else:
        raise Wrong(f"no call takes {sorted(body)}")


def _only_once(code: str) -> dict[str, Any]:
    """The object in JSON; a name that is given twice is an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise Wrong("a name is given twice")
        return dict(pairs)

    found = json.loads(code, object_pairs_hook=once)
    assert isinstance(found, dict)
    return found


@cache
def _calls() -> list[tuple[str, re.Pattern[str]]]:
    """Method and path of each call."""
    paths = create_app(None, Settings(), None).openapi()["paths"]
    return [
        (method.upper(), re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))))
        for path, methods in paths.items()
        for method in methods
    ]


def _check_call(method: str, path: str) -> None:
    if not any(method == one and pattern.fullmatch(path) for one, pattern in _calls()):
        raise Wrong(f"no call is {method} {path}")


def check_http(code: str) -> None:
    """A line with method and path of a call, then its body."""
    head, _, body = code.partition("\n")
    method, path = head.split()
    _check_call(method, path)
    _valid(_only_once(body), **({"id": path.rsplit("/", 1)[1]} if "/datasets/" in path else {}))


def check_console(code: str) -> None:
    """Commands after a dollar sign, with what they print."""
    lines = [line[2:] for line in code.splitlines() if line.startswith("$ ")]
    if not lines:
        raise Wrong("no line begins with a dollar sign: call it text")
    for line in lines:
        check_sh(line)


def check_sh(code: str) -> None:
    """Commands of ours with options that they have, targets of the Makefile, modules, variables,
    calls, extras and files that are there. Something in it has to be ours.
    """
    known = [_checked(words) for words in commands_of(code)]
    for name in re.findall(r"\b(ACCOUNTANT_[A-Z_]+)=", code):
        if name not in _SETTINGS:
            raise Wrong(f"nothing reads {name}")
        known.append(True)
    if not any(known):
        raise Wrong("nothing in it is known here: say why it is not run")


def _checked(words: list[str]) -> bool:
    """Check a command. Return whether it is one that is known here."""
    program, *options = words
    if program in _PROGRAMS:
        return _PROGRAMS[program](options)
    if program == "kubectl" and "exec" in options:
        return False  # deploy/… is a deployment there
    files = [one for one in words if one.startswith("deploy/")]
    for file in files:
        if not list(ROOT.glob(file)):
            raise Wrong(f"no such file: {file}")
    return bool(files)


def _accountant(options: list[str]) -> bool:
    check_command([word for word in options if word != "…"])
    return True


def _make(options: list[str]) -> bool:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", text, re.MULTILINE))
    if missing := {one for one in options if "=" not in one} - targets:
        raise Wrong(f"no such target: {missing}")
    return True


def _python(options: list[str]) -> bool:
    if options[:1] != ["-m"] or options[1] == "venv":
        return False
    if find_spec(options[1]) is None:
        raise Wrong(f"no such module: {options[1]}")
    return True


def _pip(options: list[str]) -> bool:
    """What is installed is one of our distributions, with an extra that it has."""
    for name in options[1:]:
        found = re.fullmatch(r"(privacy-accountant(?:-client)?)(?:\[(\w+)\])?", name)
        if not found:
            raise Wrong(f"{name} is none of our distributions")
        folder = ROOT / ("packaging/client" if found[1].endswith("client") else ".")
        extras = (folder / "pyproject.toml").read_text(encoding="utf-8")
        if found[2] and not re.search(rf"^{found[2]} = \[", extras, re.MULTILINE):
            raise Wrong(f"{found[1]} has no extra {found[2]}")
    return True


def _curl(options: list[str]) -> bool:
    method = options[options.index("-X") + 1] if "-X" in options else "GET"
    [url] = [one for one in options if one.startswith("$base")]
    _check_call(method, url.replace("$base", "/v1/populations/visitors"))
    return True


_PROGRAMS: dict[str, Callable[[list[str]], bool]] = {
    "/opt/accountant/bin/accountant": _accountant,
    "accountant": _accountant,
    "curl": _curl,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "python3": _python,
}


def commands_of(code: str) -> Iterator[list[str]]:
    """The commands of a script, each as words: without variables that are set, and those inside of
    others too.
    """
    for inner in re.findall(r"\$\(([^()]+)\)", code):
        yield from commands_of(inner)
    code = re.sub(r"(^|\s)#[ !].*$", r"\1", code.replace("\\\n", " "), flags=re.MULTILINE)
    code = re.sub(r"\{\{.*?\}\}", "x", code).replace("$ACCOUNTANT_GRANT", "g1")
    lexer = shlex.shlex(code, posix=True, punctuation_chars="&|;\n>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    skip = False
    for word in [*lexer, "\n"]:
        if word and set(word) <= set("&|;\n"):
            yield from _command(words)
            words, skip = [], False
        elif word and set(word) <= {">"}:
            skip = True
        elif not skip:
            words.append(word)


def _command(words: list[str]) -> Iterator[list[str]]:
    while words and (re.match(r"\w+=", words[0]) or words[0] in {"export", "exec"}):
        words = words[1:]
    if words:
        yield words
        for place, word in enumerate(words):  # docker, kubectl and systemd-run run it elsewhere
            if place and word == "/opt/accountant/bin/accountant":
                yield words[place:]


def check_command(words: list[str]) -> None:
    """The parser of the program, beside the database or from afar, takes the command."""
    complaints = []
    for reads, names in ((parse, OF_A_SERVICE), (_parse_beside_the_database, _BESIDE)):
        if words[0] in names or words[0].startswith("-"):
            try:
                reads(words)
            except Exception as wrong:  # noqa: BLE001 each parser has errors of its own
                complaints.append(f"{type(wrong).__name__}: {wrong}")
            else:
                return
    raise Wrong(f"accountant {shlex.join(words)}: {complaints or 'no such command'}")


@cache
def _program() -> Any:
    cli.load([])
    return typer.main.get_command(cli.app)


def _parse_beside_the_database(words: Sequence[str]) -> None:
    command, context = _program(), None
    rest, name = words, "accountant"
    while True:
        context = command.make_context(name, list(rest), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        left = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, left)


def check_python(code: str) -> None:
    """It can be compiled, also with ``await`` outside of functions. Whether it runs is for a test
    of its page.
    """
    compile(code, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


CHECKS: dict[str, Callable[[str], None]] = {
    "console": check_console,
    "http": check_http,
    "json": check_json,
    "python": check_python,
    "sh": check_sh,
    "yaml": check_yaml,
}
"""How a block of each language is checked. ``text`` is no example: what a program prints, say."""


def complaint(language: str, code: str) -> str | None:
    """What is wrong with a block, if anything is."""
    try:
        CHECKS[language](code)
    except Exception as wrong:  # noqa: BLE001 what reads such has errors of its own
        return f"{type(wrong).__name__}: {wrong}"
    return None
