"""An adapter whose library is missing says what to install."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

ADAPTERS = {
    "airflow": ("airflow", "airflow"),
    "dagster": ("dagster", "dagster"),
    "jax_privacy": ("jax_privacy", "jax-privacy"),
    "opacus": ("opacus", "opacus"),
    "prefect": ("prefect", "prefect"),
    "smartnoise": ("snsql", "smartnoise"),
    "tumult": ("tmlt", "tumult"),
}
"""Adapters with their library and their extra."""


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_library_is_named_with_its_extra(adapter: str) -> None:
    """Importing an adapter without its library raises ImportError with the command to run."""
    library, extra = ADAPTERS[adapter]
    if find_spec(library) is not None:
        pytest.skip(f"{library} is installed here")
    with pytest.raises(ImportError, match=rf"pip install 'privacy-accountant-client\[{extra}\]'"):
        import_module(f"accountant.adapters.{adapter}")


def test_the_room_imports_no_library() -> None:
    """The package of the adapters, and what they share, load none of the libraries."""
    shared = "accountant.adapters.tasks, accountant.adapters.dbt, accountant.adapters.libraries"
    program = f"import sys, {shared}; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {library for library, _ in ADAPTERS.values()} & set(found)
    assert not {"numpy", "pydantic", "torch", "dbt"} & set(found)
