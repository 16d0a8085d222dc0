"""Asking, settling and recording by commands, and what they print."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from accountant.client import Client, Registrar, Spool, calls, gaussian, laplace, poisson
from accountant.client.command_line.documents import mechanisms_of, parsed, short
from accountant.client.command_line.failures import Misuse

if TYPE_CHECKING:
    from conftest import Network, Shell

ROOT = Path(__file__).resolve().parents[3]
COUNT = "laplace:sensitivity=1,scale=4"
REQUEST = ("--dataset", "visits", "--mechanism", COUNT, "--purpose", "test")


def body(**more: Any) -> dict[str, Any]:
    """A request as a document."""
    return {"dataset": "visits", "mechanisms": [laplace(1, 4)], "purpose": "test"} | more


def beside(shell: Shell) -> Shell:
    """A terminal beside the database."""
    return shell.with_(ACCOUNTANT_URL="", ACCOUNTANT_HOME=str(shell.served.home))


def said(text: str) -> list[str]:
    """The words of a text, however it is broken into lines."""
    return text.split()


# Requests


def test_short_forms_are_what_the_builders_make() -> None:
    """Counts are whole numbers, amounts are texts as they were written, dots lead inside."""
    assert short("laplace:sensitivity=1,scale=10,count=3") == laplace(1, 10, count=3)
    sampled = "gaussian: sensitivity=1, scale=1.1, count=10, sampling.poisson=0.01, delta=1e-6"
    expected = gaussian(1, "1.1", delta="1e-6", count=10, sampling=poisson("0.01"))
    assert short(sampled) == expected
    long = "0.1000000000000000055511151231257827"
    assert short(f"laplace:sensitivity.l1=1,scale={long}")["scale"] == long
    assert short("exponential:sensitivity=1,scale=4,monotonic=true")["monotonic"] is True
    assert short("non_private") == {"kind": "non_private"}
    assert short("gaussian:scale=1,sampling.without_replacement.of=9")["sampling"] == {
        "without_replacement": {"of": 9}
    }


@pytest.mark.parametrize(
    "text",
    ["", "laplace:scale", "laplace:scale=", "laplace:=1", "laplace:scale=1,scale=2",
     "Laplace:scale=1", "laplace:kind=gaussian", "laplace:count=1.5", "laplace:count=-1",
     "laplace:count=1e3", ":", "laplace:a.b=1,a=2", "laplace:a=1,a.b=2", "laplace:scale=1,,",
     "laplace scale=1", "@", "[]",
     "[1]", "{", '{"kind": NaN}', '{"kind": 1, "kind": 2}', '{"scale": "\\ud800"}', "@missing.json",
     "laplace:count=²"],
)  # fmt: skip
def test_a_mechanism_that_could_be_misread_is_refused(text: str) -> None:
    """Nothing is guessed: what is charged has to be what was meant."""
    with pytest.raises((Misuse, OSError)):
        mechanisms_of([text])


def test_the_documentation_writes_mechanisms_that_can_be_read() -> None:
    """Every short form on a page is one."""
    pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
    forms = {form for page in pages for form in re.findall(r"--mechanism ([a-z_]+:[^\s`]+)", page)}
    assert len(forms) > 3
    assert all(short(form)["kind"] for form in forms - {"kind:name=value,name=value"})


def test_numbers_are_sent_as_they_are_spelled() -> None:
    """No binary float comes between, and counts stay integers."""
    found = parsed('{"scale": 0.10000000000000000000000001, "n": 1E-6, "count": 12}', "x")
    assert found == {"scale": "0.10000000000000000000000001", "n": "1E-6", "count": 12}


def test_a_request_comes_in_every_form(shell: Shell) -> None:
    """As options, as JSON, as files, on standard input: the same request."""
    one = json.dumps(laplace(1, 4))
    file = shell.file("mechanism.json", one)
    several = shell.file("several.json", [laplace(1, 4)])
    for form in (COUNT, one, f"[{one}]", f"@{file}", f"@{several}"):
        shell("preview", "--dataset", "visits", "--mechanism", form, "--purpose", "test")
        shell(
            "grant", "--dataset", "visits", "--mechanism", form, "--purpose", "test", "--ttl", "9"
        )
        shell("release", f"g{3 + len(shell.events())}", "--reason", "only a test")
    whole = shell.file("request.json", body(ttl_seconds=9))
    shell("grant", whole)
    shell("release", "g14", "--reason", "only a test")
    shell("grant", "-", stdin=json.dumps(body(ttl_seconds=9)).encode())
    kept = [one["command"] for one in shell.events() if one["type"].startswith("grant.reserved")]
    commands = [one | {"purpose": None} for one in kept]  # each has a salt of its own
    assert len(commands) == 7
    assert all(one == commands[0] for one in commands)


def test_a_join_subjects_and_texts_arrive(shell: Shell) -> None:
    """Several datasets, a group and free texts in any script stand in the decision."""
    with Registrar(shell.served.url, shell.served.keys["admin"], shell.population) as registrar:
        registrar.dataset("stays", namespace=shell.population, name="stays")
    words = ("--dataset", "visits", "--dataset", "stays", "--subjects", '{"country": ["KR"]}')
    texts = ("--purpose", "Prüfung ☂", "--justification", "人口")
    shell("grant", *words, "--mechanism", COUNT, *texts)
    request = shell.json("explain", "g5")["request"]
    assert request["dataset"] == ["stays", "visits"]
    assert request["subjects"] == {"country": ["KR"]}
    assert (request["purpose"], request["justification"]) == texts[1::2]


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"dataset": "visits"', b"\xff\xfe", b'{"dataset": "\\ud800"}',
     b'{"dataset": "visits", "dataset": "x"}', b'{"dataset": NaN}', b"[" * 100_000],
    ids=lambda data: repr(data[:20]),
)  # fmt: skip
def test_a_file_that_is_no_request_is_refused_here(shell: Shell, data: bytes) -> None:
    """Before anything is sent, in one line."""
    assert "[misuse]" in shell.wrong("grant", "-", stdin=data)


def test_what_the_service_refuses_is_told_by_its_code(shell: Shell) -> None:
    """A misspelt field, an unknown dataset or population, a wrong role."""
    wrong = shell.file("wrong.json", body(porpose="x"))
    assert "[invalid-request]" in shell.wrong("grant", wrong)
    unknown = ("--dataset", "nowhere", "--mechanism", COUNT, "--purpose", "x")
    assert "[unknown-dataset]" in shell.wrong("grant", *unknown)
    assert "[unknown-population]" in shell.wrong("grants", "-p", "nobody")
    assert "[role-not-allowed]" in shell.with_("auditor").wrong("grant", *REQUEST)
    document = shell.json("grant", *unknown, code=2)
    assert document["type"].endswith(":unknown-dataset")


# Grants


def test_a_grant_is_committed_released_and_listed(shell: Shell) -> None:
    """The first word is the grant's id; what is open is listed until it is settled."""
    granted = shell("grant", *REQUEST).text
    assert granted.startswith("g4: epsilon 0.25, delta 0, reserved until ")
    assert shell.json("grant", *REQUEST)["id"] == "g5"
    listed = shell("grants").text.splitlines()
    assert [line.split()[0] for line in listed] == ["grant", "g4", "g5"]
    assert [one["id"] for one in shell.json("grants", "--dataset", "visits")] == ["g4", "g5"]
    assert shell("commit", "g4").text == "g4: committed, epsilon 0.25, delta 0 charged\n"
    assert shell.json("release", "g5", "--reason", "no rows")["state"] == "released"
    assert shell("grants").text == "no open grants\n"
    assert "[grant-settled]" in shell.wrong("commit", "g4")
    assert "[unknown-grant]" in shell.wrong("commit", "g999")
    assert "[not-your-grant]" in shell.with_("other").wrong("release", "g4", "--reason", "x")


def test_a_part_is_committed(shell: Shell) -> None:
    """Only what ran is charged."""
    shell("grant", "--dataset", "visits", "--mechanism", f"{COUNT},count=3", "--purpose", "x")
    assert "epsilon 0.5" in shell("commit", "g4", "--mechanism", f"{COUNT},count=2").text
    assert shell.spent() == ("0.5", "0")


def test_a_key_makes_a_retry_the_same(shell: Shell) -> None:
    """The grant is given once, and a retry says so."""
    words = ("grant", *REQUEST, "--idempotency-key", "once")
    first, again = shell.json(*words), shell.json(*words)
    assert (first.pop("repeated"), again.pop("repeated")) == (False, True)
    assert first == again
    assert "this key was used before" in shell(*words).text
    assert shell.kinds() == ["reserved"]


def test_a_refusal_says_why_and_what_would_fit(shell: Shell) -> None:
    """Exit code 1, one line with the code and the decision; for programs the whole problem."""
    dear = ("--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=0.5")
    told = shell.wrong("grant", *dear, "--purpose", "x", code=1)
    assert "it would fit now with scale 1 or more (decision d4) [budget-exceeded]" in told
    document = shell.json("grant", *dear, "--purpose", "x", code=1)
    assert document["would_fit"] == {"scale": "1"}
    assert "[reason-required]" in shell.wrong("grant", *dear[:3], COUNT, code=1)


def test_an_answer_that_was_lost_can_be_asked_for(shell: Shell, network: Network) -> None:
    """The error names the key under which the same is asked again, and nothing is charged twice."""
    away = shell.with_(ACCOUNTANT_URL=network.url)
    for words in (("grant", *REQUEST), ("record", *REQUEST), ("commit", "g4")):
        network.plan = ["lose", *["cut"] * 4]
        told = away.wrong(*words)
        key = told.partition("--idempotency-key ")[2].split()[0]
        assert "[no-answer]" in told
        shell(*words, "--idempotency-key", key)
    assert shell.kinds() == ["reserved", "recorded", "committed"]
    assert shell.spent() == ("0.5", "0")


def test_a_person_approves_or_declines(shell: Shell) -> None:
    """What a rule leaves to a person waits; it is approved, or declined, by the digest read."""
    policy = "policy: p\nrules:\n  - {id: a, limit: {epsilon: 4}}\n"
    policy += "  - {id: big, action: approve, at_most: {epsilon: 1}}\n"
    with Registrar(shell.served.url, shell.served.keys["admin"], shell.population) as steward:
        shell.served.confirm(shell.population, steward.policy(policy))
    officer = shell.with_("officer")
    asks = "--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=0.5"
    assert "approve (it would wait for a person" in shell("preview", *asks).text
    first = shell.json("grant", *asks, code=1)
    assert first["waits_for"] == "approval"
    assert "waits until" in shell("grant", *asks, code=1).text
    assert "[not-approved]" in shell.wrong("run", *asks, "--", "true", code=1)
    for one in json.loads(officer("approvals", "--json").text)[1:]:
        said = officer("decline", one["id"], "--digest", one["digest"], "--reason", "once").text
        assert f"{one['id']}: declined" in said
    told = officer("approvals").text
    [one] = json.loads(officer("approvals", "--json").text)
    assert "0 % to 50 %" in told
    assert f"accountant approve {one['id']} -p {shell.population} --digest {one['digest']}" in told
    wrong = "approve", one["id"], "--digest", "0" * 64
    assert "[approval-digest]" in officer.wrong(*wrong)
    assert "--digest" in officer.wrong("decline", one["id"], "--reason", "no")
    said = officer("approve", one["id"], "--digest", one["digest"], "--reason", "worth it").text
    assert f"{one['id']}: approved, and granted as g" in said
    assert "no request waits" in officer("approvals").text


def test_a_second_person_confirms(shell: Shell) -> None:
    """Where the policy asks for one: the grant is open until an officer confirms by the digest."""
    rules = "policy: p\nrules:\n  - {id: lifetime, limit: {epsilon: 1}}\n"
    rules += "  - {id: word, trusted: {epsilon: 0.1}}\n  - {id: reasons, require: [purpose]}\n"
    with Registrar(shell.served.url, shell.served.keys["admin"], shell.population) as registrar:
        proposed = registrar.policy(rules)
        if "proposal" in proposed:
            shell.served.confirm(shell.population, proposed)
    shell("grant", *REQUEST)
    [grant] = json.loads(shell("grants", "--json").text)
    told = shell("release", grant["id"], "--reason", "no rows").text
    assert "open until another person confirms" in told
    officer = shell.with_(ACCOUNTANT_KEY=shell.served.keys["officer"])
    [one] = json.loads(officer("proposals", "--json").text)
    assert one["effect"]["rules"] == ["word"]
    number, digest = str(one["proposal"]), one["digest"]
    assert f"accountant confirm {number} --digest {digest}" in officer("proposals").text
    assert "[proposal-digest]" in officer.wrong("confirm", number, "--digest", "0" * 64)
    said = officer("confirm", number, "--digest", digest, "--reason", "no rows, I looked").text
    assert "confirmed, event " in said
    with Client(shell.served.url, shell.served.keys["auditor"], shell.population) as client:
        sequence = re.search(r"event (\d+)", said)
        event = client.send(calls.get(f"/events/{sequence[1] if sequence else said}", dict))
    assert event["command"]["confirms"]["reason"].keys() == {"sealed"}
    assert "[proposal-closed]" in officer.wrong("decline", number, "--reason", "late")
    assert "nothing waits" in officer("proposals").text


def test_several_requests_are_previewed_and_an_answer_republished(shell: Shell) -> None:
    """Of a file with items each line is one; an answer is named by its bytes."""
    laplace = {"kind": "laplace", "sensitivity": "1", "scale": "2"}
    items = {"items": [{"dataset": "visits", "mechanisms": [laplace], "purpose": "x"}] * 3}
    path = shell.folder / "several.json"
    path.write_text(json.dumps(items))
    assert "2 of 3 would be granted" in shell("preview", str(path), code=1).text
    assert json.loads(shell("preview", str(path), "--json", code=1).text)["granted"] == 2
    grant = shell("grant", *REQUEST).text.partition(":")[0]
    shell("commit", grant)
    answer = shell.folder / "answer"
    answer.write_bytes(b"41.7")
    told = shell("republish", grant, str(answer), "--dataset", "visits").text
    assert f"answer {sha256(b'41.7').hexdigest()}: published again" in told


def test_keys_are_confirmed_by_the_service(shell: Shell) -> None:
    """Of no population: the same words with --keys."""
    officer = shell.with_(ACCOUNTANT_KEY=shell.served.keys["officer"], ACCOUNTANT_POPULATION="")
    assert "nothing waits" in officer("proposals", "--keys").text
    digest = "0" * 64
    assert "[unknown-proposal]" in officer.wrong("confirm", "99", "--keys", "--digest", digest)
    assert "[unknown-proposal]" in officer.wrong("decline", "99", "--keys", "--reason", "late")


# What ran


def test_what_ran_is_recorded_and_flagged(shell: Shell) -> None:
    """Also where it is too much, which is said."""
    at = ("--ran-at", "2026-11-01T10:00:00Z")
    assert "event 4: epsilon 0.25, delta 0 recorded" in shell("record", *REQUEST, *at).text
    dear = ("--dataset", "visits", "--mechanism", "laplace:sensitivity=2,scale=1")
    told = shell("record", *dear, "--purpose", "x").text
    assert "a limit is exceeded\n  flagged by lifetime" in told
    assert shell.events()[0]["command"]["ran_at"].startswith("2026-11-01T10:00:00")


def test_reports_wait_in_the_spool(shell: Shell, network: Network) -> None:
    """A record and a commit succeed while the service is away, and are delivered; a report that is
    rejected is put aside, and a service that stays away leaves them.
    """
    spool = shell.folder / "spool"
    away = shell.with_(ACCOUNTANT_URL=network.url, ACCOUNTANT_SPOOL=str(spool))
    shell("grant", *REQUEST)
    network.plan = ["cut"] * 15
    assert "waits in the spool" in away("commit", "g4").err
    assert away.json("record", *REQUEST) == {"waits": True}
    away("record", "--dataset", "nowhere", "--mechanism", COUNT)
    network.plan = ["cut"] * 5
    told = away("deliver", code=2)
    assert told.text == "delivered: 0, rejected: 0, still waiting: 3\n"
    assert "[no-answer]" in told.err
    found = away.json("deliver", code=1)
    assert (found["delivered"], found["waiting"]) == (2, 0)
    [aside] = found["rejected"]
    assert "unknown-dataset" in Path(aside).read_text()
    assert shell.json("deliver", "--spool", str(spool))["delivered"] == 0
    assert len(Spool(spool)) == 0
    assert shell.kinds() == ["reserved", "committed", "recorded"]


def test_a_number_survives_the_spool(shell: Shell, network: Network) -> None:
    """What is delivered later is what would have been sent, to the last digit."""
    spool = shell.folder / "spool"
    away = shell.with_(ACCOUNTANT_URL=network.url, ACCOUNTANT_SPOOL=str(spool))
    text = '{"dataset": "visits", "purpose": "x", "mechanisms": [{"kind": "laplace", "sensitivity":'
    file = shell.file("ran.json", text + ' 0.10000000000000000000000001, "scale": 1e0}]}')
    network.plan = ["lose", *["cut"] * 4]
    away("record", file)
    away("deliver")
    [event] = shell.events()
    assert event["command"]["mechanisms"][0]["sensitivity"] == "0.10000000000000000000000001"


# Reading


def test_a_preview_says_what_the_one_beside_the_database_says(shell: Shell) -> None:
    """Word for word, with the same exit code, for the same options."""
    for scale, code in (("4", 0), ("0.5", 1)):
        file = shell.file("request.json", body(mechanisms=[laplace(1, scale)]))
        words = ("preview", file, "-p", shell.population)
        asked, local = shell(*words, code=code), beside(shell)(*words, code=code)
        assert said(asked.text) == said(local.text)
        assert shell.json(*words, code=code) == beside(shell).json(*words, code=code)
    assert shell.kinds() == []


def test_an_explanation_says_what_the_one_beside_the_database_says(shell: Shell) -> None:
    """Of a grant, a refusal and a record, by event, grant or decision."""
    two = ("--mechanism", COUNT, "--mechanism", "gaussian:sensitivity=1,scale=50,count=2")
    shell("grant", "--dataset", "visits", *two, "--purpose", "x", code=1)
    shell("grant", *REQUEST)
    shell("record", *REQUEST)
    shell("grant", "--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=1", code=1)
    some = ("--subjects", '{"country": ["KR"]}')
    shell("record", *REQUEST, *some)
    shell("grant", "--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=3", code=1)
    codes = {"d4": 1, "g5": 0, "6": 0, "7": 1, "9": 1}
    for name, code in codes.items():
        words = ("explain", name, "-p", shell.population)
        asked, local = shell(*words, code=code), beside(shell)(*words, code=code)
        assert said(asked.text) == said(local.text)
        assert "by the policy of event 3" in asked.text
    assert "exhausted accounts: 1" in asked.text
    assert "visits: country: KR" in asked.text
    document, local = shell.json("explain", "g5"), beside(shell).json("explain", "g5", "-p",
                                                                     shell.population)  # fmt: skip
    assert document["policy"] == local["policy"] == 3
    assert document["rules"] == local["rules"]
    assert "[unknown-decision]" in shell.with_("auditor").wrong("explain", "0")
    assert "[not-your-grant]" in shell.with_("other").wrong("explain", "g5")


def test_accounts_say_what_those_beside_the_database_say(shell: Shell) -> None:
    """The same numbers, also split by a dimension."""
    shell("record", *REQUEST)
    shell("grant", *REQUEST)
    for by in ((), ("--by", "country")):
        words = ("accounts", "-p", shell.population, *by)
        asked, local = shell(*words).text, beside(shell)(*words).text
        assert shell.json(*words) == beside(shell).json(*words)
        assert set(said(asked)) <= set(said(local)) | {"all"}
        assert "0.25" in asked
    assert "[unknown-dimension]" in shell.wrong("accounts", "--by", "age")


def test_names_of_a_ledger_cannot_move_the_cursor(shell: Shell) -> None:
    """Control characters in texts are shown as what they are."""
    shell("grant", *REQUEST[:-1], "\x1b[2J\u202e")
    texts = [shell("explain", "g4").text, shell("grants").text, shell("accounts").text]
    assert not any("\x1b" in text or "\u202e" in text for text in texts)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_output_is_utf_8_whatever_the_locale(shell: Shell, locale: str) -> None:
    """Texts and JSON have every character."""
    other = shell.with_(LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    other("record", *REQUEST[:-1], "Prüfung ☂")
    assert other("accounts").text.startswith("ε of ")
    assert other.json("explain", "4")["request"]["purpose"] == "Prüfung ☂"


def test_amounts_are_exact(shell: Shell) -> None:
    """The client reads what a command wrote."""
    shell("record", "--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=3",
          "--purpose", "x")  # fmt: skip
    with Client.from_env(env=shell.variables) as client:
        assert client.accounts()["lifetime"].total.spent == Decimal("0.333333334")
