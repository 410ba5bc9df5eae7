# `make` lists what there is. Everything runs in a virtual environment of its own; a fresh machine needs Python 3.11+ and make.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
# Every version is pinned with its hashes in requirements.lock, which `make lock` writes and uv checks
# (docs/decisions/0090-a-locked-environment.md). pip installs uv itself from there, under the same check.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --constraint requirements.lock

# The package is installed as a tree of links (editable, strict), so that nothing but the package can be imported from
# the flat root. Each folder of the root is one link: new files are seen at once, a new folder makes the tree again.
PACKAGE_DIRS := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))
PACKAGE_ROOTS := $(PACKAGE_DIRS) $(wildcard *.py) py.typed
LINKED := --no-build-isolation --config-settings editable_mode=strict --reinstall-package trustfold --editable
LINK_TREE = build/__editable__.trustfold-*/trustfold
LINK_FOLDERS = for folder in $(PACKAGE_DIRS); do rm -rf $(LINK_TREE)/$$folder && ln -s "$(CURDIR)/$$folder" $(LINK_TREE)/; done

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- install ---------------------------------------------------------------------------------------------------------

.PHONY: install
install: $(VENV)/dev ## Install everything for work on trustfold into .venv

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is too old or missing: trustfold needs Python 3.11 or newer. Try: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv --clear $(VENV) || \
		{ echo "No virtual environment could be made. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@touch $@

$(VENV)/uv.txt: requirements.lock | $(VENV)/created
	@sed -n '/^uv==/,/^ *#/p' requirements.lock > $@
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps --requirement $@
	@$(UV) $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')

$(VENV)/roots: FORCE | $(VENV)/created
	@printf '%s\n' $(PACKAGE_ROOTS) | cmp -s - $@ || printf '%s\n' $(PACKAGE_ROOTS) > $@

$(VENV)/base: $(VENV)/uv.txt $(VENV)/roots pyproject.toml requirements.lock
	@echo "installing trustfold into $(VENV)"
	@$(UV) $(LINKED) .
	@$(LINK_FOLDERS)
	@touch $@

$(VENV)/dev: $(VENV)/uv.txt $(VENV)/roots pyproject.toml requirements.lock
	@echo "installing trustfold with all extras and the tools into $(VENV)"
	@$(UV) --group dev --group docs $(LINKED) '.[all]'
	@$(LINK_FOLDERS)
	@touch $(VENV)/base $@

.PHONY: lock
lock: $(VENV)/uv.txt ## Write requirements.lock after a change of pyproject.toml (ARGS=--upgrade for the newest of everything)
	@$(BIN)/uv pip compile pyproject.toml --extra all --group dev --group docs --universal --python-version 3.11 --generate-hashes \
		--quiet --custom-compile-command 'make lock' --output-file requirements.lock $(ARGS)

.PHONY: FORCE
FORCE:

# --- try it ----------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/base ## See it decide: an agent has a bad day, told as a story; no Kafka needed
	@$(BIN)/trustfold demo $(ARGS)

.PHONY: up
up: ## Start Kafka, topics and two workers in containers (docker-compose.yml)
	docker compose up --build --detach --wait $(ARGS)

.PHONY: down
down: ## Stop those containers; their data stays
	docker compose down $(ARGS)

.PHONY: kafka
kafka: $(VENV)/created ## Run a Kafka broker on this machine without containers (needs Java 17 and Maven)
	@$(BIN)/python ops/kafka/local_kafka.py run $(ARGS)

# --- work on it ------------------------------------------------------------------------------------------------------

.PHONY: check
check: lint typecheck imports generated docs test ## Everything a change must pass

# A file's tests stay in one process; no file waits behind a longer one for the sake of its number of tests.
IN_PARALLEL := --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: test
test: $(VENV)/dev ## Run the quick tests, about 5 minutes (ARGS=--slow for all of them, ARGS="-k breaker" for some)
	@$(BIN)/pytest $(IN_PARALLEL) $(ARGS)

.PHONY: lint
lint: $(VENV)/dev ## Style: ruff, all rules, and the formatter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: format
format: $(VENV)/dev ## Format the code and apply safe fixes
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: typecheck
typecheck: $(VENV)/dev ## Types: mypy --strict on the package, the scripts and the examples of the docs
	@$(BIN)/mypy
	@$(BIN)/mypy ops/kafka ops/build_dist.py docs/state_diagrams.py docs/programs_page.py docs/patterns_page.py docs/write_examples.py tests/guard/typed_program.py
	@$(BIN)/python docs/write_examples.py build/examples
	@$(BIN)/mypy build/examples

.PHONY: imports
imports: $(VENV)/dev ## Direction of dependencies: import-linter
	@$(BIN)/lint-imports

.PHONY: generated
generated: $(VENV)/dev ## Compare the generated files with the code
	@$(BIN)/python -m trustfold.schemas.generate --check
	@$(BIN)/python docs/state_diagrams.py --check
	@$(BIN)/python docs/programs_page.py --check
	@$(BIN)/python docs/patterns_page.py --check
	@$(BIN)/python tests/support/demo_script.py --check

.PHONY: schemas
schemas: $(VENV)/dev ## Write the generated files: JSON Schemas, AsyncAPI, diagrams of the state machines, the pages of programs and patterns, the demo's day
	@$(BIN)/python -m trustfold.schemas.generate
	@$(BIN)/python docs/state_diagrams.py
	@$(BIN)/python docs/programs_page.py
	@$(BIN)/python docs/patterns_page.py
	@$(BIN)/python tests/support/demo_script.py

CHART := ops/helm/trustfold

.PHONY: chart
chart: ## Render the Helm chart's two example installations anew into tests/ops/chart (needs helm)
	@for values in tests/ops/chart/*.values.yaml; do \
		{ echo "# chart $$(find -L $(CHART) -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -d ' ' -f 1)"; \
		helm template tools $(CHART) --namespace agents --kube-version 1.31 --values $$values; } > $${values%.values.yaml}.yaml || exit 1; done

.PHONY: docs
docs: $(VENV)/dev ## Build the documentation site into build/site; a warning, a broken link or a search that misleads is an error
	@$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --doctree-dir build/site-cache docs build/site
	@if command -v node >/dev/null; then node docs/check_search.mjs build/site; else echo "the search is not checked: no node"; fi
	@echo "build/site/index.html"

.PHONY: dist
dist: $(VENV)/uv.txt ## Build what is released into dist: sdist and wheel of the last commit, links of README absolute
	@$(BIN)/python ops/build_dist.py dist

.PHONY: pictures
pictures: $(VENV)/dev ## Take the pictures of docs/images anew, in Debian's Chromium
	@$(BIN)/python tests/pictures

.PHONY: bench
bench: $(VENV)/dev ## Measure: ratios against bare loops in the same run
	@$(BIN)/python tests/bench $(ARGS)

.PHONY: soak
soak: $(VENV)/dev ## Run a worker under session churn and see that it stays as small as it is: ARGS="--minutes 40 --rate 3000"
	@$(BIN)/python tests/bench/soak.py $(ARGS)

.PHONY: quality
quality: $(VENV)/dev ## Measure: detection, interruptions and planted outages, on recorded runs of real agents
	@$(BIN)/python tests/quality $(ARGS)

.PHONY: mutants
mutants: $(VENV)/dev ## Change folds and guard at random and count the changes that tests notice (ARGS="--count 60 guard/flow.py")
	@$(BIN)/python tests/mutants $(ARGS)

.PHONY: structure
structure: $(VENV)/dev ## Measure: how much of the code a change touches, beside the targets (ARGS=--show lists what was counted)
	@$(BIN)/python tests/structure $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/dev ## Send rubbish to every door: 120,000 inputs (ARGS="-k otlp" for one of them)
	@TRUSTFOLD_FUZZ=20000 $(BIN)/pytest tests/cli/test_fuzz.py --hypothesis-profile default --timeout 0 $(ARGS)

.PHONY: explore
explore: $(VENV)/dev ## Run the tests of properties with inputs drawn anew; `make test` draws the same ones each time, a tenth of these
	@$(BIN)/pytest $(IN_PARALLEL) -m hypothesis --hypothesis-profile explore $(ARGS)

.PHONY: chaos
chaos: $(VENV)/dev ## Kill, pause and restart workers, brokers and the recorder under load: 12 minutes (ARGS="--seed 7 --kills 20 --minutes 5")
	@$(BIN)/python tests/chaos $(ARGS)
	@$(BIN)/pytest tests/chaos -m chaos

.PHONY: charges
charges: $(VENV)/dev ## Kill processes between a charge and its remembering, over every store: 1,000 keys (ARGS="--runs 60 --kind far --seed 7")
	@$(BIN)/python tests/support/charge_kills.py --runs 1000 $(ARGS)

.PHONY: peers
peers: $(VENV)/dev ## Run behavioural cases: ARGS=FILE [--json]
	@$(BIN)/python -m tests.peers $(or $(ARGS),tests/peers/own_cases.json)

.PHONY: agents
agents: $(VENV)/dev ## Try real coding agents from npm against a scripted model (ARGS="claude codex" for some of them)
	@$(BIN)/python tests/agents $(ARGS)

.PHONY: recording
recording: $(VENV)/dev ## Record a session of a connected agent from npm as a picture: docs/images/connected-agent.svg
	@$(BIN)/python tests/agents/recording.py $(ARGS)

.PHONY: frameworks
frameworks: $(VENV)/dev ## Try the adapters of frameworks against their packages from PyPI (ARGS="langchain strands" for some of them)
	@$(BIN)/python tests/agents/frameworks $(ARGS)

.PHONY: clean
clean: ## Remove the environment, builds and caches
	rm -rf $(VENV) build dist *.egg-info
	find . -type d \( -name __pycache__ -o -name '.*_cache' -o -name .hypothesis \) -not -path './.git/*' -prune -exec rm -rf {} +
