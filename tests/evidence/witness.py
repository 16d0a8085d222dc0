"""A C2SP witness (tlog-witness v1.0.0) on a socket, with checks of its own: none of the service's
code has a part in them.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Answer = tuple[int, bytes]
DASH = "\N{EM DASH}"


def sha256(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def rootof(first: bytes, second: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\x01" + first + second)


def consistent(old: int, new: int, proof: list[bytes], before: bytes) -> bytes | None:
    """The root at ``new`` if ``proof`` leads to ``before`` at ``old`` (RFC 6962, section 2.1.2,
    recursively from the end); None if it does not.
    """
    steps = list(proof)

    def walk(m: int, n: int, whole: bool) -> tuple[bytes, bytes]:
        if m == n:
            node = before if whole else steps.pop(0)
            return node, node
        k = 1 << (n - 1).bit_length() - 1
        if m <= k:
            left_old, left_new = walk(m, k, whole)
            return left_old, rootof(left_new, steps.pop(0))
        right_old, right_new = walk(m - k, n - k, False)
        left = steps.pop(0)
        return rootof(left, right_old), rootof(left, right_new)

    try:
        found_old, found_new = walk(old, new, True)
    except IndexError:
        return None
    return found_new if found_old == before and not steps else None


@dataclass
class Witness:
    """Knows logs by their keys, and of each the last head that it cosigned."""

    name: str = "witness.example/w"
    logs: dict[str, bytes] = field(default_factory=dict)
    heads: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)
    answering: Callable[[bytes, Any], Answer] | None = None
    """What it does instead of answering as a witness does."""
    seconds: int = 0

    def __post_init__(self) -> None:
        self.private = Ed25519PrivateKey.generate()
        public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        typed = b"\x04" + public
        self.id = sha256(self.name.encode() + b"\n" + typed)[:4]
        self.key = f"{self.name}+{self.id.hex()}+{base64.b64encode(typed).decode()}"
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"witness": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """Its submission prefix."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/w"

    def trust(self, *keys: str) -> Witness:
        """Learns logs by their verifier keys."""
        for text in keys:
            name, _, material = text.split("+", 2)
            typed = base64.b64decode(material)
            assert typed[:1] == b"\x01"
            self.logs[name] = typed[1:]
        return self

    def close(self) -> None:
        """Stops answering."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def cosigned(self, text: bytes) -> bytes:
        """Its signature line over a checkpoint."""
        self.seconds = max(self.seconds + 1, int(time.time()))
        signed = f"cosignature/v1\ntime {self.seconds}\n".encode() + text
        blob = self.id + self.seconds.to_bytes(8, "big") + self.private.sign(signed)
        return f"{DASH} {self.name} {base64.b64encode(blob).decode()}\n".encode()

    def answer(self, body: bytes) -> Answer:  # noqa: C901, PLR0911 as the specification lists it
        """What the specification says to answer."""
        request, _, note = body.partition(b"\n\n")
        first, *lines = request.split(b"\n")
        match = re.fullmatch(rb"old (0|[1-9][0-9]*)", first)
        text, blank, signatures = note.partition(b"\n\n")
        if match is None or not blank or len(lines) > 63:
            return 400, b"malformed"
        text += b"\n"
        origin, size_text, root_text, end = text.split(b"\n")
        old, size, root = int(match[1]), int(size_text), base64.b64decode(root_text)
        if end or str(size).encode() != size_text or len(root) != 32:
            return 400, b"malformed checkpoint"
        name = origin.decode()
        if name not in self.logs:
            return 404, b"unknown log"
        if not self._signed(name, text, signatures):
            return 403, b"not signed"
        if old > size:
            return 400, b"old above new"
        with self.lock:
            known, before = self.heads.get(name, (0, sha256(b"")))
            if old != known:
                return 409, f"{known}\n".encode()
            proof = [base64.b64decode(line) for line in lines]
            if old == size:
                if root != before or proof:
                    return 409, b""
            elif old == 0:
                if proof:
                    return 422, b"a proof from nothing"
            elif consistent(old, size, proof, before) != root:
                return 422, b"inconsistent"
            self.heads[name] = (size, root)
            return 200, self.cosigned(text)

    def _signed(self, name: str, text: bytes, lines: bytes) -> bool:
        for line in lines.decode().splitlines():
            dash, signer, blob = line.split(" ")
            data = base64.b64decode(blob)
            public = self.logs[name]
            if dash != DASH or signer != name:
                continue
            if data[:4] != sha256(name.encode() + b"\n\x01" + public)[:4]:
                continue
            try:
                Ed25519PublicKey.from_public_bytes(public).verify(data[4:], text)
            except InvalidSignature:
                continue
            return True
        return False


class _Handler(BaseHTTPRequestHandler):
    witness: Witness
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.witness.requests.append(body)
        if self.path != "/w/add-checkpoint":
            status, data = 404, b"no such call"
        elif self.witness.answering is not None:
            status, data = self.witness.answering(body, self)
            if status == 0:  # it has written its answer itself
                self.close_connection = True
                return
        else:
            status, data = self.witness.answer(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
