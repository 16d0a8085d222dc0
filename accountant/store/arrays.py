"""Columns of rows as PostgreSQL's arrays, in its binary format.

The driver would look at each element for its type, and name the type by the largest: the same
statement would be planned anew for other numbers, and for no rows at all. Here a column has one
type whatever is in it, and costs a tenth.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD: Final = struct.Struct(">iiIii")
"""One dimension, no NULL, the elements' type; how many, counted from 1."""
_LENGTH: Final = struct.Struct(">i")
_INT8, _TEXT, _BYTEA = 20, 25, 17
"""Types of elements, by the numbers that they have on every server (pg_type.dat)."""


class Integers(bytes):
    """A bigint[]."""

    __slots__ = ()


class Texts(bytes):
    """A text[]."""

    __slots__ = ()


class Blobs(bytes):
    """A bytea[]."""

    __slots__ = ()


_ARRAYS: Final = {Integers: 1016, Texts: 1009, Blobs: 1001}


def integers(values: Sequence[int]) -> Integers:
    """The column of ``values``. Raises struct.error for what no bigint is."""
    sized = [part for value in values for part in (8, value)]
    return Integers(_head(_INT8, len(values)) + struct.pack(">" + "iq" * len(values), *sized))


def texts(values: Sequence[str]) -> Texts:
    """The column of ``values``."""
    return Texts(_head(_TEXT, len(values)) + _sized([value.encode() for value in values]))


def blobs(values: Sequence[bytes]) -> Blobs:
    """The column of ``values``."""
    return Blobs(_head(_BYTEA, len(values)) + _sized(values))


def learn(connection: psycopg.Connection[Any]) -> None:
    """From now on the connection takes such columns."""
    for kind, dumper in _DUMPERS.items():
        connection.adapters.register_dumper(kind, dumper)


def _head(element: int, size: int) -> bytes:
    return _HEAD.pack(1, 0, element, size, 1)


def _sized(values: Iterable[bytes]) -> bytes:
    return b"".join([part for value in values for part in (_LENGTH.pack(len(value)), value)])


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


_DUMPERS: Final = {
    kind: type(f"{kind.__name__}Dumper", (_AsItIs,), {"oid": oid}) for kind, oid in _ARRAYS.items()
}
