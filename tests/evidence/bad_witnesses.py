"""Witnesses that do not answer as they should, each in its own way."""

from __future__ import annotations

import base64
import time
from typing import Any

from witness import Witness


def endless(_: bytes, handler: Any) -> tuple[int, bytes]:
    """An answer without an end."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(10**12))
    handler.end_headers()
    try:
        for _ in range(10_000):
            handler.wfile.write(b"x" * 65_536)
    except OSError:
        return 0, b""
    raise AssertionError("somebody reads all of it")


def dripping(_: bytes, handler: Any) -> tuple[int, bytes]:
    """An answer of which a byte comes now and then."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    try:
        for _ in range(300):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        pass
    return 0, b""


def silent(*_: Any) -> tuple[int, bytes]:
    """No answer for a while."""
    time.sleep(6)
    return 0, b""


def elsewhere(_: bytes, handler: Any) -> tuple[int, bytes]:
    """Sends its clients to somebody else, who would sign."""
    handler.send_response(307)
    handler.send_header("Location", f"{handler.witness.url}/add-checkpoint")
    handler.send_header("Content-Length", "0")
    handler.end_headers()
    handler.witness.answering = None
    return 0, b""


def zipped(_: bytes, handler: Any) -> tuple[int, bytes]:
    """A small answer that says that it unpacks to a large one."""
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", "20")
    handler.end_headers()
    handler.wfile.write(b"\x1f\x8b\x08" + bytes(17))
    return 0, b""


def other_text(body: bytes, handler: Any) -> tuple[int, bytes]:
    """Its own signature, over another checkpoint."""
    return 200, handler.witness.cosigned(body.partition(b"\n\n")[2].partition(b"\n\n")[0] + b"x\n")


def other_key(body: bytes, handler: Any) -> tuple[int, bytes]:
    """Somebody else's signature, under its name and under its key's hash."""
    text = body.partition(b"\n\n")[2].partition(b"\n\n")[0] + b"\n"
    stranger = Witness(handler.witness.name)
    line = stranger.cosigned(text)
    stranger.close()
    blob = base64.b64decode(line.split(b" ")[2])
    forged = base64.b64encode(handler.witness.id + blob[4:])
    return 200, line + line.rsplit(b" ", 1)[0] + b" " + forged + b"\n"


BAD = [
    *(endless, dripping, silent, elsewhere, zipped, other_text, other_key),
    *(
        lambda *_, status=status: (status, b"no")
        for status in (201, 204, 301, 400, 403, 404, 429, 500)
    ),
    *(
        lambda *_, data=data: (200, data)
        for data in (b"", b"\xff\xfe", b"\n\n\n", b"ok", "— w AAAA\n".encode() * 200, b"\0" * 9_999)
    ),
    *(
        lambda *_, data=data: (409, data)
        for data in (
            b"",
            b"<html>conflict</html>",
            b"-1\n",
            b"1e3\n",
            b"9" * 400,
            "٣".encode(),
            "²".encode(),
        )
    ),
]
