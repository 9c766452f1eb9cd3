# make demo     set everything up and run the main job on the sample sessions
# make test     set everything up and run the fast tests (make test-slow: the others)
# make lint     ruff and mypy
# make bench    import, export, list and refresh against their floors

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := tests/clients/node_modules/.package-lock.json
FOLDERS := engine engine/cli jsonl schema migrations migrations/versions

.PHONY: demo test test-slow lint bench clean

# The folders are prerequisites because a strict editable install lists its files once: a new file needs a new install.
$(VENV)/.installed: pyproject.toml .ci/constraints.txt $(FOLDERS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt \
	  --editable '.[dev]' --config-settings editable_mode=strict
	@touch $@

# The real client that some tests compare with. Where there is no npm they are skipped, and say so.
$(CLIENTS): tests/clients/package.json tests/clients/package-lock.json
	cd tests/clients && npm ci --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error
	@touch $@

demo: $(VENV)/.installed
	@BIN=$(BIN) sh tests/demo.sh

test: $(VENV)/.installed $(if $(shell command -v npm),$(CLIENTS))
	$(BIN)/python -m pytest

test-slow: $(VENV)/.installed $(if $(shell command -v npm),$(CLIENTS))
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy -p sessiondb
	$(BIN)/mypy tests

bench: $(VENV)/.installed
	$(BIN)/python tests/bench/bench.py

clean:
	rm -rf $(VENV) build dist demo *.egg-info tests/clients/node_modules
