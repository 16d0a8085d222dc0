"""The bill of materials of a release, in CycloneDX's JSON.

What is installed, its licences and what needs what come from the environment that the release was
tried in, by CycloneDX's own tool. The hashes come from the lock that it was installed by: they are
those of all files that may be downloaded for a version.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

VERSION = SchemaVersion.V1_6
_NO_PARTS = {"pip", "setuptools"}
"""What an environment has to be filled by, and a release does not need."""


def of(python: Path, project: Path, lock: Path, wheels: Iterable[Path]) -> str:
    """The bill of what the environment of ``python`` has; the same for the same environment."""
    command = [
        Path(sys.executable).with_name("cyclonedx-py"),
        "environment",
        "--output-reproducible",
    ]
    options = [
        "--spec-version",
        VERSION.to_version(),
        "--pyproject",
        project,
        "--mc-type",
        "application",
    ]
    done = subprocess.run(
        [*command, *options, python], check=True, capture_output=True, text=True, cwd="/"
    )
    found = json.loads(done.stdout)
    hashes = locked(lock.read_text()) | {_name(one): [_digest(one)] for one in wheels}
    root = found["metadata"]["component"]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    found["metadata"]["timestamp"] = datetime.fromtimestamp(epoch, UTC).isoformat()
    found["components"] = [
        _hashed(one, hashes) for one in found["components"] if one["name"] not in _NO_PARTS
    ]
    _hashed(root, hashes)
    kept = {one["bom-ref"] for one in [root, *found["components"]]}
    found["dependencies"] = [one for one in found["dependencies"] if one["ref"] in kept]
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if fault := JsonStrictValidator(VERSION).validate_str(text):
        raise SystemExit(f"the bill of materials is not valid: {fault}")
    return text


def locked(text: str) -> dict[str, list[str]]:
    """The SHA-256 that a lock allows for each package."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if start := re.match(r"([A-Za-z0-9][\w.-]*)==", line):
            name = _plain(start[1])
        if digest := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            found.setdefault(name, []).append(digest[1])
    return found


def _hashed(component: dict[str, Any], hashes: dict[str, list[str]]) -> dict[str, Any]:
    name = _plain(component["name"])
    if name not in hashes:
        raise SystemExit(f"{component['name']} is installed, and neither locked nor built here")
    component["externalReferences"] = [
        one for one in component.get("externalReferences", ()) if one["type"] != "distribution"
    ] + [
        {
            "type": "distribution",
            "url": f"pkg:pypi/{name}@{component['version']}",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for digest in sorted(hashes[name])
    ]
    return component


def _name(wheel: Path) -> str:
    return _plain(wheel.name.partition("-")[0])


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


def _plain(name: str) -> str:
    """A name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
