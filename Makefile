# Everything a newcomer needs. `make run` and `make test` work on a fresh machine with Python 3.11+ and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PEERS := .venv-peers
MANIFEST := assets/reports/target/manifest.json
REPORTS = $(wildcard reports/*/*.md reports/*/*/*.md)

export DAGSTER_HOME := $(CURDIR)/.dagster
export DAGSTER_DISABLE_TELEMETRY := 1
# `dagster` says at every start that `dg` may be used instead, and which of its parameters are in beta
export PYTHONWARNINGS := ignore:Function:FutureWarning,ignore:Parameter:Warning
# without compiled files every process compiles its imports again, which takes 3 to 5 times as long
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH

.PHONY: help run data closed-loop ui screens test compiled check format integration hostile soak bench bench-lineage bench-datasets bench-sandbox bench-actors bench-training bench-harbor bench-loop peers wheel install clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

run: install ## Bring the whole lineage up to date, then show what there is
	@$(BIN)/graftline check --inputs
	@$(BIN)/python -m orchestration.run_jobs lineage training
	@$(BIN)/graftline status

data: install ## Bring the lineage up to date as far as trajectories: what adapters are trained on
	@$(BIN)/graftline check --inputs
	@$(BIN)/python -m orchestration.run_jobs lineage

closed-loop: data ## Train a small model to edit code as it is told, and judge it beside one three times its size
	@# training is a tenth faster with it, and works without
	-@ldconfig -p | grep -q tcmalloc_minimal || apt-get install --yes --no-install-recommends libtcmalloc-minimal4
	@# where only packages of strangers have them, this says which variable allows them, and what the risk is
	$(BIN)/graftline model fetch qwen2.5-coder-0.5b qwen2.5-coder-1.5b
	@$(BIN)/python -m orchestration.run_jobs closed_loop
	@cat data/closed_loop/report.md

ui: install ## Open the Dagster UI on http://127.0.0.1:3000
	@# with an arena of malloc for each thread, the daemon grows for ten minutes before its memory is level
	MALLOC_ARENA_MAX=2 $(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1 -p 3000

screens: install ## Take pictures of every page of the UI and of the reports into reports/screens, after a run
	@test -n "$(REPORTS)" || { echo "there is nothing to take pictures of yet: run make run first"; exit 1; }
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || apt-get install --yes --no-install-recommends chromium
	$(BIN)/python -m orchestration.screens reports/screens $(patsubst %,--report %,$(REPORTS))

test: install ## Run every test that needs nothing but the checkout, a small language model among them
	@# without it the tests of a real model are left out, and say so
	-@$(BIN)/graftline model fetch smollm2-135m > /dev/null
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile

# where nothing is compiled yet, the four processes of `make test` each compile all that tests import, at the same moment;
# this does it in one, beside `make check`, which keeps one processor busy
compiled: install
	-@$(BIN)/python -m pytest --collect-only --quiet > /dev/null

check: install ## Lint, words, types, import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python .ci/words.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

integration: install ## Run the tests that take minutes: of a cluster, of benchmarks, of real models, and of vLLM's CPU build where GRAFTLINE_VLLM_ENV names its environment
	$(BIN)/graftline model fetch smollm2-135m
	$(BIN)/python -m pytest -m long

hostile: install ## Run programs and actions that try to get out against every jail here; CASES=network names some
	$(BIN)/python -m tests.security.hostile $(CASES)

soak: install ## Disturb the whole platform under load, for about two minutes or for MINUTES=60, and prove that nothing was lost
	@$(BIN)/graftline model fetch smollm2-135m > /dev/null
ifdef MINUTES
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)
else
	$(BIN)/python -m pytest -m soak tests/integration/test_soak.py
endif

bench: bench-lineage bench-datasets bench-sandbox bench-actors bench-training bench-harbor bench-loop ## Measure all claims; prints one line of JSON each

bench-lineage: install ## Measure the whole lineage and what it costs to start
	$(BIN)/python -m benchmarks.lineage

bench-datasets: install peers ## Measure raw rows to splits, peers beside them: most of an hour, 10 GB of disk
	$(BIN)/python -m benchmarks.datasets

bench-sandbox: install ## Measure actions a second and tests in the jail, the bare commands beside them
	$(BIN)/python -m benchmarks.sandbox

bench-actors: install peers ## Measure actors, queue and states, and how well models solve tasks
	$(BIN)/python -m benchmarks.actors

bench-training: install ## Measure training on this machine
	@$(BIN)/graftline model fetch smollm2-135m > /dev/null
	$(BIN)/python -m benchmarks.training

bench-harbor: install ## Measure rollouts through the service, beside bare processes
	$(BIN)/python -m benchmarks.harbor
	$(BIN)/python -m benchmarks.model_proxy

bench-loop: install ## Measure what orchestration, records, grading and prompt optimization cost
	@$(BIN)/graftline model fetch smollm2-135m > /dev/null
	$(BIN)/python -m benchmarks.loop

peers: $(PEERS)/.installed ## Build .venv-peers, the libraries that benchmarks compare with

wheel: install ## Build the wheel of the library into dist/
	$(BIN)/python -m build --wheel --outdir dist .

install: $(INSTALLED) $(MANIFEST) .dagster/dagster.yaml ## Build .venv

clean: ## Remove what runs and builds left; .venv and .env stay
	rm -rf .dagster .sandbox logs reports dist assets/reports/target .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	cd data && rm -rf raw division processed label_tasks synthetic tasks trajectories training retrieval state warehouse harbor

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { echo "Python 3.11, 3.12 or 3.13 is needed; say which: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# the largest part first, and on its own: whoever wants a build of torch for a GPU installs that one before
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@touch $@

$(PEERS)/.installed: benchmarks/peers/constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c $< datasets datatrove datasketch orjson regex rensa \
		scipy tokenizers tree-sitter tree-sitter-python xxhash \
		aiohttp fastuuid httpx importlib-metadata jinja2 jsonschema openai pydantic pydantic-settings python-dotenv requests tiktoken
	@# it asks for other versions of what the peers share; its router works with these
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c $< --no-deps litellm
	@touch $@

$(MANIFEST): $(INSTALLED) $(wildcard assets/reports/*.yml assets/reports/models/*/* assets/reports/tests/*) resources/dbt.py
	$(BIN)/python -m resources.dbt
	@touch $@

.dagster/dagster.yaml: dagster.yaml
	@mkdir -p .dagster
	@cp $< $@
