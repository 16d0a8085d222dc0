"""Policy files: read as they are spelled, and refused with a line and a reason."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.budget.errors import Invalid
from accountant.budget.policy import Policy
from accountant.budget.policy_file import parse_policy
from accountant.privacy.filters import FILTERS

HEAD = "policy: p\nrules:\n"
GOOD = HEAD + "  - {id: a, limit: {epsilon: 1}}\n"

# One case a line, however long: it is a table.
# ruff: noqa: E501
REFUSED: list[tuple[str, str, int | None, str]] = [
    ("empty", "", 1, "empty"),
    ("only a comment", "# nothing\n", 1, "empty"),
    ("a list", "- 1\n", 1, "policy"),
    ("a word", "hello\n", 1, ""),
    ("null", "null\n", 1, ""),
    ("two documents", GOOD + "---\n" + GOOD, None, ""),
    ("a key twice", HEAD + "  - {id: a, limit: {epsilon: 1}}\nrules: []\n", 4, "twice"),
    ("a nested key twice", HEAD + "  - id: a\n    limit:\n      epsilon: 1\n      epsilon: 2\n", 6, "twice"),
    ("an unknown field", HEAD + "  - id: a\n    limit: {epsilon: 1}\n    colour: red\n", 5, "colour"),
    ("an unknown field above", GOOD + "colour: red\n", 4, "colour"),
    ("an unknown field in a limit", HEAD + "  - id: a\n    limit: {epsilon: 1, mu: 2}\n", 4, "mu"),
    ("no rules", "policy: p\nrules: []\n", 2, "rules"),
    ("rules missing", "policy: p\n", 1, "rules"),
    ("no name", "rules:\n  - {id: a, limit: {epsilon: 1}}\n", 1, "policy"),
    ("no id", HEAD + "  - limit: {epsilon: 1}\n", 3, "id"),
    ("an id with a colon", HEAD + "  - {id: 'built-in:x', limit: {epsilon: 1}}\n", 3, "id"),
    ("an upper-case id", HEAD + "  - {id: A, limit: {epsilon: 1}}\n", 3, "id"),
    ("two rules of one id", GOOD + "  - {id: a, require: [purpose]}\n", None, "'a'"),
    ("a rule of nothing", GOOD + "  - {id: t, of: b, at: 80%}\n", None, "'b'"),
    ("a threshold of a threshold", GOOD + "  - {id: t, of: a, at: 80%}\n  - {id: u, of: t, at: 80%}\n", None, "'t'"),
    ("a rule of no kind", HEAD + "  - {id: a, action: block}\n", 3, "limit"),
    ("a rule that is a word", HEAD + "  - hello\n", 3, ""),
    ("NaN", HEAD + "  - id: a\n    limit: {epsilon: .nan}\n", 4, "epsilon"),
    ("NaN as a word", HEAD + "  - id: a\n    limit: {epsilon: NaN}\n", 4, "epsilon"),
    ("infinity", HEAD + "  - id: a\n    limit: {epsilon: .inf}\n", 4, "epsilon"),
    ("infinity as a word", HEAD + "  - id: a\n    limit: {epsilon: Infinity}\n", 4, "epsilon"),
    ("a negative limit", HEAD + "  - id: a\n    limit: {epsilon: -1}\n", 4, "epsilon"),
    ("a limit of zero", HEAD + "  - id: a\n    limit: {epsilon: 0}\n", 4, "epsilon"),
    ("a limit below one unit", HEAD + "  - id: a\n    limit: {epsilon: 1e-10}\n", 4, "epsilon"),
    ("a limit beyond reason", HEAD + "  - id: a\n    limit: {epsilon: 1e7}\n", 4, "epsilon"),
    ("a huge exponent", HEAD + "  - id: a\n    limit: {epsilon: 1e999999999}\n", 4, "epsilon"),
    ("a delta of one", HEAD + "  - id: a\n    limit: {epsilon: 1, delta: 1}\n", 4, "delta"),
    ("a negative delta", HEAD + "  - id: a\n    limit: {epsilon: 1, delta: -1e-6}\n", 4, "delta"),
    ("own delta above delta", HEAD + "  - id: a\n    limit: {epsilon: 1, delta: 1e-6, own_delta: 1e-5}\n", 4, "own_delta"),
    ("own delta without delta", HEAD + "  - id: a\n    limit: {epsilon: 1, own_delta: 1e-5}\n", 4, "own_delta"),
    ("a tiny delta", HEAD + "  - id: a\n    limit: {epsilon: 1, delta: 1e-30}\n", 4, "delta"),
    ("no epsilon", HEAD + "  - id: a\n    limit: {delta: 1e-6}\n", 4, "epsilon"),
    ("an epsilon that is a list", HEAD + "  - id: a\n    limit: {epsilon: [1]}\n", 4, "epsilon"),
    ("true as an amount", HEAD + "  - id: a\n    limit: {epsilon: true}\n", 4, "epsilon"),
    ("hexadecimal", HEAD + "  - id: a\n    limit: {epsilon: 0x10}\n", 4, "epsilon"),
    ("underscores", HEAD + "  - id: a\n    limit: {epsilon: 1_0}\n", 4, "epsilon"),
    ("base sixty", HEAD + "  - id: a\n    limit: {epsilon: 1:30}\n", 4, "epsilon"),
    ("other digits", HEAD + "  - id: a\n    limit: {epsilon: ١}\n", 4, "epsilon"),
    ("an empty amount", HEAD + "  - id: a\n    limit: {epsilon: }\n", 4, "epsilon"),
    ("an unknown gate", HEAD + "  - id: a\n    limit: {epsilon: 1}\n    gate: renyi_min\n", 5, "gate"),
    ("an unknown action", HEAD + "  - id: a\n    limit: {epsilon: 1}\n    action: allow\n", 5, "action"),
    ("true as an action", HEAD + "  - id: a\n    limit: {epsilon: 1}\n    action: yes\n", 5, "action"),
    ("an unknown carry", HEAD + "  - id: a\n    limit: {epsilon: 1}\n    carry: some\n", 5, "carry"),
    ("a threshold that blocks", GOOD + "  - id: t\n    of: a\n    at: 80%\n    action: block\n", 7, "action"),
    ("a threshold of 100 %", GOOD + "  - id: t\n    of: a\n    at: 100%\n", 6, "at"),
    ("a threshold without a sign", GOOD + "  - id: t\n    of: a\n    at: 80\n", 6, "at"),
    ("a negative threshold", GOOD + "  - id: t\n    of: a\n    at: -5%\n", 6, "at"),
    ("an unknown mechanism", GOOD + "  - id: m\n    mechanisms: [laplas]\n", 5, "laplas"),
    ("no mechanism", GOOD + "  - id: m\n    mechanisms: []\n", 5, "mechanisms"),
    ("an unknown requirement", GOOD + "  - id: r\n    require: [money]\n", 5, "require"),
    ("no purpose", GOOD + "  - id: r\n    purposes: ['']\n", 5, "purposes"),
    ("a tab", "policy: p\nrules:\n\t- {id: a}\n", 3, ""),
    ("an open bracket", "policy: p\nrules: [\n", None, ""),
    ("a bad indent", "policy: p\n rules: []\n", 2, ""),
    ("an undefined alias", "policy: p\nrules: *x\n", 2, ""),
    ("an alias within itself", "policy: p\nrules: &x [*x]\n", None, ""),
    ("a mapping within itself", "policy: p\nrules: &x {a: *x}\n", None, ""),
    ("a merge key", HEAD + "  - &a {id: a, limit: {epsilon: 1}}\n  - {<<: *a, id: b}\n", 4, ""),
    ("a Python object", "policy: p\nrules: !!python/object:os.system [x]\n", None, ""),
    ("an unknown tag", HEAD + "  - {id: a, limit: {epsilon: !amount 1}}\n", 3, "tag"),
    ("a binary scalar", HEAD + "  - {id: a, limit: {epsilon: !!binary MQ==}}\n", 3, "tag"),
    ("a key that is a list", "policy: p\n? [a]\n: 1\n", 2, "text"),
    ("a NUL", "policy: p\x00\n", None, ""),
    ("half of a surrogate pair", HEAD + '  - {id: a, limit: {epsilon: 1}, datasets: "\\ud800"}\n', 3, ""),
    ("half of a pair as a key", HEAD + '  - {id: a, "\\ud800": 1, limit: {epsilon: 1}}\n', 3, ""),
    ("deep nesting", "policy: p\nrules: " + "[" * 5_000 + "]" * 5_000, None, ""),
    ("too many rules", HEAD + "".join(f"  - {{id: r{i}, limit: {{epsilon: 1}}}}\n" for i in range(1000)), None, ""),
    (
        "a bomb of aliases",
        "policy: p\na0: &a0 [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 9) + "]\n" for i in range(1, 12)),
        None,
        "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "word"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_malformed_policies_are_refused_with_line_and_reason(
    text: str, line: int | None, word: str
) -> None:
    """Nothing malformed is adopted, and the message says where to look and why."""
    with pytest.raises(Invalid) as refusal:
        parse_policy(text)
    assert refusal.value.code == "malformed-policy"
    detail = refusal.value.detail
    assert f"line {line}:" in detail if line else len(detail) > 30
    assert word in detail
    detail.encode()  # it can be sent


def amounts(text: str) -> tuple[Fraction, Fraction, Fraction]:
    """(epsilon, delta, own delta) of the first rule."""
    promise = parse_policy(HEAD + f"  - {{id: a, limit: {text}}}\n")[0].limits[0].promise
    return promise.epsilon, promise.delta, promise.own_delta


def test_numbers_are_what_they_spell() -> None:
    """1e-6 is a number in YAML too, quoted or not, and 0.30000000000000000001 is not 0.3."""
    small = Fraction(1, 10**6)
    for spelled in ("1e-6", "'1e-6'", "1E-6", "0.000001", "1.0e-6"):
        assert amounts(f"{{epsilon: 1, delta: {spelled}}}") == (1, small, small / 10)
    exact = Fraction(Decimal("0.30000000000000000001"))
    assert amounts("{epsilon: 0.30000000000000000001}") == (exact, 0, 0)


@given(st.integers(1, 10**19), st.sampled_from(list(FILTERS)))
def test_the_split_is_exact(digits: int, gate: str) -> None:
    """A tenth of delta, or all of it under basic, is kept to the last digit, and written out."""
    delta = Fraction(digits, 10**20)
    text = f"{{id: a, limit: {{epsilon: 1, delta: '{digits}e-20'}}, gate: {gate}}}"
    policy, _ = parse_policy(HEAD + f"  - {text}\n")
    own = policy.limits[0].promise.own_delta
    assert own == (delta if gate == "basic" else delta / 10)
    assert Policy.model_validate(policy.to_json()) == policy


@pytest.mark.parametrize(
    ("limit", "gate"), [("{epsilon: 1, delta: 1e-6}", "renyi"), ("{epsilon: 1}", "basic")]
)
def test_the_default_gate_is_written_out(limit: str, gate: str) -> None:
    """A policy that names no gate keeps the one that was the default when it was adopted."""
    policy, _ = parse_policy(HEAD + f"  - {{id: a, limit: {limit}}}\n")
    assert policy.to_json()["rules"][0]["gate"] == gate


def test_names_are_text() -> None:
    """NO is a country, 1.10 a version and null a word: scalars stay as they are spelled."""
    rules = "  - {id: a, limit: {epsilon: 1}}\n  - {id: b, purposes: [NO, 1.10, null, yes]}\n"
    policy, _ = parse_policy(HEAD + rules)
    assert (
        policy.rules[1].to_json
        if False
        else policy.to_json()["rules"][1]["purposes"]
        == [
            "NO",
            "1.10",
            "null",
            "yes",
        ]
    )


def test_json_is_read_by_the_same_parser() -> None:
    """The same policy in JSON is the same policy."""
    document = {"policy": "p", "rules": [{"id": "a", "limit": {"epsilon": 1}}]}
    assert parse_policy(json.dumps(document))[0] == parse_policy(GOOD)[0]


def test_the_digest_is_of_the_text() -> None:
    """Another spelling of the same policy has another digest."""
    assert parse_policy(GOOD)[1] != parse_policy(GOOD + "# a comment\n")[1]


@given(st.text(max_size=80) | st.text("policyrules:idaemt{}[],&*!|>-#'\"% \n\t019.", max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever the text, the parser answers with a policy or with a malformed-policy problem."""
    for document in (text, GOOD + text, GOOD[:-2] + text + "}\n"):
        assert outcome(document) in ("a policy", "malformed-policy")


def outcome(document: str) -> str:
    """What reading ``document`` leads to."""
    try:
        parse_policy(document)
    except Invalid as problem:
        return problem.code
    return "a policy"
