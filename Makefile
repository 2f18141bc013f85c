SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= $(shell nproc)
PYTEST_ARGS ?=

.PHONY: help setup demo demo-gpt2 demo-hang test test-clusters test-inspector test-native test-nightly test-rdma lint format bench bench-runtime bench-memory bench-mounts bench-diagnosis docs wheel clean distclean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv with Milkweed (editable), CPU torch and the development tools
	@PYTHON="$(PYTHON)" scripts/setup.sh

demo: setup ## Replay a recorded session: an agent finds and mends three faults of a trainer on four hosts
	@$(BIN)/milkweed replay transcripts/buggy_trainer/session.jsonl

demo-gpt2: setup ## Replay a recorded session: from "train a GPT-2 on open data" to text in Shakespeare's manner, in minutes
	@$(BIN)/milkweed replay --keep transcripts/gpt2_from_scratch/session.jsonl

demo-hang: setup ## Allocate a mesh, find a hang, fix it, run again: through a real MCP client
	@$(BIN)/milkweed demo

lint: setup ## ruff, mypy, import contracts, generated documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m milkweed.server.docs --check docs/tools.md

format: setup ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint ## Lint, then every test in its CI size
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

test-clusters: setup ## Test on a real Slurm, which is brought up for it (Debian's packages; as root)
	@scripts/setup-slurm.sh
	$(BIN)/python -m pytest tests/clusters -p no:xdist --timeout 300 $(PYTEST_ARGS)

test-native: setup ## The tests of native code with address, undefined behaviour and thread sanitizers
	@WORKERS=$(WORKERS) scripts/test-native.sh address thread

test-nightly: lint ## Lint, then every test in its full size
	MILKWEED_TEST_SCALE=nightly $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600 $(PYTEST_ARGS)

test-rdma: setup ## Test over real verbs, in a virtual machine with soft-RoCE (Debian on x86-64)
	@scripts/rdma-guest/test.sh $(PYTEST_ARGS)

test-inspector: setup ## Look at the server with the MCP Inspector (also in Chromium) and the conformance suite
	@scripts/setup-inspector.sh
	$(BIN)/python -m pytest -n $(WORKERS) tests/inspector

bench: setup ## Measure speed and size: a table and JSON
	$(BIN)/python -m benchmarks.run

bench-runtime: setup ## Measure the actor runtime, torchmonarch beside it: a table and JSON
	@scripts/setup-monarch.sh || true
	$(BIN)/python -m benchmarks.runtime

bench-memory: setup ## Measure one-sided memory, the kernel, torchmonarch and NIXL beside it: a table and JSON
	@scripts/setup-monarch.sh || true
	@scripts/setup-nixl.sh || true
	@scripts/setup-iperf.sh || true
	$(BIN)/python -m benchmarks.runtime --json benchmarks/results/memory.json onesided network broadcast

bench-mounts: setup ## Measure mounts, torchmonarch and the plain directory beside them: a table and JSON
	@scripts/setup-monarch.sh || true
	$(BIN)/python -m benchmarks.mounts

bench-diagnosis: setup ## Measure diagnosis: right causes, size and speed of answers, what looking costs
	$(BIN)/python -m benchmarks.diagnosis

docs: setup ## Write docs/tools.md from the tools themselves
	$(BIN)/python -m milkweed.server.docs docs/tools.md

wheel: setup ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove what builds and tools left, but not .venv
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find server tools runtime src scripts tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove the virtual environments and the native module too
	rm -rf .venv .venv-monarch .venv-nixl runtime/_native*.so
