"""A backup as a file: a tar of the rows of all tables, in parts, and last a manifest.

* ``rows/<table>/<number>.jsonl.gz``: rows in the order of the key, each an array of the columns
  that the manifest lists; bytes are in base64.
* ``manifest.json``: the digest of each part, where each ledger ends, and the files of the vault.
  ``manifest.sha256`` has its digest. With a passphrase it is ``manifest.sealed``, by AES-256-GCM
  with a key that scrypt makes. Nobody without the passphrase then reads the keys, or changes a part
  unnoticed.

A file that was cut off has no manifest, for that comes last.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from secrets import token_bytes
from typing import IO, Any, Final, Literal

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import BaseModel, ConfigDict, ValidationError

PART: Final = 4 << 20  # Bytes of rows before compression, beside one row more
_CLEAR: Final = "manifest.json"
_DIGEST: Final = "manifest.sha256"
_SEALED: Final = "manifest.sealed"
_MAGIC: Final = b"accountant backup 1\n"
_SALT: Final = 16
_NONCE: Final = 12
_FASTEST: Final = 1  # gzip's level: a better one takes longer than reading the rows

Row = Sequence[Any]


class BadArchive(ValueError):
    """The file is no backup, or not a whole one, or it was changed."""


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64"
    )


class Part(_Model):
    """A member of the tar: rows of one table."""

    name: str
    table: str
    rows: int
    size: int
    """Bytes, compressed."""
    sha256: str


class End(_Model):
    """Where a ledger ends."""

    size: int
    root: str


class Columns(_Model):
    """The columns of a table, and which of them hold bytes."""

    names: tuple[str, ...]
    binary: frozenset[str]


class Manifest(_Model):
    """What a backup holds."""

    format: Literal[1] = 1
    version: str
    """Of the program that wrote it."""
    revision: str
    """The last migration of the database."""
    made: str
    tables: dict[str, Columns]
    parts: tuple[Part, ...]
    ledgers: dict[str, End]
    vault: dict[str, bytes]
    """The files of the vault, by their path in it."""


class ArchiveWriter:
    """Writes a backup to a file, part after part."""

    def __init__(self, file: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w")  # noqa: SIM115 (``close`` ends it)
        self.parts: list[Part] = []

    def table(self, name: str, columns: Columns, rows: Iterable[Row]) -> None:
        """Write the rows of a table."""
        binary = [place for place, one in enumerate(columns.names) if one in columns.binary]
        lines: list[bytes] = []
        size = 0
        for row in rows:
            lines.append(_line(row, binary))
            size += len(lines[-1])
            if size >= PART:
                self._part(name, lines)
                lines, size = [], 0
        if lines:
            self._part(name, lines)

    def _part(self, table: str, lines: Sequence[bytes]) -> None:
        number = sum(one.table == table for one in self.parts)
        data = gzip.compress(b"".join(lines), _FASTEST, mtime=0)
        name = f"rows/{table}/{number:06}.jsonl.gz"
        digest = sha256(data).hexdigest()
        self.parts.append(
            Part(name=name, table=table, rows=len(lines), size=len(data), sha256=digest)
        )
        self._add(name, data)

    def close(self, manifest: Manifest, passphrase: bytes | None) -> None:
        """Write the manifest and the end of the tar."""
        data = manifest.model_dump_json().encode()
        if passphrase is None:
            self._add(_CLEAR, data)
            self._add(_DIGEST, _digest(data))
        else:
            self._add(_SEALED, _sealed(data, passphrase))
        self._tar.close()

    def _add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o600
        self._tar.addfile(member, io.BytesIO(data))


class Archive:
    """A backup that is read. ``manifest`` says what it holds; any method may raise BadArchive."""

    def __init__(self, file: IO[bytes], passphrase: bytes | None) -> None:
        try:
            self._tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 (the file is the caller's)
            self._members = {one.name: one for one in self._tar.getmembers()}
        except (tarfile.TarError, OSError, EOFError) as error:
            raise BadArchive(f"the file cannot be read as a backup: {error}") from error
        if _SEALED in self._members:
            if passphrase is None:
                raise BadArchive("the backup is sealed: give its --passphrase-file")
            data = _opened(self._bytes(_SEALED), passphrase)
        elif passphrase is not None and _CLEAR in self._members:
            raise BadArchive(
                "the backup is not sealed, so a passphrase protects nothing in it: if you expected "
                "a sealed one, it is another file; else leave out --passphrase-file"
            )
        elif _CLEAR in self._members:
            data = self._bytes(_CLEAR)
            if self._bytes(_DIGEST) != _digest(data):
                raise BadArchive(f"{_CLEAR} was damaged or changed: take another copy")
        else:
            raise BadArchive(
                "the file has no manifest: it is no backup, or was cut off; take another copy"
            )
        try:
            self.manifest = Manifest.model_validate_json(data)
        except ValidationError as error:
            raise BadArchive(
                f"the manifest cannot be read, or is of a later format: {error.error_count()} "
                "fields; use the version of the program that wrote the file"
            ) from None

    def rows(self, table: str) -> Iterator[list[list[Any]]]:
        """Yield the rows of a table, a part at a time, each checked by its digest."""
        columns = self.manifest.tables[table]
        binary = [place for place, one in enumerate(columns.names) if one in columns.binary]
        for part in self.manifest.parts:
            if part.table != table:
                continue
            data = self._bytes(part.name)
            if sha256(data).hexdigest() != part.sha256:
                raise BadArchive(f"{part.name} was damaged or changed: take another copy")
            rows = [_row(line, binary) for line in gzip.decompress(data).splitlines()]
            if len(rows) != part.rows:
                raise BadArchive(f"{part.name} has {len(rows)} rows, the manifest {part.rows}")
            yield rows

    def _bytes(self, name: str) -> bytes:
        """Return a member whole. Raises BadArchive if it is cut off or missing."""
        try:
            file = self._tar.extractfile(self._members[name])
            data = b"" if file is None else file.read()
        except (KeyError, tarfile.TarError, OSError) as error:
            raise BadArchive(f"{name} is not there whole: take another copy") from error
        if len(data) != self._members[name].size:
            raise BadArchive(f"{name} is cut off: take another copy")
        return data


def _line(row: Row, binary: Sequence[int]) -> bytes:
    cells = list(row)
    for place in binary:
        cells[place] = b64encode(cells[place]).decode()
    return orjson.dumps(cells) + b"\n"


def _row(line: bytes, binary: Sequence[int]) -> list[Any]:
    cells: list[Any] = orjson.loads(line)
    for place in binary:
        cells[place] = b64decode(cells[place], validate=True)
    return cells


def _digest(manifest: bytes) -> bytes:
    """Return what ``sha256sum`` prints."""
    return f"{sha256(manifest).hexdigest()}  {_CLEAR}\n".encode()


def _key(passphrase: bytes, salt: bytes) -> AESGCM:
    """Return the key of a passphrase: 128 MiB and a third of a second for each guess."""
    return AESGCM(Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase))


def _sealed(data: bytes, passphrase: bytes) -> bytes:
    salt, nonce = token_bytes(_SALT), token_bytes(_NONCE)
    return salt + nonce + _key(passphrase, salt).encrypt(nonce, data, _MAGIC)


def _opened(data: bytes, passphrase: bytes) -> bytes:
    salt, nonce, sealed = data[:_SALT], data[_SALT : _SALT + _NONCE], data[_SALT + _NONCE :]
    try:
        return _key(passphrase, salt).decrypt(nonce, sealed, _MAGIC)
    except (InvalidTag, ValueError):
        raise BadArchive(
            "the passphrase is not that of this backup, or the manifest was changed"
        ) from None
