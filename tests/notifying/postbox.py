"""A mail server for tests: enough of SMTP (RFC 5321) to take a mail, with and without TLS."""

from __future__ import annotations

import socketserver
import ssl
import threading
import time
from base64 import b64decode
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate for 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(1))
        .not_valid_after(now + timedelta(1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = folder / "certificate.pem"
    pem = serialization.Encoding.PEM
    file.write_bytes(key.private_bytes(pem, *form) + made.public_bytes(pem))
    return file


_SAID = {
    "EHLO": "250-test\r\n250-AUTH PLAIN\r\n250 STARTTLS",
    "AUTH": "235 ok",
    "STARTTLS": "220 go on",
    "QUIT": "221 bye",
}


class Talk(socketserver.StreamRequestHandler):
    """One connection."""

    server: Server

    def say(self, line: str) -> None:
        """Answers."""
        self.wfile.write(f"{line}\r\n".encode())

    def secure(self) -> None:
        """Goes on with TLS."""
        self.connection = self.server.box.context.wrap_socket(self.connection, server_side=True)
        self.rfile.close()
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)

    def handle(self) -> None:
        """Talks until one of both ends it."""
        box = self.server.box
        with suppress(OSError):  # whoever sent has gone
            if box.at_once:
                self.secure()
            while box.slow:
                self.say("220-wait")
                time.sleep(box.slow)
            self.say("220 test")
            while line := self.rfile.readline():
                word = line.split()[0].decode().upper()
                if (answer := box.answers.get(word)) is None:
                    self.obey(word, line)
                else:
                    self.say(answer)
        self.connection.close()

    def obey(self, word: str, line: bytes) -> None:
        """Does what a command says."""
        if word == "DATA":
            self.say("354 go on")
            self.take()
        elif word == "AUTH":
            self.server.box.logins.append(b64decode(line.split()[2]))
        self.say(_SAID.get(word, "250 ok"))
        if word == "STARTTLS":
            self.secure()

    def take(self) -> None:
        """Takes a mail."""
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b"."))
        mail = message_from_bytes(b"".join(lines), policy=policy.default)
        self.server.box.got.append(cast("EmailMessage", mail))
        self.server.box.encrypted.append(isinstance(self.connection, ssl.SSLSocket))


class Server(socketserver.ThreadingTCPServer):
    """A thread for each connection."""

    daemon_threads = True
    box: Mailbox


class Mailbox:
    """Keeps what it gets. ``answers`` has what it says to a command instead of obeying."""

    def __init__(self, tls: Path, *, at_once: bool = False) -> None:
        self.got: list[EmailMessage] = []
        self.encrypted: list[bool] = []
        self.logins: list[bytes] = []
        self.answers: dict[str, str] = {}
        self.at_once = at_once
        self.slow = 0.0
        """Seconds between two lines of a greeting that does not end."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(tls)
        self.server = Server(("127.0.0.1", 0), Talk)
        self.server.box = self
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self.server.shutdown()
        self.server.server_close()
