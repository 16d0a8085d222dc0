"""The folder that a run leaves behind. An older one is replaced only if it is a demonstration's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

README: Final = "README.txt"
AUDIT: Final = "audit"
_SIGNATURE: Final = "This folder was written by `python -m accountant.demo`."

_TEXT: Final = f"""{_SIGNATURE}
Nothing in it is needed by anything else; the whole folder may be deleted. The next run replaces it.

report.html, .json, .csv   the compliance report, for people, programs and spreadsheets
audit/                     what the auditor holds: the ledger's key, a receipt, and the evidence as
                           bundle.tar (forged.tar is the same with one digit changed); check it:
                           accountant verify bundle.tar --key KEY --checkpoint receipt.tlog-proof
                           python -m accountant.verify_minimal bundle.tar --key KEY
accountant.db              the service's database
vault/                     the keys that the ledger is signed with, and the heads it signed last
logs/service.jsonl         the service's log, one JSON object a line
logs/*.txt                 what each pipeline and the auditor printed

API keys are not kept here. To look at this ledger through the service again, in this folder:
ACCOUNTANT_HOME=. accountant keys create --role auditor --name me
ACCOUNTANT_HOME=. accountant serve
"""


class NotOurs(Exception):
    """The folder holds something that this demonstration did not write."""


def prepare(folder: Path) -> None:
    """Makes ``folder`` empty, readable by its owner only. Raises NotOurs, and changes nothing."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise NotOurs(f"{folder} is not a folder; choose another place with --out")
    if folder.is_dir() and any(folder.iterdir()):
        readme = folder / README
        ours = readme.is_file() and readme.read_text(errors="replace").startswith(_SIGNATURE)
        if not ours:
            raise NotOurs(
                f"{folder} holds files that no demonstration wrote, so it is left alone; "
                "choose another place with --out"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name in ("logs", AUDIT):
        (folder / name).mkdir()
    (folder / README).write_text(_TEXT)
