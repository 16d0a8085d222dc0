"""The compose file, and the scripts beside it on a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from containerfile import ROOT, stages

from accountant.config.settings import Settings
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from bench.postgres import binaries, server

FOLDER = ROOT / "deploy" / "compose"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file."""
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert isinstance(found, dict)
    return found


def test_it_is_a_compose_file(compose: dict[str, Any]) -> None:
    """It is valid by the Compose Specification's schema, where a package has it."""
    spec = pytest.importorskip("compose_spec", reason="compose-spec is not installed")
    spec.ComposeSpecification.model_validate(compose)


def test_what_is_named_is_there(compose: dict[str, Any]) -> None:
    """Every secret, volume, network, service and file that a service names exists, and none is
    there for nothing.
    """
    used: dict[str, set[str]] = {"secrets": set(), "volumes": set(), "networks": set()}
    for service in compose["services"].values():
        for kind, names in used.items():
            found = {str(one).partition(":")[0] for one in service.get(kind, ())}
            names |= {name for name in found if not name.startswith((".", "/"))}
            for path in found - names:
                assert (FOLDER / path).exists(), path
        assert service.get("depends_on", {}).keys() <= compose["services"].keys()
    assert used == {kind: set(compose[kind]) for kind in used}
    build = compose["services"]["migrate"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def test_ours_are_confined(compose: dict[str, Any]) -> None:
    """Migration and service write to their volume and /tmp alone, without capabilities; secrets
    come as files, and only what faces clients has a way out.
    """
    for name in ("migrate", "accountant"):
        one = compose["services"][name]
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        variables = {key.removesuffix("_FILE").lower() for key in one["environment"]}
        assert {key.removeprefix("accountant_") for key in variables} <= {
            *Settings.__dataclass_fields__
        }
    assert not re.search(r"(?i)(password|secret)\w*: *(?!/run/secrets|\[|\{|$)\S", _plain())
    assert compose["networks"]["inside"] == {"internal": True}
    assert "ports" not in compose["services"]["database"]
    assert compose["services"]["accountant"]["ports"] == ["127.0.0.1:8321:8321"]


def _plain() -> str:
    """The services of the file without comments."""
    text = (FOLDER / "compose.yaml").read_text().partition("\nservices:")[2]
    return re.sub(r"#.*", "", text.partition("\nnetworks:")[0])


def test_the_order_of_a_start(compose: dict[str, Any]) -> None:
    """The service starts once the migration has ended well, and that once the server answers. Both
    have the home that the image declares: a restore is run as the migration is.
    """
    services = compose["services"]
    assert services["accountant"]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"}
    }
    assert services["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    home = stages()[-1].environment["ACCOUNTANT_HOME"]
    for name in ("migrate", "accountant"):
        assert services[name]["volumes"] == [f"home:{home}"]
    assert services["migrate"]["restart"] == "no"


def test_the_scripts_make_a_database_that_the_service_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets are made once and kept; the roles that the server's script makes can migrate and
    serve by the URLs in the files, and the service's has no right to rewrite.
    """
    secrets = tmp_path / "secrets"
    with server() as fresh:
        make = [str(FOLDER / "make-secrets.sh"), str(secrets)]
        host = f"127.0.0.1:{fresh.port}"
        subprocess.run(make, check=True, env=os.environ | {"DATABASE_HOST": host})
        kept = {path.name: path.read_text() for path in secrets.iterdir()}
        subprocess.run(make, check=True, env=os.environ | {"DATABASE_HOST": "elsewhere"})
        assert {path.name: path.read_text() for path in secrets.iterdir()} == kept
        assert secrets.stat().st_mode & 0o777 == 0o700
        assert all(len(text) == 48 for name, text in kept.items() if name.endswith("_password"))
        with fresh.connect("postgres") as connection:
            connection.execute("DROP ROLE owner")
            connection.execute("DROP ROLE app")
        where = {
            "PATH": f"{binaries()}:/usr/bin:/bin",
            "SECRETS": str(secrets),
            "POSTGRES_USER": "superuser",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(fresh.port),
            "PGPASSWORD": fresh.superuser,
        }
        subprocess.run(["sh", str(FOLDER / "roles.sh")], check=True, env=where)
        for name in ("database_url", "owner_url"):
            monkeypatch.setenv(f"ACCOUNTANT_{name.upper()}_FILE", str(secrets / name))
        chosen = Settings.from_environment()
        assert migrate(chosen.database_url, chosen.owner_url)
        ledgers = open_ledgers(chosen.database_url)
        ledgers.check()
        assert ledgers.excess() == []
        ledgers.close()
