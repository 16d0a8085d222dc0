"""Requests as they are written on a command line: options, short forms, files of JSON.

Numbers are sent as they are spelled, as text: no binary float comes between.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from accountant.client.command_line.failures import Misuse
from accountant.client.errors import Body
from accountant.client.mechanisms import WHOLE, mechanism

ABOUT: Final = (
    *("dataset", "mechanism", "purpose", "justification", "allotment", "subjects"),
    *("ttl", "wait", "ran_at"),
)
_KIND: Final = re.compile(r"[a-z][a-z_]{0,63}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63}){0,3}")
_WORDS: Final = {"true": True, "false": False}
_SENT_AS: Final = {"ttl": "ttl_seconds"}


def request_of(asked: argparse.Namespace) -> Body:
    """Return the body of a request, from a file or from options. Raise Misuse."""
    given = {name: value for name in ABOUT if (value := getattr(asked, name, None)) is not None}
    if asked.file is not None:
        if given:
            named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise Misuse(f"{asked.file} is the whole request: leave out {named}")
        return _object(read(asked.file), asked.file)
    if not given.get("dataset") or not given.get("mechanism"):
        raise Misuse("name a --dataset and at least one --mechanism, or a file with the request")
    datasets = given.pop("dataset")
    mechanisms = mechanisms_of(given.pop("mechanism"))
    body = {"dataset": datasets[0] if len(datasets) == 1 else datasets, "mechanisms": mechanisms}
    if "subjects" in given:
        given["subjects"] = parsed(given["subjects"], "--subjects")
    return body | {_SENT_AS.get(name, name): value for name, value in given.items()}


def mechanisms_of(texts: Sequence[str]) -> list[Any]:
    """Return the mechanisms that ``--mechanism`` names, in order. Raise Misuse, OSError."""
    return [one for text in texts for one in _mechanisms(text)]


def _mechanisms(text: str) -> list[Any]:
    """Return one or, of a list, several: JSON, ``@`` and a file of it, or a short form."""
    if text.startswith("@"):
        return _listed(parsed(read(text[1:]), text[1:]), text)
    if text.lstrip().startswith(("{", "[")):
        return _listed(parsed(text, "--mechanism"), "--mechanism")
    return [short(text)]


def _listed(found: Any, place: str) -> list[Any]:
    several = found if isinstance(found, list) else [found]
    if not several or not all(isinstance(one, dict) for one in several):
        raise Misuse(f"{place}: a mechanism is a JSON object, several are a list of them")
    return several


def short(text: str) -> Body:
    """Return a mechanism from its short form, ``kind:name=value,name=value``, as in
    ``gaussian:sensitivity=1,scale=4,count=10,sampling.poisson=0.01``. Raise Misuse.
    """
    kind, _, rest = text.strip().partition(":")
    if not _KIND.fullmatch(kind):
        raise Misuse(f"--mechanism {text!r} is no mechanism: write kind:name=value,name=value")
    fields: Body = {}
    for part in rest.split(",") if rest.strip() else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value or name == "kind" or not _NAME.fullmatch(name):
            raise Misuse(f"--mechanism {text!r}: {part.strip()!r} is not name=value")
        _put(fields, name.split("."), value, text)
    return mechanism(kind, **fields)


def _put(fields: Body, path: list[str], value: str, text: str) -> None:
    """Put a value where its name, with dots between its parts, says."""
    *outer, name = path
    for each in outer:
        inner = fields.setdefault(each, {})
        if not isinstance(inner, dict):
            raise Misuse(f"--mechanism {text!r}: {each} is given twice")
        fields = inner
    if name in fields:
        raise Misuse(f"--mechanism {text!r}: {name} is given twice")
    if name in WHOLE and not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise Misuse(f"--mechanism {text!r}: {name} must be a whole number, not {value!r}")
    fields[name] = int(value) if name in WHOLE else _WORDS.get(value, value)


def read_bytes(file: str) -> bytes:
    """Return a file, or standard input for ``-``. Raise OSError."""
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def read(file: str) -> str:
    """Return the text of a file, or of standard input for ``-``. Raise OSError, Misuse."""
    data = read_bytes(file)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = "standard input" if file == "-" else file
        raise Misuse(f"{place}: byte {error.start} is not UTF-8") from None


def parsed(text: str, place: str) -> Any:
    """Return a JSON document, numbers with a point or an exponent as their text. Raise Misuse for
    what readers would understand differently: a name given twice, NaN.
    """
    try:
        found = json.loads(text, parse_float=str, parse_constant=_refused, object_pairs_hook=_once)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Misuse(f"{place}: half a character (a lone surrogate) in a text") from None
    except (RecursionError, ValueError) as error:
        raise Misuse(f"{place}: {error}") from None
    return found


def _object(text: str, file: str) -> Body:
    found = parsed(text, "standard input" if file == "-" else file)
    if not isinstance(found, dict):
        raise Misuse(f"{file}: a request is a JSON object with dataset and mechanisms")
    return found


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _once(pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    found: Body = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found
