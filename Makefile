# Everything runs in .venv, made from requirements.lock with every hash checked.
# PYTHON chooses the interpreter that makes it (3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Else pytest rewrites the assertions of all tests each time, in every worker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo examples docs test test-fast test-thorough test-crash test-browser test-foreign test-image test-pipelines test-adapters check serve async-client wheels release bench peers soak lock clean
.DEFAULT_GOAL := install

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml packaging/client/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "accountant needs Python 3.11 or later; name one: make PYTHON=python3.12 install"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index \
		-e packaging/client -e .
	$(BIN)/python -m compileall -q accountant # else each start takes a tenth longer where none may be written
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m examples.survey

# Every kind of query on real data, against a service of its own; pictures go to examples/output/.
examples: $(STAMP)
	$(BIN)/python -m examples

# The documentation as a site in docs-site/, which can be read from there: open docs-site/index.html.
docs: $(STAMP)
	$(BIN)/python -m handbook

# Half as many workers again as cores: a quarter of the time a test of a service waits for a time limit
# or for another process, and nobody would use its core meanwhile.
WORKERS = $(shell $(PYTHON) -c 'import os; print((3 * os.cpu_count() + 1) // 2)')

# What runs where the pipelines are has suites of its own: `make test-pipelines`, `make test-adapters`.
PIPELINES := tests/queries tests/cli/remote tests/examples tests/peers
test: $(STAMP)
	$(BIN)/python -m pytest --ignore=tests/foreign --ignore=tests/adapters --ignore=tests/browser \
		$(PIPELINES:%=--ignore=%) -n $(WORKERS) --dist loadgroup

# Queries draw many thousand times: accuracy, empirical epsilons, and variants that are broken. The
# command line over HTTP starts some hundred processes, the examples run whole, and the workloads of
# the peers are asked of a service.
test-pipelines: $(STAMP)
	$(BIN)/python -m pytest $(PIPELINES) -n auto --dist loadgroup

# An answer in under a minute on two cores: rules and decisions, prices, replay, evidence, the API and the
# documentation. Left out are databases, random ledgers, processes of their own, disasters.
FAST := tests/docs tests/ledger tests/policies tests/api_docs \
	$(filter-out %/test_frozen.py %/test_model.py %/test_snapshot.py,$(wildcard tests/budget/test_*.py)) \
	$(wildcard tests/rules/test_reads.py tests/rules/test_rollback.py) \
	$(patsubst %,tests/privacy/test_%.py,amounts catalogue claims units) \
	$(patsubst %,tests/evidence/test_%.py,golden_bundle merkle notes unknown_rule_kind) \
	$(patsubst %,tests/api/test_%.py,answers batch_call) \
	tests/client/test_client_grants.py tests/reporting/test_report_totals.py

test-fast: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal $(FAST)

# Ten times as many random cases wherever a suite has few of them; half an hour on two cores.
test-thorough: $(STAMP)
	EFFORT=heavy $(BIN)/python -m pytest $(shell grep -rl 'from effort import' tests) -n auto --dist worksteal

# Disasters: kills, power losses, full and failing disks, races; about ten minutes on two cores. What
# may not be done here (mounting, tracing) is skipped and says so. `make test` does a little of each.
# CRASH_REQUESTS=1000000 races for as long as that takes.
test-crash: $(STAMP)
	CRASH_EFFORT=heavy $(BIN)/python -m pytest tests/crash -rs -n 2 --dist worksteal

# The console in a real Chromium: what each role does, and every page at four widths, light and dark,
# against the rules of axe; the documentation likewise, from a folder, with its search. The system's browser is used (as root, apt brings it); what drives it has
# a venv of its own. PICTURES=folder keeps a picture of each page.
test-browser: $(STAMP) .venv-browser/.installed
	@command -v chromium >/dev/null || [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null || \
		apt-get install --yes chromium || true
	PYTHONPATH=. ACCOUNTANT_TEST_PYTHON=$(abspath $(BIN))/python .venv-browser/bin/python -m pytest \
		--confcutdir=tests/browser --rootdir=tests/browser -c /dev/null tests/browser -rs

.venv-browser/.installed: tests/browser/requirements.txt
	$(PYTHON) -m venv --clear .venv-browser
	@echo '*' > .venv-browser/.gitignore
	.venv-browser/bin/python -m pip install --quiet --disable-pip-version-check -r $< && touch $@

# Programs that nobody here wrote verify our logs and read our metrics: Go's and Prometheus from the
# system (as root, apt brings them), the others in a venv of their own. Tests of what is not there are
# skipped and say so.
test-foreign: $(STAMP) .venv-foreign/.installed
	@{ command -v go && command -v promtool; } >/dev/null || [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null || \
		apt-get install --yes golang-go golang-golang-x-mod-dev prometheus || true
	$(BIN)/python -m pytest tests/foreign -rs

.venv-foreign/.installed: tests/foreign/requirements.txt
	$(PYTHON) -m venv --clear .venv-foreign
	@echo '*' > .venv-foreign/.gitignore
	-.venv-foreign/bin/python -m pip install --quiet --disable-pip-version-check \
		--ignore-requires-python -r $< && touch $@

# The container's file in the engine that is there (ENGINE names docker or podman; BASE another base
# image; BUILD_OPTIONS more words for the build), also with compose and PostgreSQL; and its steps
# without an engine, as another user, hence as root. Downloads what its lock names.
test-image: $(STAMP)
	IMAGE=yes $(BIN)/python -m pytest tests/deploy -rs

# Libraries of pipelines that cannot share the service's environment are tested in environments of
# their own; the service that they ask runs in .venv. `make test-adapter-polars` tests one of them.
ADAPTERS := $(patsubst tests/adapters/requirements/%.txt,%,$(wildcard tests/adapters/requirements/*.txt))

test-adapters: $(STAMP) $(ADAPTERS:%=test-adapter-%)
	$(BIN)/python -m pytest tests/adapters -rs

test-adapter-%: $(STAMP) .venv-adapters/%/.installed
	PYTHONPATH=. ACCOUNTANT_TEST_PYTHON=$(BIN)/python .venv-adapters/$*/bin/python -m pytest \
		--confcutdir=tests/adapters -rs $(wildcard tests/adapters/test_$**.py) tests/adapters/test_*_docs.py

.PRECIOUS: .venv-adapters/%/.installed
.venv-adapters/%/.installed: tests/adapters/requirements/%.txt
	$(PYTHON) -m venv --clear .venv-adapters/$*
	@echo '*' > .venv-adapters/.gitignore
	.venv-adapters/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $< && touch $@

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The asynchronous client says what the blocking one says.
async-client: $(STAMP)
	$(BIN)/python tests/client/awaited.py

serve: $(STAMP)
	$(BIN)/accountant migrate
	$(BIN)/accountant serve

bench: $(STAMP)
	$(BIN)/python -m bench

# The workloads that PrivateKube, DPack and Cohere published, asked of a service; some hours. The
# tables go into docs/explanation/against-its-peers.md. PEERS="fairness mice" runs only those.
peers: $(STAMP)
	$(BIN)/python -m bench.peers --write $(PEERS)

# Two hours of a mixed load; prints the memory of the service by minute. SOAK="--minutes 10" is shorter.
soak: $(STAMP)
	$(BIN)/python -m bench.soak $(SOAK)

# A release, in dist/: both distributions, built twice and tried where nothing else is, the bill of
# materials, and the SHA-256 of every file. RELEASE=--draft takes a tree that is not committed.
release: .venv-release/.installed
	.venv-release/bin/python packaging/release $(RELEASE)

.venv-release/.installed: packaging/release/requirements.lock
	$(PYTHON) -m venv --clear .venv-release
	@echo '*' > .venv-release/.gitignore
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $< && touch $@

# The two distributions, in dist/: the service, and the client that pipelines carry.
wheels: $(STAMP)
	cd packaging/client && $(abspath $(BIN))/python -m hatchling build -t wheel -d ../../dist
	$(BIN)/python -m hatchling build -t wheel -d dist

# Re-resolves the lock file; needs uv.
lock:
	uv pip compile --universal --generate-hashes --no-header --python-version 3.11 --extra dev \
		--no-emit-package privacy-accountant-client pyproject.toml -o requirements.lock
	uv pip compile --universal --generate-hashes --no-header --python-version 3.11 -c requirements.lock \
		--no-emit-package privacy-accountant-client pyproject.toml -o deploy/container/requirements.lock
	printf 'cyclonedx-bom>=7\ncyclonedx-python-lib[json-validation]>=11\nhatchling>=1.27\n' | uv pip compile \
		--universal --generate-hashes --no-header --python-version 3.11 - -o packaging/release/requirements.lock
	echo 'hatchling>=1.27' | uv pip compile --universal --generate-hashes --no-header --python-version 3.11 \
		-c requirements.lock - -o deploy/container/build.lock

clean:
	rm -rf $(VENV) .venv-foreign .venv-browser .venv-adapters .venv-release dist docs-site var demo-output examples/output .pytest_cache .mypy_cache .ruff_cache .hypothesis
