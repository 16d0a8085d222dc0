"""An identity provider that gives whatever it is told to, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

RSA = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
CURVE = ECKey.generate_key("P-256", {"kid": "curve"})


class Hostile:
    """A provider whose ID token is ``token``, and whose description and keys can be changed."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.keys: list[Any] = [RSA, CURVE]
        self.more: dict[str, Any] = {}
        self.token = ""
        self.status = 200
        self.asked: list[str] = []
        self.sent: list[str] = []

    def answer(self, path: str) -> Any:
        """The document at a path."""
        self.asked.append(path)
        if path == "/.well-known/openid-configuration":
            places = {
                name: f"{self.issuer}/{name}"
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
            }
            return {"issuer": self.issuer, **places, **self.more}
        if path == "/jwks_uri":
            return {"keys": [key.as_dict(private=False) for key in self.keys]}
        return {"access_token": "x", "token_type": "Bearer", "id_token": self.token}


@contextmanager
def hostile() -> Iterator[Hostile]:
    """One that is served."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            found.sent.append(f"{self.headers.get('authorization', '')} {body}")
            data = json.dumps(found.answer(self.path)).encode()
            self.send_response(found.status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Hostile(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def signed(claims: dict[str, Any], key: Any = RSA, alg: str = "RS256", **header: Any) -> str:
    """A token."""
    return jwt.encode({"alg": alg, "kid": key.kid, **header}, claims, key, algorithms=[alg])
