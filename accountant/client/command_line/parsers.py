"""The commands, their options, and where each is carried out."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from accountant.client.command_line.failures import Misuse

MECHANISM: Final = (
    "what will run: a JSON object, @file.json, or kind:name=value,name=value; repeated for several"
)
RUN: Final = """\
Reserves the budget, runs COMMAND under its grant, and settles by its exit code, which becomes this
one's. Exit code 0 commits. Any other code commits too: noise may have been drawn before it failed.
A code that --nothing-ran names releases, and so does a program that cannot be started. A command
that settles its grant itself (its id is in ACCOUNTANT_GRANT) has the last word. If the request is
refused, COMMAND is not started, and the exit code is 1.

Signals are passed on to COMMAND. If this process is killed outright (kill -9, a power loss), the
grant stays open until it expires, and is then charged in full; COMMAND may go on running.
"""
_GRANT: Final = re.compile(r"g[0-9]{1,18}")
_EVENT: Final = re.compile(r"[dg]?([0-9]{1,15})")
_KEY: Final = re.compile(r"[!-~]{1,200}")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise Misuse."""
        raise Misuse(f"{message}; see `{self.prog} --help`")


class Command(NamedTuple):
    """A command: its line in the list, its options, the module that carries it out."""

    summary: str
    options: Callable[[argparse.ArgumentParser], None]
    module: str


def grant_id(text: str) -> str:
    """Return the id of a grant. Raise ArgumentTypeError."""
    if not _GRANT.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no grant: write g42")
    return text


def event_number(text: str) -> int:
    """Return the number of an event, from 42, g42 or d42. Raise ArgumentTypeError."""
    if not (found := _EVENT.fullmatch(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not an event: write 42, g42 or d42")
    return int(found[1])


def idempotency_key(text: str) -> str:
    """Return an idempotency key. Raise ArgumentTypeError."""
    if not _KEY.fullmatch(text):
        raise argparse.ArgumentTypeError("an idempotency key has 1 to 200 visible ASCII characters")
    return text


def unicode_text(word: str) -> str:
    """Return a text, which is UTF-8 whatever the locale says; ``@`` and a file stay as they are.
    Raise ArgumentTypeError.
    """
    try:
        return word if word.startswith("@") else os.fsencode(word).decode()
    except UnicodeError:
        raise argparse.ArgumentTypeError("it is not UTF-8") from None


def seconds(text: str) -> int:
    """Return a whole number of seconds. Raise ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of seconds")
    return int(text)


def exit_code(text: str) -> int:
    """Return an exit code that can mean that nothing ran. Raise ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 0 < int(text) < 256):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no exit code from 1 to 255 (0 says that all of it ran)"
        )
    return int(text)


def _request(to: argparse.ArgumentParser) -> None:
    text: dict[str, Any] = {"type": unicode_text}
    to.add_argument("--dataset", action="append", help="repeated for a join", **text)
    to.add_argument("--mechanism", action="append", help=MECHANISM, **text)
    to.add_argument("--purpose", help="what it is for, as the policy lists it", **text)
    to.add_argument("--justification", help="why, in words", **text)
    to.add_argument("--allotment", help="the allotment to draw from; else the common part", **text)
    to.add_argument("--subjects", metavar="JSON", help="the group that is asked about", **text)


def _body(to: argparse.ArgumentParser) -> None:
    to.add_argument("file", metavar="FILE", nargs="?", help="the request as JSON; - reads stdin")
    _request(to)


def _named(to: argparse.ArgumentParser) -> None:
    text = "the same for every retry of one piece of work"
    to.add_argument("--idempotency-key", type=idempotency_key, metavar="KEY", help=text)


def _ttl(to: argparse.ArgumentParser) -> None:
    text = "seconds until the grant expires and is charged; default: an hour"
    to.add_argument("--ttl", type=seconds, metavar="SECONDS", help=text)


def _settles(to: argparse.ArgumentParser) -> None:
    to.add_argument("grant", metavar="GRANT", type=grant_id, help="the grant's id, such as g42")
    _named(to)


def _json(to: argparse.ArgumentParser) -> None:
    to.add_argument("--json", action="store_true", help="print JSON")


def _grant(to: argparse.ArgumentParser) -> None:
    _body(to)
    _ttl(to)
    _named(to)
    _json(to)


def _commit(to: argparse.ArgumentParser) -> None:
    _settles(to)
    text = "what ran, if it was not all: as it was reserved; repeated for several"
    to.add_argument("--mechanism", action="append", type=unicode_text, help=text)
    _json(to)


def _release(to: argparse.ArgumentParser) -> None:
    _settles(to)
    text = "why nothing was executed on the data"
    to.add_argument("--reason", required=True, type=unicode_text, help=text)
    _json(to)


def _republish(to: argparse.ArgumentParser) -> None:
    to.add_argument("grant", metavar="GRANT", type=grant_id, help="the grant's id, such as g42")
    text = "the answer as it was published; - reads stdin"
    to.add_argument("answer", metavar="FILE", help=text)
    text = "a dataset that the grant names; repeated for several"
    to.add_argument("--dataset", action="append", required=True, help=text)
    _named(to)
    _json(to)


def _proposals(to: argparse.ArgumentParser) -> None:
    to.add_argument("--all", action="store_true", help="also those that are closed or expired")
    _keys(to)
    _json(to)


def _keys(to: argparse.ArgumentParser) -> None:
    to.add_argument("--keys", action="store_true", help="those of API keys")


def _confirm(to: argparse.ArgumentParser) -> None:
    to.add_argument("proposal", metavar="PROPOSAL", type=event_number, help="its number")
    text = "the digest of the proposal that you read"
    to.add_argument("--digest", required=True, help=text)
    to.add_argument("--reason", type=unicode_text, help="why; recorded")
    _keys(to)
    _named(to)
    _json(to)


def proposal_or_grant(text: str) -> str:
    """Return the number of a proposal, or the id of a request. Raise ArgumentTypeError."""
    return text if _GRANT.fullmatch(text) else str(event_number(text))


def _approvals(to: argparse.ArgumentParser) -> None:
    _json(to)


def _approve(to: argparse.ArgumentParser) -> None:
    to.add_argument("grant", metavar="GRANT", type=grant_id, help="the request, such as g42")
    to.add_argument("--digest", required=True, help="the digest of the request that you read")
    to.add_argument("--reason", type=unicode_text, help="why; recorded")
    _named(to)
    _json(to)


def _decline(to: argparse.ArgumentParser) -> None:
    text = "a proposal by its number, or a request that waits for a person, such as g42"
    to.add_argument("proposal", metavar="PROPOSAL|GRANT", type=proposal_or_grant, help=text)
    to.add_argument("--digest", help="of a request: the digest of what you read")
    to.add_argument("--reason", required=True, type=unicode_text, help="why; recorded")
    _keys(to)
    _named(to)
    _json(to)


def _record(to: argparse.ArgumentParser) -> None:
    _body(to)
    to.add_argument("--ran-at", metavar="TIME", help="when it ran (RFC 3339)")
    _named(to)
    _json(to)


def _grants(to: argparse.ArgumentParser) -> None:
    to.add_argument("--dataset", help="only those on this dataset")
    _json(to)


def _accounts(to: argparse.ArgumentParser) -> None:
    to.add_argument("--dataset", help="show only this dataset")
    to.add_argument("--by", help="split the totals by this dimension")
    _json(to)


def _preview(to: argparse.ArgumentParser) -> None:
    _body(to)
    to.add_argument("--client", help="only with --local: the client that would ask")
    _json(to)


def _explain(to: argparse.ArgumentParser) -> None:
    text = "an event, grant or decision: 42, g42 or d42"
    to.add_argument("event", metavar="EVENT", type=event_number, help=text)
    _json(to)


def _report(to: argparse.ArgumentParser) -> None:
    text = "of a period: officer (default), statement (of a dataset), population"
    to.add_argument("--kind", choices=("officer", "statement", "population"), help=text)
    to.add_argument("--dataset", help="the dataset of the statement")
    to.add_argument("--month", metavar="MONTH", help="the period: 2026-10")
    text = "the first day of the period: 2026-10-05"
    to.add_argument("--from", dest="first_day", metavar="DAY", help=text)
    text = "the last day of the period; default: today"
    to.add_argument("--to", dest="last_day", metavar="DAY", help=text)
    text = "html, json, csv, or pdf (of a period); default: the ending of --out, or html"
    to.add_argument("--format", dest="form", choices=("html", "json", "csv", "pdf"), help=text)
    to.add_argument("--out", "-o", metavar="FILE", help="file to write; default: standard output")


def _export(to: argparse.ArgumentParser) -> None:
    to.add_argument("file", metavar="FILE", help="the bundle to write")
    to.add_argument("--from", dest="first", type=event_number, metavar="N", help="first event")
    to.add_argument("--to", dest="last", type=event_number, metavar="N", help="last event")
    text = "leave out purposes and reasons"
    to.add_argument("--without-texts", action="store_true", help=text)


def _verify(to: argparse.ArgumentParser) -> None:
    text = "a bundle, which is checked without the service; default: the service's ledger now"
    to.add_argument("bundle", metavar="BUNDLE", nargs="?", help=text)
    to.add_argument("--key", help="a verifier key of the ledger, received independently")
    text = "record the result in the service's ledger, under the name of your key"
    to.add_argument("--record", action="store_true", help=text)
    _json(to)


def _receipt(to: argparse.ArgumentParser) -> None:
    text = "the event's sequence, or a grant's id"
    to.add_argument("--event", type=event_number, required=True, help=text)
    to.add_argument("--out", metavar="FILE", help="file to write; default: standard output")


def _deliver(to: argparse.ArgumentParser) -> None:
    to.add_argument("--spool", metavar="FOLDER", help="default: ACCOUNTANT_SPOOL")
    _json(to)


def _wait(to: argparse.ArgumentParser) -> None:
    text = "how long to wait for budget or approval, such as 1h or 7d; default: not at all"
    to.add_argument("--wait", type=unicode_text, metavar="TIME", help=text)


def _run(to: argparse.ArgumentParser) -> None:
    to.usage = "accountant run [options] -- COMMAND [argument ...]"
    to.description, to.formatter_class = RUN, argparse.RawDescriptionHelpFormatter
    to.add_argument("--request", dest="file", metavar="FILE", help="the request as JSON")
    _request(to)
    _ttl(to)
    _wait(to)
    text = "an exit code by which COMMAND attests that nothing ran on the data; repeated"
    to.add_argument(
        "--nothing-ran", type=exit_code, action="append", default=[], metavar="CODE", help=text
    )
    _named(to)


def _populations(to: argparse.ArgumentParser) -> None:
    to.add_argument("action", choices=["create"], help="register it, or append values")
    to.add_argument("--privacy-unit", required=True, help="who is protected: person, household, …")
    relations = ["add_or_remove_one", "replace_one", "zero_out"]
    to.add_argument("--neighbouring", required=True, choices=relations)
    to.add_argument("--membership", required=True, choices=["public", "private"])
    text = "a dimension, and a file with a value a line; repeated for several"
    to.add_argument("--dimension", action="append", default=[], metavar="NAME=FILE", help=text)
    text = "why a dimension that looks like times of events never changes for a unit"
    to.add_argument("--fixed", action="append", default=[], metavar="NAME=WHY", help=text)
    to.add_argument("--json", action="store_true", help="print the population as JSON")


COMMANDS: Final = {
    "grant": Command("Reserve budget before something runs.", _grant, "asking"),
    "commit": Command("Say that what was reserved has run, whole or in part.", _commit, "settling"),
    "release": Command("Say that nothing ran, and give the budget back.", _release, "settling"),
    "republish": Command(
        "Record that an answer is published again, at no charge.", _republish, "settling"
    ),
    "record": Command("Record what already ran.", _record, "settling"),
    "grants": Command("List your own open grants.", _grants, "asking"),
    "proposals": Command("List changes that wait for a second person.", _proposals, "proposing"),
    "confirm": Command("Confirm another person's proposal.", _confirm, "proposing"),
    "decline": Command(
        "Decline a proposal, or withdraw your own; or decline a request.", _decline, "proposing"
    ),
    "approvals": Command("List requests that wait for a person.", _approvals, "approving"),
    "approve": Command("Approve another person's request.", _approve, "approving"),
    "deliver": Command("Report what waits in the spool.", _deliver, "settling"),
    "run": Command("Run a command under a grant.", _run, "running"),
    "accounts": Command(
        "Show limits and the spent, reserved and left amounts.", _accounts, "asking"
    ),
    "preview": Command("Show the decision that a request would get.", _preview, "asking"),
    "explain": Command("Show a decision with both sides of every comparison.", _explain, "asking"),
    "report": Command("Fetch the compliance report.", _report, "evidence"),
    "export": Command("Fetch the ledger as an evidence bundle.", _export, "evidence"),
    "populations": Command("Register a population.", _populations, "registering"),
    "verify": Command("Check a bundle by the second verifier.", _verify, "evidence"),
    "receipt": Command("Fetch the proof that an event is in the ledger.", _receipt, "evidence"),
}
BESIDE_THE_DATABASE: Final = frozenset(
    {"accounts", "preview", "explain", "report", "export", "verify", "receipt"}
    | {"proposals", "confirm", "decline", "approvals", "approve"}
)
"""The commands that also exist beside the database, where they take more options."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = Parser(
        prog="accountant",
        description="Ask the accountant service at ACCOUNTANT_URL about ACCOUNTANT_POPULATION, "
        "with the key in ACCOUNTANT_KEY or in the file that ACCOUNTANT_KEY_FILE names.",
        allow_abbrev=False,
    )
    from accountant import __version__  # noqa: PLC0415 (the package itself, above this room)

    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        text = command.summary
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.options(one)
        if name in BESIDE_THE_DATABASE:
            one.add_argument("--local", action="store_true", help="read the database beside it")
        text = "name of the population; default: ACCOUNTANT_POPULATION"
        one.add_argument("--population", "-p", help=text)
    return top


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and for ``run`` the command to run. Raise Misuse, SystemExit (help)."""
    options, command = list(words), list[str]()
    if options[:1] == ["run"] and "--" in options:
        end = options.index("--")
        options, command = options[:end], options[end + 1 :]
    asked, unknown = parser().parse_known_args(options)
    if unknown:
        raise Misuse(_unknown(asked.command, unknown))
    return asked, command


def check_installed(words: Sequence[str], missing: str) -> None:
    """Raise Misuse for a command that needs a package which is missing here."""
    command = next(iter(words), "--help")
    if "--local" in words or not (command in COMMANDS or command.startswith("-")):
        raise Misuse(
            f"{command} runs beside the database, and {missing} is not installed here: install "
            "privacy-accountant, the service, with what it needs"
        )


def _unknown(command: str, words: Sequence[str]) -> str:
    text = f"accountant {command} has no place for {' '.join(map(repr, words))}"
    if command == "run":
        return f"{text}; write the command to run behind --"
    hint = "" if command not in BESIDE_THE_DATABASE else "; perhaps beside the database: --local"
    return f"{text}{hint}; see `accountant {command} --help`"
