"""A folder that states populations, datasets and policies, applied to a real service."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from here import Said, accountant
from served import Served, served

from accountant.client import Registrar, calls

__all__ = ["served"]
PEOPLE = """privacy_unit: person
neighbouring: replace_one
membership: public
dimensions:
  country: [KR, NO]
"""
POLICY = "policy: careful\nrules:\n  - {id: lifetime, limit: {epsilon: 1}}\n"


class Folder:
    """A folder of a population of this test's own, and the command on it."""

    def __init__(self, served: Served, path: Path) -> None:
        self.served, self.path = served, path
        self.name = f"folder-{next(served.names)}"
        self.write(f"populations/{self.name}.yaml", PEOPLE)
        self.dataset("visits")
        self.write(f"policies/{self.name}.yaml", POLICY)

    def write(self, place: str, text: str) -> Path:
        """Writes a file."""
        path = self.path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def dataset(self, dataset: str, more: str = "") -> None:
        """States a dataset."""
        text = f"namespace: {self.name}\nname: {dataset}\n{more}"
        self.write(f"datasets/{self.name}/{dataset}.yaml", text)

    def __call__(self, *words: str, code: int = 0, key: str = "admin") -> Said:
        """Applies it."""
        done = accountant(
            "apply",
            str(self.path),
            *words,
            ACCOUNTANT_URL=self.served.url,
            ACCOUNTANT_KEY=self.served.keys[key],
        )
        assert done.code == code, done
        return done

    def confirm_all(self, said: Said) -> None:
        """Another person confirms, by the commands that were printed."""
        found = re.findall(r"accountant confirm (\d+) -p (\S+) --digest (\w+)", said.out)
        assert found
        for proposal, population, digest in found:
            with Registrar(self.served.url, self.served.keys["officer"], population) as second:
                second.confirm(int(proposal), digest)

    def there(self) -> dict[str, object]:
        """The population as the service shows it."""
        with Registrar(self.served.url, self.served.keys["admin"], self.name) as registrar:
            return dict(registrar.send(calls.population()))


@pytest.fixture
def folder(served: Served, tmp_path: Path) -> Folder:
    """A folder that nobody has applied."""
    return Folder(served, tmp_path / "folder")


def test_from_nothing_to_nothing_to_do(folder: Folder) -> None:
    """Without --yes all is shown and nothing done; with it, all is there but what takes a second
    person; that waits, and says how it is confirmed; then there is nothing to do, however often.
    """
    plan = folder(code=1)
    assert f"{folder.name}: register the population" in plan.out
    assert "country: 2 values" in plan.out
    assert "register dataset visits" in plan.out
    assert "adopt policy careful (takes a second person: it is the first policy)" in plan.out
    assert "nothing was done" in plan.err
    assert "register the population" in folder(code=1).out
    done = folder("--yes")
    assert (done.err.count("done: "), done.err.count("proposed: ")) == (2, 1)
    waits = folder()
    assert "it is proposed, and waits for another person" in waits.out
    again = folder("--yes")
    assert again.err == ""
    folder.confirm_all(waits)
    for words in ([], ["--yes"]):
        said = folder(*words)
        assert (said.out, said.err) == ("nothing to do\n", "")
    assert folder.there()["dimensions"] == {"country": ["KR", "NO"]}


def test_what_is_added_is_added_and_nothing_goes(folder: Folder) -> None:
    """New values, datasets, owners and units are added; what the folder no longer has stays where
    it is, and is named.
    """
    folder.dataset("old", "owner: clinic\n")
    folder.confirm_all(folder("--yes"))
    people = PEOPLE.replace("[KR, NO]", "[JP, NO, SE]") + (
        "units:\n  household: {group_of: person, at_most: 5}\n"
    )
    folder.write(f"populations/{folder.name}.yaml", people)
    folder.dataset("visits", "owner: ward\nlabels: {risk: high}\n")
    folder.dataset("child", f"parents: [{folder.name}/visits]\n")
    (folder.path / "datasets" / folder.name / "old.yaml").unlink()
    (folder.path / "policies" / f"{folder.name}.yaml").unlink()
    plan = folder(code=1)
    for line in (
        "+ country: JP, SE",
        "+ unit household",
        "+ owner: ward",
        "+ labels: risk: high",
        "register dataset child",
        "country keeps KR, which the file lacks",
        "old stay registered, without a file",
    ):
        assert line in plan.out, line
    folder("--yes")
    there = folder.there()
    assert there["dimensions"] == {"country": ["KR", "NO", "JP", "SE"]}
    datasets = {one["id"]: one for one in there["datasets"]}  # type: ignore[attr-defined]
    assert datasets["old"]["owner"] == "clinic"
    assert datasets["visits"]["labels"] == {"risk": "high"}
    assert datasets["child"]["parents"] == [f"{folder.name}/visits"]
    assert there["policy"]["policy"] == "careful"  # type: ignore[index]
    assert "nothing to do" in folder().out


def test_what_a_file_leaves_out_stays(folder: Folder) -> None:
    """A file that no longer names the owner or the parents changes neither with what it changes."""
    folder.dataset("visits", f"owner: ward\nparents: [{folder.name}/raw]\n")
    folder("--yes")
    folder.dataset("visits", "labels: {risk: low}\n")
    folder("--yes")
    [visits] = folder.there()["datasets"]  # type: ignore[misc]
    assert (visits["owner"], visits["parents"]) == ("ward", [f"{folder.name}/raw"])
    assert visits["labels"] == {"risk": "low"}


def test_a_policy_is_compared_in_words(folder: Folder) -> None:
    """A policy that tightens is adopted at once, and one that loosens is proposed; both differ in
    sentences. One that says the same in another text is nothing to do.
    """
    folder.confirm_all(folder("--yes"))
    place = f"policies/{folder.name}.yaml"
    folder.write(place, POLICY.replace("epsilon: 1", "epsilon: 0.5"))
    plan = folder(code=1)
    assert "lifetime: changed" in plan.out
    assert "second person" not in plan.out
    assert "done: " in folder("--yes").err
    folder.write(place, POLICY.replace("epsilon: 1", "epsilon: 2"))
    assert "which loosens" in folder(code=1).out
    done = folder("--yes")
    assert "proposed: " in done.err
    folder.confirm_all(done)
    folder.write(place, "# why\n" + POLICY.replace("epsilon: 1", "epsilon: 2"))
    assert "nothing to do" in folder().out
    folder.write(place, POLICY.replace("epsilon: 1", "epsilon: 2") + "order: efficiency\n")
    assert "admitted by efficiency, not arrival" in folder(code=1).out
    folder("--yes")
    assert "nothing to do" in folder().out


BAD = {
    "populations/p.yaml": (PEOPLE + "membership: private\n", r"line 6: .*membership.* twice"),
    "populations/q.yaml": (PEOPLE.replace("person", ""), r"line 1: privacy_unit: "),
    "datasets/p/d.yaml": ("namespace: n\nnme: x\n", r"line 2: nme: there is no such field"),
    "datasets/d.yaml": ("namespace: n\nname: x\n", r"nothing is read from here"),
    "datasets/p/e.yml": ("namespace: n\nname: x\n", r"files end in \.yaml"),
    "policies/p.yaml": ("policy: p\nrules:\n  - {id: a, limit: {epsilon: x}}\n", r"line 3: "),
    "policies/P.yaml": (POLICY, r"'P' cannot be a name"),
}


def test_every_bad_file_is_named_before_anything_is_done(folder: Folder) -> None:
    """Each bad file is named with its line and what is wrong, all of them at once, and nothing is
    done of those that are good.
    """
    paths = [folder.write(place, text) for place, (text, _) in BAD.items()]
    said = folder("--yes", code=2)
    for path, (_, reason) in zip(paths, BAD.values(), strict=True):
        assert re.search(f"{re.escape(str(path))}: .*{reason}", said.err), (path, said.err)
    for path in paths:
        path.unlink()
    assert "register the population" in folder(code=1).out


def test_what_never_changes_is_refused_before_anything_is_done(folder: Folder) -> None:
    """Terms, dimensions and names of data that are registered otherwise are named with what is
    there, and a population that nobody states is too; nothing else of the folder is done.
    """
    folder.confirm_all(folder("--yes"))
    place = f"populations/{folder.name}.yaml"
    folder.dataset("new")
    for text, reason in (
        (PEOPLE.replace("replace_one", "zero_out"), "neighbouring replace_one"),
        (PEOPLE.replace("country", "land"), "the dimensions country"),
    ):
        folder.write(place, text)
        assert reason in folder("--yes", code=2).err
    folder.write(place, PEOPLE)
    folder.write(f"datasets/{folder.name}/visits.yaml", "namespace: n\nname: other\n")
    folder.write("policies/nobody.yaml", POLICY)
    said = folder("--yes", code=2).err
    assert "an id stays what it is" in said
    assert "nobody: the service has no such population" in said
    assert [one["id"] for one in folder.there()["datasets"]] == ["visits"]  # type: ignore[attr-defined]


def test_what_is_missing_is_said(folder: Folder) -> None:
    """Without an address, a folder, or the right role the command says so on one line."""
    said = accountant("apply", str(folder.path), ACCOUNTANT_URL="")
    assert (said.code, "set ACCOUNTANT_URL" in said.err) == (2, True), said
    said = accountant("apply", str(folder.path / "nothing"))
    assert (said.code, "is no folder" in said.err) == (2, True), said
    assert "role" in folder("--yes", code=2, key="auditor").err


def test_the_files_of_the_page(folder: Folder) -> None:
    """The files that docs/how-to/apply-a-folder.md shows are a folder that can be applied."""
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/apply-a-folder.md").read_text()
    shown = re.findall(r"```yaml\n# (\S+)\n(.+?)```", page, re.DOTALL)
    assert len(shown) == 3
    for place, text in shown:
        folder.write(place, text)
    plan = folder(code=1).out
    for line in ("country: 3 values", "register dataset web-logs", "adopt policy careful"):
        assert line in plan[plan.index("visitors: register the population") :]
