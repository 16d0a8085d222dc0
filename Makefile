# Everything runs in .venv, made from requirements.lock with every hash checked.
# PYTHON chooses the interpreter that makes it (3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test check serve bench lock clean
.DEFAULT_GOAL := install

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "accountant needs Python 3.11 or later; name one: make PYTHON=python3.12 install"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m accountant.demo

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

serve: $(STAMP)
	$(BIN)/accountant migrate
	$(BIN)/accountant serve

bench: $(STAMP)
	$(BIN)/python -m bench

# Re-resolves the lock file; needs uv.
lock:
	uv pip compile --universal --generate-hashes --no-header --python-version 3.11 --all-extras \
		pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) var demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
