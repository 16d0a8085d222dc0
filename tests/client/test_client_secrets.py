"""A key is seen by the service and by nobody else, and hopeless requests are not repeated."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from accountant.client import AccountantError, Client, Unreachable, laplace
from accountant.client.transport import hopeless

if TYPE_CHECKING:
    from conftest import Network, Served

COUNT = laplace(1, 4)


def told(error: BaseException) -> str:
    """All that anybody can read of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


@pytest.mark.parametrize("end", ["\n", "\r\n", "  ", "\t"], ids=repr)
def test_a_line_end_after_the_key_does_no_harm(served: Served, end: str) -> None:
    """Keys are often read from files. What surrounds them is not part of them."""
    with Client(served.url, served.keys["pipeline"] + end, served.population()) as client:
        assert client.accounts().sequence >= 0


@pytest.mark.parametrize(
    "key", ["", "  ", "acct_se cret", "acct_sec\nret", "acct_sécret", "x" * 2000]
)
def test_a_key_that_cannot_be_sent_is_refused_unseen(served: Served, key: str) -> None:
    """The error comes at once, and does not quote the key."""
    with pytest.raises(ValueError, match="key") as raised:
        Client(served.url, key, "people")
    assert not key.strip() or key.strip() not in told(raised.value)


@pytest.mark.parametrize("address", ["served", "http://127.0.0.1:9"], ids=str)
def test_no_error_shows_the_key(served: Served, address: str) -> None:
    """Refused, not allowed, unreachable: whatever is raised says nothing of the key."""
    url = served.url if address == "served" else address
    for secret in (served.keys["pipeline"], "acct_an-unknown-but-secret-key"):
        with Client(url, secret, served.population(), attempts=2, backoff=0.01) as client:
            assert secret not in repr(client)
            for ask in (
                lambda: client.grant("visits", [laplace(1, "0.1")], purpose="test"),
                lambda: client.grant("nowhere", [COUNT]),
                client.checkpoint,
            ):
                with pytest.raises(AccountantError) as raised:
                    ask()
                assert secret not in told(raised.value)


@pytest.mark.parametrize("treatment", ["page", "forbidden"])
def test_a_proxy_that_shows_the_request_shows_no_key(
    served: Served, network: Network, treatment: str
) -> None:
    """Keys are taken out of what an error quotes."""
    network.plan = [treatment] * 4
    secret = served.keys["pipeline"]
    with served.client(served.population(), url=network.url, attempts=2) as client:
        for ask in (client.accounts, lambda: client.release("g1", "x")):
            with pytest.raises(AccountantError) as raised:
                ask()
            assert secret not in told(raised.value)


@pytest.mark.parametrize("end", ["", "\n"], ids=repr)
def test_a_key_may_be_in_a_file(served: Served, tmp_path: Path, end: str) -> None:
    """ACCOUNTANT_KEY_FILE names it; ACCOUNTANT_KEY comes first, and one of them is needed."""
    file = tmp_path / "key"
    file.write_text(served.keys["pipeline"] + end)
    env = {"ACCOUNTANT_URL": served.url, "ACCOUNTANT_POPULATION": served.population()}
    with Client.from_env(env=env | {"ACCOUNTANT_KEY_FILE": str(file)}) as client:
        assert client.accounts().sequence >= 0
    other = {"ACCOUNTANT_KEY": served.keys["other"], "ACCOUNTANT_KEY_FILE": "/nowhere"}
    with Client.from_env(env=env | other) as client:
        assert client.accounts().sequence >= 0
    with pytest.raises(KeyError, match="ACCOUNTANT_KEY"):
        Client.from_env(env=env)
    with pytest.raises(OSError, match="/nowhere"):
        Client.from_env(env=env | {"ACCOUNTANT_KEY_FILE": "/nowhere"})


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8321",
        "ftp://host",
        "http://",
        "http://user:secret@host",
        "http://:secret@host",
        "https://host/?key=secret",
        "https://host/#secret",
        "http://host:secret",
        "http://host:99999",
        "http://ho st",
        "http://host/\nsecret",
        "http://[::1",
    ],
)
def test_an_address_is_checked_at_once(url: str) -> None:
    """What is no address of a service, or holds a secret, is refused before anything is sent."""
    with pytest.raises(ValueError, match="address") as raised:
        Client(url, "key", "people")
    assert "secret" not in str(raised.value)


def test_what_surrounds_an_address_is_not_part_of_it(served: Served) -> None:
    """Addresses are read from files as keys are."""
    with Client(f" {served.url}/\n", served.keys["pipeline"], served.population()) as client:
        assert client.accounts().sequence >= 0
        assert client.url == served.url


def test_a_redirect_is_an_error_that_names_its_end(served: Served, network: Network) -> None:
    """A redirect is not followed, for the key would go along; where it leads is said."""
    network.plan = ["moved"]
    with (
        served.client(served.population(), url=network.url) as client,
        pytest.raises(AccountantError, match=r"redirects to https://accountant\.example/v1"),
    ):
        client.accounts()


@pytest.mark.parametrize("population", ["", "a/b", "a?b", "../people", "ä"])
def test_a_population_is_a_name(population: str) -> None:
    """A name that would be another path is refused."""
    with pytest.raises(ValueError, match="population"):
        Client("http://127.0.0.1:1", "key", population)


def test_what_cannot_get_better_is_not_retried(served: Served) -> None:
    """A request that no attempt can send fails in the first one."""
    with Client(served.url, "key", served.population(), backoff=5.0) as client:
        client._options["headers"]["X-Bad"] = "line\nend"
        began = time.monotonic()
        with pytest.raises(Unreachable, match="in 1 attempt: LocalProtocolError"):
            client.accounts()
        assert time.monotonic() - began < 2


def test_an_untrusted_certificate_is_hopeless() -> None:
    """A certificate does not become trusted by asking again; a refused connection may pass."""
    untrusted = httpx2.ConnectError("certificate verify failed")
    untrusted.__cause__ = ssl.SSLCertVerificationError("self-signed")
    assert hopeless(untrusted)
    assert not hopeless(httpx2.ConnectError("connection refused"))


def test_a_service_behind_tls_is_verified(tmp_path: Path) -> None:
    """A certificate that nobody has signed ends the first attempt, and the key is not sent."""
    listening = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    heard: list[bytes] = []

    def serve() -> None:
        accepted, _ = listening.accept()
        with accepted, suppress(OSError), context.wrap_socket(accepted, server_side=True) as secure:
            heard.append(secure.recv(65_536))

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"https://127.0.0.1:{listening.getsockname()[1]}"
    with (
        Client(url, "acct_secret", "people") as client,
        pytest.raises(Unreachable, match=r"in 1 attempt: ConnectError.*CERTIFICATE_VERIFY_FAILED"),
    ):
        client.accounts()
    thread.join()
    listening.close()
    assert not heard


def test_a_service_without_tls_is_not_asked_again_with_it(served: Served) -> None:
    """An address with https where http is spoken does not get better by asking again."""
    with (
        Client(served.url.replace("http:", "https:"), "acct_secret", "people") as client,
        pytest.raises(Unreachable, match="in 1 attempt: ConnectError"),
    ):
        client.accounts()


def certificate(folder: Path) -> Path:
    """A file with a fresh key, and a certificate of it that it has signed itself."""
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, None)
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(*pem, serialization.NoEncryption())
    file = folder / "certificate.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


def test_retries_end_as_the_caller_says(served: Served) -> None:
    """At least one attempt is made, and no more than asked for."""
    with pytest.raises(ValueError, match="at least 1"):
        Client(served.url, "key", "people", attempts=0)
    options: dict[str, Any] = {"attempts": 3, "backoff": 0.01}
    with (
        Client("http://127.0.0.1:9", "key", "people", **options) as client,
        pytest.raises(Unreachable, match="in 3 attempts"),
    ):
        client.accounts()
