"""Whether two names mean the same data: a normal form of (namespace, name).

Two datasets with the same normal form are the same data. Where that is not sure the form leans to
equal: data that are taken for the same cost a second approval, data that are taken for different
ones have a second budget.

Caught are compatibility forms and invisible characters, white space, case, default ports, user
names, aliases of schemes, quotes around identifiers, percent encoding, another place where the
namespace ends and the name begins, and Cyrillic and Greek letters that look like Latin ones. Not
caught are another name of the host (an address, a short name, a DNS alias), a copy, a view or a
link, a schema or database that is left out because it is the default, letters of other alphabets
and with other marks, and letters that resemble each other within one alphabet (l and I, O and 0).

Replay decides registrations again: once released, a form that is equal has to stay equal, and one
that differs has to stay different. Characters that Python's version of Unicode does not know yet
count as they are.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote

from accountant.budget.errors import Invalid

_REMEMBERED: Final = 4_096
MOST_STEPS: Final = 16
"""To the normal form of a name that is taken from outside; of usual ones it is one or two."""
_ALIASES: Final = {
    "abfss": "abfs",
    "awsathena": "athena",
    "gcs": "gs",
    "hive2": "hive",
    "https": "http",
    "mariadb": "mysql",
    "mssql": "sqlserver",
    "pgsql": "postgres",
    "postgresql": "postgres",
    "s3a": "s3",
    "s3n": "s3",
    "wasb": "abfs",
    "wasbs": "abfs",
}
"""Schemes that mean the same store."""
_PORTS: Final[dict[str, frozenset[str]]] = {
    scheme: frozenset(ports.split())
    for scheme, ports in {
        "athena": "443",
        "bigquery": "443",
        "cassandra": "9042",
        "clickhouse": "8123 8443 9000 9440",
        "cockroachdb": "26257",
        "crate": "5432",
        "databricks": "443",
        "db2": "50000",
        "elasticsearch": "9200",
        "hdfs": "8020 9000",
        "hive": "10000",
        "http": "80 443",
        "impala": "21050",
        "kafka": "9092",
        "mongodb": "27017",
        "mysql": "3306",
        "oracle": "1521",
        "postgres": "5432",
        "presto": "8080 8443",
        "redshift": "5439",
        "snowflake": "443",
        "spark": "10000",
        "sqlserver": "1433",
        "teradata": "1025",
        "trino": "8080 8443",
        "vertica": "5433",
    }.items()
}
"""The ports that a store of this scheme has where none is named."""
_FILES: Final = frozenset({"abfs", "adl", "dbfs", "file", "gs", "hdfs", "s3", "sftp", "viewfs"})
"""Stores of files: names are paths."""
_CASED: Final = _FILES | {"http", "kafka", "pubsub"}
"""Stores that tell capital from small letters. All others, known or not, are taken for SQL stores:
unquoted identifiers have no case.
"""

_SMALL: Final = {
    "a": "аα",
    "c": "сϲ",
    "d": "ԁ",
    "e": "е",
    "g": "ɡ",
    "h": "һ",
    "i": "іιı",
    "j": "ј",
    "k": "κ",
    "l": "ӏ",
    "o": "оο",
    "p": "рρ",
    "q": "ԛ",
    "s": "ѕ",
    "u": "υ",
    "v": "ν",
    "w": "ԝ",
    "x": "х",
    "y": "у",
}
_CAPITAL: Final = {
    "A": "АΑ",
    "B": "ВΒ",
    "C": "СϹ",
    "E": "ЕΕ",
    "G": "Ԍ",
    "H": "НΗ",
    "I": "ІΙӀ",
    "J": "Ј",
    "K": "КΚ",
    "M": "МΜ",
    "N": "Ν",
    "O": "ОΟ",
    "P": "РΡ",
    "Q": "Ԛ",
    "S": "Ѕ",
    "T": "ТΤ",
    "W": "Ԝ",
    "X": "ХΧ",
    "Y": "УΥ",
    "Z": "Ζ",
}
"""Cyrillic, Greek and other letters by the Latin ones that they look like."""
_SIGNS: Final = {"-": "\u2212\u2043\u02d7", "/": "\u2044\u2215\u29f8", ":": "\u2236\ua789"}
"""Signs by those that they look like; all dashes are hyphens, too."""


def _table(*likes: dict[str, str]) -> dict[int, str]:
    return {ord(c): latin for like in likes for latin, looks in like.items() for c in looks}


_EXACT: Final = _table(_SIGNS, _SMALL, _CAPITAL)
_FOLDED: Final = {
    **{ord(chr(c).casefold()): latin.casefold() for c, latin in _table(_CAPITAL).items()},
    **_table(_SIGNS, _SMALL),
}
"""For small letters, where case does not count. One whose capital looks like another Latin letter
than itself counts as what it looks like itself.
"""
_IGNORED: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2065\u3164\uffa0"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9)]))
)
"""Default-ignorable code points, variation selectors among them, that are in no category below and
not in plane 14, which has no others.
"""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co"})
_PLANE_14: Final = range(0xE0000, 0xF0000)
_BLANK: Final = "\N{BRAILLE PATTERN BLANK}"
_QUOTES: Final = re.compile('["`\u201c\u201d\u201e\u201f]')
_BRACKETS: Final = re.compile(r"(?:(?<=\.)|^) ?\[([^\[\]]*)\] ?(?=\.|$)")
_URI: Final = re.compile(r"(?:jdbc:)?([a-z][a-z0-9.-]*)(?:\+[a-z0-9.+-]*)?://(.*)", re.I | re.S)
_BARE: Final = re.compile(r"([a-z][a-z0-9]*):?(/.*)?", re.I | re.S)
_HOST: Final = re.compile(r"(.*?)\.?(?::0*([0-9]*))?", re.S)


class Data(NamedTuple):
    """Data by the normal form of their namespace and name."""

    namespace: str
    name: str

    @property
    def digest(self) -> bytes:
        """SHA-256 of both, with a zero byte between them, which no normal form holds."""
        return sha256("\0".join(self).encode()).digest()


@lru_cache(maxsize=_REMEMBERED)
def normal_form(namespace: str, name: str) -> Data:
    """Return the data that a namespace and a name mean. The form of a normal form is itself: every
    step chooses one of several spellings, and they are taken until nothing changes any more.
    """
    *_, found = _spellings(namespace, name)
    return found


def check_spelling(namespace: str, name: str) -> None:
    """Raise Invalid if it takes more than ``MOST_STEPS`` to see what data are meant. Whoever takes
    names from outside asks first: percent signs that are percent encoded themselves, again and
    again, take a step for each time.
    """
    if next(islice(_spellings(namespace, name), MOST_STEPS + 1, None), None) is not None:
        raise Invalid(
            "invalid-request",
            f"{namespace[:40]} {name[:40]} is encoded so many times over that it is not read: "
            "write the name as the store has it",
        )


def _spellings(namespace: str, name: str) -> Iterator[Data]:
    """Yield what is said step by step, last the normal form."""
    found = Data(namespace, name)
    yield found
    while (again := _step(*found)) != found:
        yield again
        found = again


def joined(data: Data) -> str:
    """Return data as one text, which ``meant_by`` returns for all its spellings."""
    return "/".join(filter(None, data))


def meant_by(text: str) -> str:
    """Return the data that a text of the form ``namespace/name`` means, as one text."""
    return joined(normal_form(text, ""))


def _step(namespace: str, name: str) -> Data:
    if (found := _parts(_spelled(namespace, cased=True))) is None:
        return Data(_spelled(namespace, cased=False).strip("./ "), _identifiers(name))
    scheme, authority, path = found
    store = f"{scheme}://{_authority(scheme, authority)}"
    if scheme in _FILES:
        path = posixpath.normpath(f"/{path}/{_spelled(name, cased=True)}")
        return Data(store, path.lstrip("/"))
    if scheme in _CASED:
        return Data(store, f"{path}/{_spelled(name, cased=True)}".strip("/"))
    inside = path.strip("/").replace("/", ".")
    return Data(store, _identifiers(f"{inside}.{name}" if inside else name))


def _parts(namespace: str) -> tuple[str, str, str] | None:
    """Return scheme, authority and path; None if the namespace is a word or a phrase."""
    if uri := _URI.fullmatch(namespace):
        scheme = _scheme(uri[1])
        rest = uri[2] if scheme in _CASED else re.split("[?;#]", uri[2])[0]  # how to connect
        authority, _, path = rest.partition("/")
        return scheme, authority, path
    bare = _BARE.fullmatch(namespace)
    scheme = _scheme(bare[1]) if bare else ""
    known = scheme in _PORTS or scheme in _CASED
    return (scheme, "", (bare[2] or "")[1:]) if bare and known else None


def _scheme(text: str) -> str:
    scheme = text.casefold()
    return _ALIASES.get(scheme, scheme)


def _authority(scheme: str, text: str) -> str:
    """Return the hosts of an authority, in order, without users and default ports."""
    found = set()
    for each in _spelled(text, cased=False).split(","):
        container, at, place = each.rpartition("@")
        host, port = _HOST.fullmatch(place.strip()).groups()  # type: ignore[union-attr] # it takes all
        if scheme == "abfs":  # two doors to the same account; the container is no user
            host = container + at + host.replace(".blob.core.", ".dfs.core.")
        default = not port or port in _PORTS.get(scheme, ())
        found.add(host if default else f"{host}:{port}")
    return "" if (scheme, found) == ("file", {"localhost"}) else ",".join(sorted(found))


def _identifiers(name: str) -> str:
    """Return identifiers separated by dots, without case and quotes."""
    text = _QUOTES.sub("", _spelled(name, cased=False))
    text = re.sub(r" ?\. ?", ".", _BRACKETS.sub(r"\1", text))
    return text.strip("./ ")


def _spelled(text: str, *, cased: bool) -> str:
    """Return the text as it looks: letters and signs that look alike are one."""
    if text.isascii() and text.isprintable() and "%" not in text:  # which all that follows leaves
        return " ".join((text if cased else text.lower()).split())
    return _looks(text, cased=cased)


def _looks(text: str, *, cased: bool) -> str:
    text = unicodedata.normalize("NFKD", unquote(text))
    if not cased:
        text = unicodedata.normalize("NFKD", text.casefold())
    like = _EXACT if cased else _FOLDED
    looks = text.translate({ord(c): _seen(c, like) for c in set(text)})
    return unicodedata.normalize("NFKC", " ".join(looks.split()))


def _seen(c: str, like: Mapping[int, str]) -> str:
    """Return what is seen of a character: nothing, white space, a hyphen, or what it is like."""
    if c.isspace() or c == _BLANK:
        return " "
    category = unicodedata.category(c)
    if category in _INVISIBLE or c in _IGNORED or ord(c) in _PLANE_14:
        return ""
    return "-" if category == "Pd" else like.get(ord(c), c)
