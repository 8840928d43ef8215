# make demo and make test are all that a newcomer needs; each sets up .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test test-full soak fuzz check format clean

help:                  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)      ## create .venv with everything, versions pinned

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "astra-mcp needs Python 3.11 or newer; set PYTHON=/path/to/python3.11." >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
	  $(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $(STAMP)

demo: install          ## the whole loop without any key: serve, attempt, grade, report
	$(BIN)/astra demo

test: install          ## every test that a commit must pass
	$(BIN)/python -m pytest -m 'not full'

test-full: install     ## make test plus the long runs
	$(BIN)/python -m pytest

soak: install          ## 10,000 episodes while clients, workers and the host are killed
	$(BIN)/python -m tests.soak.soak

fuzz: install          ## ten minutes of bent requests against a live host
	$(BIN)/python -m tests.fuzz.fuzz_protocol --seconds 600

check: install         ## lint, format, types, layer contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install        ## rewrite files in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:                 ## remove the environment and everything generated
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist runs
