# Every target does its own set-up: a machine with Python 3.11 or newer and make is enough.
.DEFAULT_GOAL := help
.PHONY: help setup lint format test demo bench simulate zipapp crds dist images cluster cluster-down e2e e2e-full \
	lock clean

PYTHON ?= $(firstword $(foreach p,python3.11 python3 python3.12 python3.13 python3.14,$(shell \
	command -v $(p) >/dev/null && $(p) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $(p))))
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
SOURCES := dsagent scheduler_plugin gpu_topology tests tools packaging
READY := .venv/ready

# Tests, mypy and benches start Python some thousand times: where a container's environment forbids compiled files, most
# of their time would go into compiling the same sources again and again.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

setup: $(READY) ## make .venv with everything the lock names and dsagent itself, editable

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv on PATH; on Debian: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	sed -n '/^pip==/,/# via/p' requirements.lock > .venv/pip.lock
	$(PIP) --require-hashes -r .venv/pip.lock
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

# lint-imports' cache takes an import of a module it has not seen for one of the package above.
lint: $(READY) ## formatting, style, types and the direction of imports
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(READY) ## let ruff write what it can
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# One more file at a time than there are CPUs, for many tests wait; the longest are first (tests/conftest.py).
test: $(READY) ## all tests, some files at a time; ARGS are pytest's
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist loadfile --no-loadscope-reorder $(ARGS)

demo: $(READY) ## the whole life of a dataset on files of this machine, with a table of what it took
	$(BIN)/python tools/demo.py

bench: $(READY) ## measure what docs/benchmarks.md says
	$(BIN)/python -m tools.bench $(ARGS)

simulate: $(READY) ## replay jobs by every way to choose nodes: docs/simulation.md; ARGS='--trace FILE'
	$(BIN)/python -m tools.simulate $(ARGS)

zipapp: $(READY) ## dist/dsagent-init.pyz, the init client as one file
	$(BIN)/python -m dsagent.entrypoints.init.zipapp dist/dsagent-init.pyz

crds: $(READY) ## the chart's CustomResourceDefinitions, from the models
	$(BIN)/python -m tools.crds

dist: $(READY) zipapp ## the wheel and the init client in dist/, for the images
	rm -f dist/*.whl
	$(BIN)/python -m hatchling build --target wheel --directory dist

images: $(READY) ## build the images and unpack them for the cluster's nodes; root on Debian
	$(BIN)/python -m tools.cluster images

cluster: $(READY) ## start a real Kubernetes here, as root on Debian: NODES=2, NUMA=1 for two NUMA nodes in each
	$(BIN)/python -m tools.cluster up --nodes $(or $(NODES),1) $(if $(NUMA),--numa)

cluster-down: $(READY) ## remove all that make cluster made, also after a crash
	$(BIN)/python -m tools.cluster down

e2e: $(READY) ## start a cluster of two nodes, run tests/e2e on it, stop it
	$(BIN)/python -m tools.cluster up --nodes 2 && $(BIN)/python -m pytest tests/e2e $(ARGS); status=$$?; \
	$(BIN)/python -m tools.cluster down && exit $$status

e2e-full: $(READY) ## the same with the stories that take longer, and make cluster killed on its way
	$(MAKE) e2e ARGS='--full $(ARGS)'
	$(BIN)/python -m pytest tests/crash

lock: $(READY) ## resolve requirements.lock anew, for Linux on every architecture
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes --upgrade \
		--custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml

clean: ## remove what make made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache
