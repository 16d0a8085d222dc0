"""A wire between the service and PostgreSQL that can be cut at the worst moment."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """Hands bytes on in both directions. ``cut``: at the next ``word``, COMMIT by default, "before"
    the server gets it, "while" it is being carried out or "after" it was answered, both ends are
    closed.
    """

    def __init__(self, port: int, word: bytes = b"COMMIT\x00") -> None:
        self._word = word
        self._to = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.cut = ""
        self.cuts = 0
        self.refuses = False
        """Nobody who comes now gets through; a cut goes through every connection."""
        self._ends: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes nobody any more."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def sever(self) -> None:
        """Cuts every connection, whatever is under way."""
        for end in list(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                if self.refuses:
                    client.close()
                    continue
                try:
                    ends = (client, socket.create_connection(("127.0.0.1", self._to)))
                except OSError:  # the server is not there
                    client.close()
                    continue
                self._ends |= {*ends}
                mute = threading.Event()
                for work in (self._there, self._back):
                    threading.Thread(target=work, args=(*ends, mute), daemon=True).start()

    def _there(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                if self.cut and self._word in data:
                    self.cuts += 1
                    cut, self.cut = self.cut, ""
                    if cut == "before":
                        break
                    mute.set()
                    if cut == "while":
                        server.sendall(data)
                        break
                server.sendall(data)
        self._close(client, server)
        if self.refuses:
            self.sever()

    def _back(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        with suppress(OSError):
            while (data := server.recv(65_536)) and not mute.is_set():
                client.sendall(data)
        self._close(client, server)

    def _close(self, *ends: socket.socket) -> None:
        self._ends -= {*ends}
        for end in ends:
            with suppress(OSError):  # the other direction was first
                end.shutdown(socket.SHUT_RDWR)
            end.close()
