# `make` prints the targets. Longer scripts are in hack/.

SHELL := bash
PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
# On all cores. Bytecode is cached even if the environment disables that, so that tests are not compiled in each run.
UNIT := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/build/bytecode $(PYTEST) -n auto --dist worksteal
# Integration tests mostly wait for servers, so three processes run them, each with its own control plane.
BESIDE := $(PYTEST) -n 3 --dist loadfile
# Tests of the chart need helm, which only `make chart` downloads.
CHART := test/chart test/integration/test_chart.py
SOURCES := api cli controller informers workqueue tfjob_operator hack test noxfile.py

.DEFAULT_GOAL := help
.PHONY: help demo demo-page test unit unit-all integration image e2e e2e-tensorflow kubectl-matrix sdk-matrix chart faults soak degraded browser lint quick renew format control-plane bench bench-operator bench-scale bench-page clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: plane ## Run the example jobs with the operator on a real API server, from creation to deletion
	@$(PYTHON) -m hack.demo

.PHONY: picture
picture: plane ## Draw the README's terminal picture from a real session; writes docs/images/terminal.svg
	@$(PYTHON) -m hack.picture

demo-page: plane ## Show the dashboard with the example jobs, until Ctrl-C
	@$(PYTHON) -m hack.demo --page

test: plane ## Run unit tests, model checker, simulation, and integration tests on a real API server
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(UNIT) test/unit test/worlds
	@$(BESIDE) test --ignore=test/unit --ignore=test/worlds $(patsubst %,--ignore=%,$(CHART))

unit: venv ## Run only the unit tests; they need no API server and take about a minute
	@$(UNIT) test/unit

unit-all: venv ## Run the unit tests with each supported Python on this machine (including pyenv's)
	@$(PYTHON) -m nox

integration: plane ## Run only the integration tests
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(BESIDE) test/integration

.PHONY: nightly
nightly: plane ## Run the long tests that `make test` omits, with other simulation seeds each day; as root also e2e-upgrade and other-debian
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(BESIDE) test -m nightly
	@$(PYTHON) -m nox --sessions unit-3.12 unit-3.13
	@$(PYTHON) -m hack.matrix kubectl
	@$(PYTEST) -n 2 --dist worksteal test/simulation --seed $$(($$(date +%s) / 86400 * 2000)) --seeds 2000
	@! $(PYTHON) -m hack.real_node try || $(MAKE) e2e-upgrade
	@[ "$$(id -u)" != 0 ] || $(PYTHON) -m hack.other_debian

.PHONY: other-debian
other-debian: venv ## Run demo and test on the other supported release of Debian, from nothing, in build/ (root)
	@$(PYTHON) -m hack.other_debian

image: venv ## Build the operator's image as an OCI archive in build/, without a registry, and its SBOM (root)
	@$(PYTHON) -m hack.image

.PHONY: advisories
advisories: venv ## Look up known vulnerabilities of the packages in the image's lock file; downloads pip-audit
	@hack/advisories.sh

e2e: venv ## Install a dry run of the release on a real node and run the end-to-end tests: kubelet, containers, cluster DNS (root)
	@$(PYTHON) -m hack.real_node check
	@$(PYTHON) -m hack.release --dry-run --registry= # the node imports the image
	@$(PYTHON) -m hack.real_node run -- $(PYTEST) test/e2e

.PHONY: e2e-upgrade
e2e-upgrade: venv ## Upgrade and roll back 0.1.0, 0.2.1 and this version on the real node, each with its own image, by install.yaml and Helm (root)
	@$(PYTHON) -m hack.real_node check
	@$(PYTHON) -m hack.earlier
	@$(PYTHON) -m hack.release --dry-run --registry=
	@$(PYTHON) -m hack.real_node run -- $(PYTEST) test/e2e -m nightly

e2e-tensorflow: venv ## Train with real TensorFlow and JAX on the real node, and kill workers, coordinators and parameter servers (root)
	@$(PYTHON) -m hack.real_node check
	@$(PYTHON) -m hack.image
	@tensorflow=$$($(PYTHON) -m hack.tensorflow) && TENSORFLOW_FOLDER=$$tensorflow $(PYTHON) -m hack.real_node run -- $(PYTEST) test/e2e/test_training.py

kubectl-matrix: venv ## Test manifests and jobs with kubectl 1.22 to 1.36 (downloaded once): install, use, remove
	@$(PYTHON) -m hack.matrix kubectl

sdk-matrix: venv ## Test jobs with four releases of Kubeflow's Python SDKs (installed once): create, wait, scale, delete
	@$(PYTHON) -m hack.matrix sdk

chart: venv ## Test the Helm chart with three versions of Helm (downloaded once): lint, compare, install (also from a registry), upgrade, remove; packs it into build/
	@$(PYTHON) -m hack.chart
	@$(PYTEST) test/unit/test_chart.py $(CHART) test/integration/test_publish.py

faults: plane ## Kill operators at every write, degrade API servers, edit jobs, disturb leaders, upgrade and roll back (half an hour; TENTH=0 to 9 or commit, WALKS=1000, SEED=1)
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(PYTEST) test/faults -s $(if $(TENTH),--tenth $(TENTH),--whole) $(if $(WALKS),--walks $(WALKS)) $(if $(SEED),--walk-seed $(SEED))

browser: venv ## Test the dashboard in Chromium (downloaded once): each view, live changes, hostile text, accessibility
	@$(PYTHON) -m hack.browser
	@$(PYTEST) test/browser

.PHONY: plugin
plugin: venv ## Pack kubectl tfjob for Linux and macOS into build/plugin/, as archives and single files; with URL=https://... of the archives also the krew manifest
	@$(PYTHON) -m hack.plugin $(if $(URL),--url $(URL))

.PHONY: library
library: venv ## Build the wheel of the library alone, kubecontrollers, into build/
	@$(PYTHON) -m hack.library

.PHONY: release
release: venv ## Build the release VERSION=1.0.0 from its tag into build/release/, signed with the private key KEY=FILE, for publication at URL=https://... and with the image in REGISTRY=HOST/PATH; DRY_RUN=1: from any checkout (root)
	@$(PYTHON) -m hack.release $(if $(VERSION),--version=$(VERSION)) $(if $(KEY),--key=$(KEY)) $(if $(URL),--url=$(URL)) $(if $(REGISTRY),--registry=$(REGISTRY)) $(if $(DRY_RUN),--dry-run)

.PHONY: publish
publish: venv ## Push the release in build/release/ to an OCI registry, REGISTRY=HOST/PATH: image, chart and all other files; FORCE=1 replaces a version
	@$(PYTHON) -m hack.publish $(if $(REGISTRY),--registry=$(REGISTRY)) $(if $(FORCE),--force)

lint: venv ## Check style, formatting (ruff), types (mypy), spelling, and that every behavior has a test; runs all checks before it fails
	@$(PYTHON) -m hack.check

quick: venv ## Run lint and unit tests for what differs from origin/main (or BASE=COMMIT)
	@$(PYTHON) -m hack.check --since $(or $(BASE),origin/main)

renew: venv ## Write all generated files: the CRD, the chart's values, tables and references of the docs (TESTS=test/unit/test_layering.py: those of one test)
	@$(PYTEST) -q -p no:warnings --renew $(or $(TESTS),$$(grep -rl check_generated test/unit --include='test_*.py'))

format: venv ## Format the code
	@$(PYTHON) -m ruff check --fix-only --quiet $(SOURCES)
	@$(PYTHON) -m ruff format $(SOURCES)

control-plane: plane ## Start etcd and kube-apiserver on loopback and a shell that uses them; they stop when the shell exits
	@$(PYTHON) -m hack.control_plane run

soak: plane ## Run an operator for half an hour with random users and faults, and check its memory (MINUTES=480: a night, BUG=name)
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(PYTEST) test/soak/test_soak.py -s --minutes $(or $(MINUTES),30) $(if $(BUG),--planted $(BUG))

degraded: plane ## Degrade a cluster with three etcds and two API servers (killed, disk full, expired certificates) at five new jobs a second (MINUTES=10: twice ten, BUG=name)
	@$(PYTHON) -m hack.control_plane build >/dev/null
	@$(PYTEST) test/soak/test_degraded_cluster.py -s --minutes $(or $(MINUTES),10) $(if $(BUG),--planted $(BUG) --trouble etcd_full)

bench: venv ## Measure the hot paths as ratios within one run; writes build/bench/*.json
	@$(PYTHON) -m hack.bench

bench-operator: plane ## Measure the whole operator on a real API server: hundreds of concurrent jobs, and a thousand idle ones
	@$(PYTHON) -m hack.bench operator

bench-scale: plane ## Measure the operator with 100,000 pods and 11,000 jobs (10 minutes, 20 GB of memory); writes build/bench/scale.json
	@$(PYTHON) -m hack.bench scale

bench-page: plane ## Measure the dashboard: 1,000 jobs, 10,000 pods, 200 browsers; writes build/bench/page.json
	@$(PYTHON) -m hack.bench page

clean: ## Remove the files of the other targets in this folder (but not the cache of built binaries)
	rm -rf .venv .nox build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: venv plane
venv:
	@hack/bootstrap.sh

plane: # the environment of a target that runs a control plane
	@hack/bootstrap.sh --control-plane
