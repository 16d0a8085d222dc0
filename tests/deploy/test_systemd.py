"""The units: systemd takes them, and finds little that they could do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from containerfile import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MOST = 1.5
"""Of 10: what `systemd-analyze security` calls exposure. It begins to frown at 2.5."""
FENCES = {
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "CapabilityBoundingSet=",
    "MemoryDenyWriteExecute=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "SystemCallFilter=@system-service",
    "DynamicUser=yes",
    "UMask=0077",
}


@pytest.fixture(params=UNITS, ids=lambda path: path.stem)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit whose program is there: verifying looks for it."""
    path: Path = request.param
    text = path.read_text()
    assert text.count("ExecStart=/opt/accountant/bin/accountant ") == 1
    copy = tmp_path / path.name
    copy.write_text(text.replace("ExecStart=/opt/accountant/bin/accountant ", "ExecStart=/bin/sh "))
    return copy


def test_there_are_two_units() -> None:
    """One that serves, one that migrates."""
    assert {path.stem for path in UNITS} == {"accountant", "accountant-migrate"}


def test_each_fence_is_there(unit: Path) -> None:
    """Whatever a unit has no use for is taken from it."""
    assert set(unit.read_text().splitlines()) >= FENCES


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_it(unit: Path) -> None:
    """No directive is unknown or has a value that systemd passes over; little is exposed."""
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # The threshold is in tenths.
    security = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST * 10:.0f}"]
    done = subprocess.run([*security, str(unit)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_commands_run_as_the_service_does() -> None:
    """The script for other commands gives them the service's user, settings, folders and limits."""
    script = (ROOT / "deploy" / "systemd" / "accountant.sh").read_text()
    given = set(re.findall(r"--property=(\S+)", script))
    given |= {f"Environment={one}" for one in re.findall(r"--setenv=(\S+)", script)}
    unit = (ROOT / "deploy" / "systemd" / "accountant.service").read_text()
    unit = re.sub(
        r"^Environment=(.*)$",
        lambda m: "\n".join(f"Environment={one}" for one in m[1].split()),
        unit,
        flags=re.MULTILINE,
    )
    own = {"EnvironmentFile=-$settings", "EnvironmentFile=-/etc/accountant/migrate.env"}
    assert own <= given
    assert given - own <= set(unit.splitlines())
    assert "settings=/etc/accountant/accountant.env\n" in script
    assert "EnvironmentFile=-/etc/accountant/accountant.env" in unit
    assert script.rstrip().endswith('/opt/accountant/bin/accountant "$@"')
