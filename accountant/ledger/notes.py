"""Signed notes (C2SP signed-note v1.0.0) with Ed25519 keys and cosignatures (tlog-cosignature v1).

A note is a text, a blank line, and lines that each hold one signature. Its reader names trusted
keys: lines of other signers are ignored, a trusted key's bad signature is an error.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ED25519: Final = 0x01
COSIGNATURE: Final = 0x04
MAX_BYTES: Final = 1_000_000
MAX_SIGNATURES: Final = 100

_NAME: Final = re.compile(r"[^\s+\x00-\x1f\x7f]{1,255}")
_PRIVATE: Final = "PRIVATE+KEY+"
_OPEN: Final = "its text does not end in a newline"
_LINE: Final = re.compile(r"— ([^\s+]{1,255}) ([A-Za-z0-9+/]+={0,2})")


class BadNote(ValueError):
    """The note is malformed, or a trusted key's signature is bad or missing."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """A public key with the name that it signs under; ``kind`` is ED25519 or COSIGNATURE."""

    name: str
    kind: int
    public: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no key name: no spaces, no plus signs")
        if self.kind not in (ED25519, COSIGNATURE) or len(self.public) != 32:
            raise ValueError("only Ed25519 keys, of 32 bytes, are understood")

    @classmethod
    def from_text(cls, text: str) -> Verifier:
        """Read ``name+id+key``. Raises ValueError."""
        parts = text.split("+", 2)
        if len(parts) != 3:
            raise ValueError(f"{text!r} is no verifier key: name+hash+key")
        material = canonical_base64(parts[2])
        found = cls(parts[0], material[0] if material else 0, material[1:])
        if found.id.hex() != parts[1]:
            raise ValueError(f"the verifier key of {parts[0]!r} does not fit its own hash")
        return found

    @property
    def id(self) -> bytes:
        """The four bytes by which a signature names its key."""
        key = self.name.encode() + b"\n" + bytes([self.kind]) + self.public
        return sha256(key).digest()[:4]

    def __str__(self) -> str:
        material = base64.b64encode(bytes([self.kind]) + self.public).decode()
        return f"{self.name}+{self.id.hex()}+{material}"

    def holds(self, text: bytes, signature: bytes) -> bool:
        """Return whether ``signature``, without the key id, is this key's over the note's text."""
        if self.kind == COSIGNATURE:
            if len(signature) != 72:
                return False
            text = _cosigned(int.from_bytes(signature[:8], "big"), text)
            signature = signature[8:]
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, text)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key; never printed, never logged."""

    name: str
    kind: int
    private: Ed25519PrivateKey

    def __repr__(self) -> str:
        return f"Signer({self.verifier})"

    @classmethod
    def new(cls, name: str, kind: int = ED25519) -> Signer:
        """Make a key. Raises ValueError for a bad name."""
        signer = cls(name, kind, Ed25519PrivateKey.generate())
        _ = signer.verifier  # checks the name
        return signer

    @classmethod
    def from_text(cls, text: str) -> Signer:
        """Read what ``to_text`` wrote. Raises ValueError, which never quotes the text."""
        parts = text.strip().split("+", 4)
        if len(parts) != 5 or not text.startswith(_PRIVATE):
            raise ValueError("this is no private note key")
        material = canonical_base64(parts[4])
        if len(material) != 33:
            raise ValueError("this is no private Ed25519 key")
        signer = cls(parts[2], material[0], Ed25519PrivateKey.from_private_bytes(material[1:]))
        if signer.verifier.id.hex() != parts[3]:
            raise ValueError(f"the private key of {parts[2]!r} does not fit its own hash")
        return signer

    def to_text(self) -> str:
        """Return ``PRIVATE+KEY+name+id+key``, as other note tools write it. A secret."""
        material = base64.b64encode(bytes([self.kind]) + self.private.private_bytes_raw()).decode()
        return f"{_PRIVATE}{self.name}+{self.verifier.id.hex()}+{material}"

    @property
    def verifier(self) -> Verifier:
        """The public half."""
        return Verifier(self.name, self.kind, self.private.public_key().public_bytes_raw())

    def line(self, text: bytes, time: int = 0) -> str:
        """Return the signature line over ``text``; a cosignature has ``time``, in Unix seconds."""
        stamp = b""
        if self.kind == COSIGNATURE:
            stamp, text = time.to_bytes(8, "big"), _cosigned(time, text)
        blob = self.verifier.id + stamp + self.private.sign(text)
        return f"— {self.name} {base64.b64encode(blob).decode()}\n"


class Signature(NamedTuple):
    """A signature line, and the key that it claims."""

    name: str
    id: bytes
    blob: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """A note that was taken apart; nothing in it is verified yet."""

    text: bytes
    signatures: tuple[Signature, ...]

    def verified(self, trusted: Sequence[Verifier]) -> list[Verifier]:
        """Return the trusted keys that signed it. Raises BadNote for a bad signature of one."""
        signed = []
        for signature in self.signatures:
            for key in trusted:
                if (key.name, key.id) == (signature.name, signature.id) and key not in signed:
                    if not key.holds(self.text, signature.blob):
                        raise BadNote(f"the signature of {key.name} does not hold")
                    signed.append(key)
        return signed


def sign(text: str, signers: Iterable[Signer]) -> bytes:
    """Return the note of ``text`` with a line for each signer. Raises ValueError for a bad text."""
    data = text.encode()
    _plain(data, _OPEN)
    return data + b"\n" + "".join(signer.line(data) for signer in signers).encode()


def parse(data: bytes) -> Note:
    """Take a note apart. Raises BadNote."""
    if len(data) > MAX_BYTES:
        raise BadNote(f"a note of {len(data)} bytes is too long")
    body, blank, rest = data.rpartition(b"\n\n")
    if not blank:
        raise BadNote("it has no blank line before its signatures")
    text = body + b"\n"
    _plain(text, _OPEN)
    lines = _plain(rest, "its last line does not end").split("\n")[:-1]
    if len(lines) > MAX_SIGNATURES:
        raise BadNote(f"it has {len(lines)} signatures, the most is {MAX_SIGNATURES}")
    return Note(text, tuple(map(signature, lines)))


def signature(line: str) -> Signature:
    """Read one signature line, without its end. Raises BadNote."""
    if (match := _LINE.fullmatch(line)) is None:
        raise BadNote(f"this is no signature line: {line[:100]!r}")
    blob = canonical_base64(match[2])
    if len(blob) < 5:
        raise BadNote("a signature is too short")
    return Signature(match[1], blob[:4], blob[4:])


def _cosigned(time: int, text: bytes) -> bytes:
    return f"cosignature/v1\ntime {time}\n".encode() + text


def _plain(data: bytes, unended: str) -> str:
    """Return the text of whole lines. Raises BadNote, ``unended`` if the last one has no end."""
    if not data.endswith(b"\n"):
        raise BadNote(unended)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadNote("it is not UTF-8 text") from None
    if any(character < " " and character != "\n" for character in text):
        raise BadNote("it has control characters")
    return text


def canonical_base64(text: str) -> bytes:
    """Decode canonical base64 only, so that no two texts mean the same. Raises BadNote."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise BadNote("it has bad base64") from None
    if base64.b64encode(data).decode() != text:
        raise BadNote("its base64 is not canonical")
    return data
