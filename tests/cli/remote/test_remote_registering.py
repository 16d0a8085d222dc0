"""``accountant populations create``: a population from files of names."""

from __future__ import annotations

from pathlib import Path

from conftest import Served, Shell


def test_a_population_is_made_from_files(served: Served, tmp_path: Path) -> None:
    """Each line is a value; the command may be repeated, and goes on with a longer file."""
    (tmp_path / "ids").write_text("".join(f"{n:05d}{'x' * 69}\n" for n in range(9_000)))
    (tmp_path / "ages").write_text("young\nold\n\n")
    shell = Shell(served, f"files-{next(served.names)}", tmp_path, "admin")
    words = ["populations", "create", "--privacy-unit", "person", "--neighbouring", "replace_one"]
    words += ["--membership", "public", "--dimension", "id=ids", "--dimension", "age=ages"]
    for _ in range(2):
        said = shell(*words).out.decode()
        assert said == f"population {shell.population}: 18000 cells; age (2), id (9000)\n"
    with (tmp_path / "ids").open("a") as names:
        names.write("one more\n")
    assert shell.json(*words)["cells"] == 18_002


def test_what_is_no_list_of_names_is_told(served: Served, tmp_path: Path) -> None:
    """A file that is not there, is empty or has an empty line, and an option without a name."""
    (tmp_path / "gap").write_text("a\n\nb\n")
    (tmp_path / "empty").write_text("\n")
    shell = Shell(served, f"files-{next(served.names)}", tmp_path, "admin")
    words = ["populations", "create", "--privacy-unit", "person", "--neighbouring", "replace_one"]
    words += ["--membership", "public", "--dimension"]
    assert "cannot be read" in shell.wrong(*words, "id=none")
    assert "has an empty line" in shell.wrong(*words, "id=gap")
    assert "has no names" in shell.wrong(*words, "id=empty")
    assert "write NAME=" in shell.wrong(*words, "ids")
