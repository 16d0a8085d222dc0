"""backup, restore: a copy of the database and the vault, and putting it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accountant import __version__
from accountant.cli import common
from accountant.cli.progress import progress
from accountant.store.ledgers import shown
from accountant.store.whole import whole

if TYPE_CHECKING:
    from accountant.store.archive import Manifest

PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="a file with the passphrase that seals the keys; its last line end is cut"),
]


@common.app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="the file to write, or to replace")],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Copy the database and the vault, as they are at one moment, to one file.

    Services may go on writing. Every event is hashed on the way.
    """
    from accountant.store.backup import back_up  # noqa: PLC0415 (loads Alembic and pydantic)

    chosen, passphrase = common.settings(), _passphrase(passphrase_file)
    with progress() as bars, whole(file, 0o600) as handle:
        task = bars.add_task("copying", total=None)
        manifest = back_up(
            chosen.database_url,
            chosen.home,
            handle,
            version=__version__,
            owner_url=chosen.owner_url,
            passphrase=passphrase,
            progress=lambda rows: bars.advance(task, rows),
        )
    _show(manifest)
    common.say(f"wrote {file}: {file.stat().st_size:,} bytes")
    if _signed(manifest) and not any(name.endswith(".key") for name in manifest.vault):
        common.say(
            f"warning: {file} holds no signing key, and ledgers of the database were signed: "
            f"{chosen.home / 'vault'} has none. Name the service's home folder (ACCOUNTANT_HOME)",
            "yellow",
        )
    if passphrase is None and manifest.vault:
        common.say(
            f"warning: {file} holds the signing keys in clear. Whoever reads it can sign another "
            "history: keep it as you keep the vault, or seal it with --passphrase-file",
            "yellow",
        )


@common.app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="a file that `accountant backup` wrote")],
    passphrase_file: PassphraseFile = None,
    check: Annotated[
        bool, typer.Option("--check", help="only check the file, and restore nothing")
    ] = False,
    older: Annotated[
        bool,
        typer.Option("--older", help="even if it lacks events that were signed; then recover"),
    ] = False,
) -> None:
    """Make the database and the vault from a backup, where there is no database.

    Every digest, event and head is checked; what fails leaves nothing.
    """
    from accountant.store import restore as restoring  # noqa: PLC0415 (as above)

    chosen, passphrase = common.settings(), _passphrase(passphrase_file)
    with progress() as bars, file.open("rb") as handle:
        task = bars.add_task("checking" if check else "restoring", total=None)

        def advance(rows: int) -> None:
            bars.advance(task, rows)

        if check:
            manifest = restoring.checked(handle, passphrase, advance)
        else:
            manifest = restoring.restore(
                chosen.database_url,
                chosen.home,
                handle,
                owner_url=chosen.owner_url,
                passphrase=passphrase,
                older=older,
                progress=advance,
            )
    _show(manifest)
    if check:
        common.say(f"{file} is whole: nothing was restored")
        return
    common.say(f"restored to {shown(chosen.database_url)} and {chosen.home / 'vault'}")
    common.say(
        f"what was done to API keys and texts after {manifest.made} is undone: keys revoked since "
        "are valid again (accountant keys list), and texts erased since are back",
        "yellow",
    )


def _show(manifest: Manifest) -> None:
    for name, end in manifest.ledgers.items():
        common.show(f"{name}: {end.size} events, root {end.root}", soft_wrap=True)


def _signed(manifest: Manifest) -> bool:
    """Whether the database that was copied holds a signed head."""
    return any(part.rows for part in manifest.parts if part.table == "checkpoint")


def _passphrase(file: Path | None) -> bytes | None:
    """Return the content of the file. Raises ValueError if it is too short to be of use."""
    if file is None:
        return None
    passphrase = file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    if len(passphrase) < 12:
        raise ValueError(f"the passphrase in {file} is shorter than 12 bytes; choose a longer one")
    return passphrase
