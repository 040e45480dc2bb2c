# Two commands for a fresh machine:  make demo   and   make test.  Both set themselves up in .venv.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help setup demo test night test-verl test-verifiers test-vllm test-ray lint types imports unit release-check slow delete-papers attack attack-kills attack-ray bench gpu docs format clean test-agents coverage

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## create .venv with everything for work on Rolltree

$(STAMP): pyproject.toml rolltree_papers/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Rolltree needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up .venv (a few minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]' -e rolltree_papers 2> .venv/install.log || \
	  { cat .venv/install.log; exit 1; }
	@touch $(STAMP)

demo: setup ## train the embedded policy with flat groups and with trees, compare them, write runs/demo/report.html
	@$(BIN)/rolltree demo

test: setup lint types imports unit ## everything that must pass

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/pyright

imports:
	$(BIN)/lint-imports

JOBS ?= 2
unit:
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'not slow and not ray' \
	  --hypothesis-profile=repeatable

coverage: setup ## the tests of make test, and the lines and branches that none of them ran (about half as slow again)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'not slow and not ray' \
	  --hypothesis-profile=repeatable --cov --cov-report=term:skip-covered

release-check: setup ## what a release needs beside the tests: evidence made with the code that stands
	$(BIN)/rolltree evidence --list

SEED := $(or $(SEED),$(shell echo $$((RANDOM * 32768 + RANDOM))))
night: setup ## every test, the minutes-long ones included, with fresh Hypothesis seeds; SEED=N runs a night again
	@echo "Hypothesis seed: $(SEED)  (again: make night SEED=$(SEED))"
	$(BIN)/python -m pytest -m 'not ray' --hypothesis-profile=night --hypothesis-seed=$(SEED)
	@echo "passed with Hypothesis seed $(SEED)"

slow: setup ## the minutes-long checks (learning curves, soak)
	$(BIN)/python -m pytest -m slow --hypothesis-profile=repeatable

delete-papers: setup ## each folder of a paper deleted from a copy: the rest lists, imports, collects and writes its pages (PAPERS="a b")
	PAPERS="$(PAPERS)" $(BIN)/python -m pytest -m slow tests/test_deleted.py

VERL := .venv-verl
test-verl: setup ## the verl adapter against verl itself, in an environment of its own (installed on the first run)
	@test -x $(VERL)/bin/python || $(BIN)/python -m venv $(VERL)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > \
	  "$$($(VERL)/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/shared.pth"
	@test -f $(VERL)/.installed || $(VERL)/bin/pip install -q --disable-pip-version-check --no-deps -r tests/adapt/verl/requirements.txt
	@touch $(VERL)/.installed
	$(VERL)/bin/python -m pytest tests/adapt/verl --hypothesis-profile=repeatable

VERIFIERS := .venv-verifiers
test-verifiers: setup ## the adapter for verifiers against verifiers itself, in an environment of its own
	@test -x $(VERIFIERS)/bin/python || $(BIN)/python -m venv $(VERIFIERS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > \
	  "$$($(VERIFIERS)/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/shared.pth"
	@test -f $(VERIFIERS)/.installed || \
	  $(VERIFIERS)/bin/pip install -q --disable-pip-version-check --no-deps -r tests/task/foreign/requirements.txt
	@touch $(VERIFIERS)/.installed
	$(VERIFIERS)/bin/python -m pytest tests/task/foreign --hypothesis-profile=repeatable

AGENTS := .venv-agents
test-agents: setup ## clients and agent frameworks as people use them, in an environment of their own
	@test -x $(AGENTS)/bin/python || $(BIN)/python -m venv $(AGENTS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > \
	  "$$($(AGENTS)/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/shared.pth"
	@test -f $(AGENTS)/.installed || \
	  $(AGENTS)/bin/pip install -q --disable-pip-version-check --no-deps -r tests/gateway/clients/requirements.txt
	@touch $(AGENTS)/.installed
	$(BIN)/python -m pytest tests/gateway/clients --hypothesis-profile=repeatable

# Its own environment: vLLM pins its own transformers. A machine with an accelerator sets VLLM=vllm, which pip resolves.
VLLM ?=
VLLM_BIN := .venv-vllm/bin
VLLM_PINS := tests/engine/vllm/requirements.txt
VLLM_PIP := $(VLLM_BIN)/python -m pip install -q --disable-pip-version-check

.venv-vllm/.installed: $(VLLM_PINS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Rolltree needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up .venv-vllm (a few minutes the first time) ..."
	@test -x $(VLLM_BIN)/python || $(PYTHON) -m venv .venv-vllm
	@{ $(if $(VLLM),$(VLLM_PIP) -c constraints.txt $(VLLM) -e '.[http]' -e rolltree_papers 'pytest>=8' 'hypothesis>=6.100', \
	  $(VLLM_PIP) --no-deps -r $(VLLM_PINS) && $(VLLM_PIP) --no-deps -e . -e rolltree_papers); } 2> .venv-vllm/install.log || \
	  { cat .venv-vllm/install.log; exit 1; }
	@touch $@

test-vllm: .venv-vllm/.installed ## the engines for vLLM and for servers against a real vLLM, in an environment of its own
	OMP_NUM_THREADS=1 $(VLLM_BIN)/python -m pytest -o addopts='-q --strict-markers' -m vllm tests/engine/vllm

test-ray: setup ## engines, environments and verifiers on real Ray clusters, with nodes and processes killed
	$(BIN)/python -m pytest -m ray tests/cluster

attack: setup ## the standing attack: seeded, goes on where it was stopped, counts (NAMES="engine kills" for some)
	$(BIN)/python -m tests.attack $(NAMES)

attack-kills: setup ## every night: runs of all recipes and schedules, killed anywhere, resumed and compared
	$(BIN)/python -m tests.attack kills kills-recipes kills-schedules --seed $$(date +%Y%j)

attack-ray: setup ## ten minutes: nodes, engines, verifiers and drivers of a Ray cluster killed at any moment
	$(BIN)/python -m tests.attack ray --minutes 8 --seed $${SEED:-0}
	$(BIN)/python -m tests.attack ray-drivers --minutes 2 --seed $${SEED:-0}

bench: setup ## ratios against transformers and TRL, measured in one run
	$(BIN)/rolltree bench

gpu: ## a card in at most eight minutes: numerics, speed, whole steps, learning (writes docs/measured/gpu.md)
	PYTHONPATH=$(CURDIR) $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu \
	  --json benchmarks/baselines/gpu.json --page docs/measured/gpu.md

docs: setup ## build the documentation site into site/
	$(BIN)/mkdocs build --strict

format: setup ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches (never runs/)
	rm -rf .venv .venv-verl .venv-verifiers .venv-agents .venv-vllm site .pytest_cache .ruff_cache .hypothesis .coverage .import_linter_cache
