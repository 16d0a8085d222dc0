"""A web server that takes what the service sends."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """A web server that keeps what it gets, and answers with ``status``."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        self.silent = threading.Event()
        """While it is set, nothing is answered."""
        self.slow = 0.0
        """Seconds between two bytes of an answer that does not end before ``end``."""
        self.come = threading.Event()
        """Something has come."""
        self.end = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                outer.come.set()
                if outer.silent.is_set():
                    outer.end.wait(30)
                    return
                if outer.slow:
                    with suppress(OSError):  # whoever sent has gone
                        while not outer.end.wait(outer.slow):
                            self.wfile.write(b"H")
                    return
                self.send_response(outer.status)
                if 300 <= outer.status < 400:
                    self.send_header("Location", outer.url + "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()
