"""The folder that a run leaves behind. An older one is replaced only if it is a demonstration's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

README: Final = "README.txt"
_SIGNATURE: Final = "This folder was written by `python -m accountant.demo`."

_TEXT: Final = f"""{_SIGNATURE}
Nothing in it is needed by anything else; the whole folder may be deleted. The next run replaces it.

report.html, .json, .csv   the compliance report, for people, programs and spreadsheets
ledger.jsonl               every event of the ledger as the auditor fetched it, one a line; check it
                           without any database: accountant replay ledger.jsonl
accountant.db              the service's database
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
    (folder / "logs").mkdir()
    (folder / README).write_text(_TEXT)
