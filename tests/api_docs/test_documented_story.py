"""The documentation cannot lie: its requests are sent, its answers compared."""

from __future__ import annotations

from schema_check import errors
from story_runner import Told, differences, masked

from accountant.api.description.texts import STORY


def test_every_documented_request_is_answered_as_documented(told: Told) -> None:
    """Status and body are those on the page, up to times, digests and signatures."""
    for example, response in told.tell():
        title = f"{example.call}: {example.title}"
        assert response.status_code == example.status, (title, response.text)
        if example.answer is None:
            continue
        answered = response.text if isinstance(example.answer, str) else response.json()
        found = list(differences(masked(answered), masked(example.answer)))
        assert not found, (title, found)


def test_answers_and_requests_obey_their_schemas(told: Told) -> None:
    """Requests and answers fit the OpenAPI document, field by field."""
    spec = told.http.get("/openapi.json").json()
    parts = spec["components"]["schemas"]
    calls = {c["operationId"]: c for p in spec["paths"].values() for c in p.values()}
    for example, response in told.tell():
        call = calls[example.call]
        if isinstance(example.body, dict):
            schema = call["requestBody"]["content"]["application/json"]["schema"]
            assert not list(errors(schema, example.body, parts)), example.title
        media = response.headers["content-type"].split(";")[0]
        content = call["responses"][str(response.status_code)]["content"]
        assert media in content, example.title
        if media.endswith("json") and "schema" in content[media]:
            found = list(errors(content[media]["schema"], response.json(), parts))
            assert not found, (example.title, found)


def test_a_repeated_request_is_given_the_first_answer_again(told: Told) -> None:
    """Each documented request with a key gets its first answer again; one that has waited what has
    become of it.
    """
    for example, first in told.tell():
        if "Idempotency-Key" not in example.headers or example.status == 202:
            continue
        again = told.send(example)
        # `would_fit` depends on the moment: more is used now than at the first refusal.
        same = example.status == 403 or again.content == first.content
        assert same, example.title
        assert again.status_code == first.status_code
        assert again.headers["Idempotent-Replay"] == "true"


def test_the_story_has_an_example_of_every_call(told: Told) -> None:
    """No call is documented without a request and an answer that can be tried."""
    spec = told.http.get("/openapi.json").json()
    calls = {c["operationId"] for p in spec["paths"].values() for c in p.values()}
    assert calls == {example.call for example in STORY}
