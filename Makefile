# `make` prints the targets. Each is short; what is longer lives in hack/.

PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
# On all cores. Tests are compiled once and not at each run, also where the environment says that Python is to write no bytecode.
UNIT := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/build/bytecode $(PYTEST) -n auto --dist worksteal
SOURCES := api controller informers workqueue tfjob_operator/__init__.py hack test
WORDS := $(SOURCES) docs manifests .ci Makefile $(wildcard *.md *.cfg *.toml)

.DEFAULT_GOAL := help
.PHONY: help demo test unit unit-all integration image e2e e2e-tensorflow kubectl-matrix sdk-matrix lint format control-plane bench bench-operator clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: venv ## Show the operator at work on a real API server: the example jobs from creation to deletion
	@$(PYTHON) -m hack.demo

test: venv ## Run all tests: unit, and integration on a real API server
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(UNIT) test/unit
	@$(PYTEST) test --ignore=test/unit

unit: venv ## Run the unit tests alone; they need no API server and take less than a minute
	@$(UNIT) test/unit

unit-all: venv ## Run the unit tests on each Python that setup.cfg names and this machine has (pyenv's too)
	@$(PYTHON) -m hack.unit_all

integration: venv ## Run the integration tests alone
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(PYTEST) test/integration

image: venv ## Build the operator's image as an OCI archive in build/, without a registry (root)
	@$(PYTHON) -m hack.image

e2e: venv ## Run the end-to-end tests on a real node: kubelet, containers, cluster DNS (root)
	@$(PYTHON) -m hack.real_node check
	@$(PYTHON) -m hack.image
	@$(PYTHON) -m hack.real_node run -- $(PYTEST) test/e2e

e2e-tensorflow: venv ## Train with real TensorFlow on the real node: mirrored workers, parameter servers, a killed worker (root)
	@$(PYTHON) -m hack.real_node check
	@$(PYTHON) -m hack.image
	@tensorflow=$$($(PYTHON) -m hack.tensorflow) && TENSORFLOW_FOLDER=$$tensorflow $(PYTHON) -m hack.real_node run -- $(PYTEST) test/e2e/test_training.py

kubectl-matrix: venv ## Try kubectl 1.22 to 1.36, fetched once, on the manifests and on jobs: install, use, remove
	@$(PYTHON) -m hack.matrix kubectl

sdk-matrix: venv ## Try four releases of Kubeflow's Python SDKs, installed once, on jobs: create, wait, scale, delete
	@$(PYTHON) -m hack.matrix sdk

lint: venv ## Check style, types, formatting (ruff, mypy), spelling, and that every behaviour has its test
	@$(PYTHON) -m ruff check $(SOURCES)
	@$(PYTHON) -m ruff format --check $(SOURCES)
	@$(PYTHON) -m mypy tfjob_operator hack test
	@$(PYTHON) -m codespell_lib $(WORDS)
	@$(PYTHON) -m hack.check_behaviours --quiet

format: venv ## Format the code
	@$(PYTHON) -m ruff check --fix-only --quiet $(SOURCES)
	@$(PYTHON) -m ruff format $(SOURCES)

control-plane: venv ## Start etcd and kube-apiserver on loopback, until `python -m hack.control_plane down`
	@$(PYTHON) -m hack.control_plane up

bench: venv ## Measure the hot paths, as ratios within one run; writes build/bench/*.json
	@$(PYTHON) -m hack.bench

bench-operator: venv ## Measure the whole operator on a real API server: hundreds of jobs at once, and a thousand idle ones
	@$(PYTHON) -m hack.bench_operator

clean: ## Remove what the other targets made in this folder (the cache of built binaries stays)
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: venv
venv:
	@hack/bootstrap.sh
