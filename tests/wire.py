"""A wire between the service and PostgreSQL that can be cut at the worst moment."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """Hands bytes on in both directions. ``cut``: at the next COMMIT, "before" the server gets it
    or "after" it has answered, both ends are closed.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.cut = ""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes nobody any more."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                ends = (client, socket.create_connection(("127.0.0.1", self._to)))
                mute = threading.Event()
                for work in (self._there, self._back):
                    threading.Thread(target=work, args=(*ends, mute), daemon=True).start()

    def _there(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        with suppress(OSError), client, server:
            while data := client.recv(65_536):
                if self.cut and b"COMMIT\x00" in data:
                    self.cuts += 1
                    cut, self.cut = self.cut, ""
                    if cut == "before":
                        break
                    mute.set()
                server.sendall(data)
            for end in (client, server):
                end.shutdown(socket.SHUT_RDWR)

    def _back(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        with suppress(OSError), client, server:
            while (data := server.recv(65_536)) and not mute.is_set():
                client.sendall(data)
            for end in (client, server):
                end.shutdown(socket.SHUT_RDWR)
