# Each target sets up .venv first, or upgrades it when pyproject.toml has changed since.

PYTHON ?= python3
ARGS ?=
NAME ?= list
BIN := .venv/bin
# What is installed: what the demo needs; and what tests, experiments and benchmarks need.
DEMO := .venv/demo-ready
TOOLS := .venv/tools-ready

.PHONY: help demo test lint wheel-check bench reproduce docs clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\): .*## */\1\t/p' Makefile | expand -t 12

demo: $(DEMO)  ## the main job on built-in data: a table and figures, in two minutes
	@$(BIN)/farrier demo $(ARGS)

test: $(TOOLS)  ## the tests; ARGS goes to pytest: make test ARGS=--slow
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: $(TOOLS)  ## style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

wheel-check:  ## build the wheel, and use it without extras and with all of them
	@PYTHON=$(PYTHON) tests/wheel.sh

bench: $(TOOLS)  ## time compilation, training and prediction; ARGS=--peers or --scaling
	@$(BIN)/python -m benchmarks $(ARGS)

reproduce: $(TOOLS)  ## make results again: make reproduce NAME=uci, or NAME=list
	@$(BIN)/python -m experiments $(NAME) $(ARGS)

docs: $(DEMO)  ## the documentation site, in docs/_build/html
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:  ## remove .venv and all caches
	@rm -rf .venv .pytest_cache .ruff_cache .hypothesis
	@find src tests experiments benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO): pyproject.toml
	@echo "Setting up .venv; this takes a minute or two, once ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(TOOLS): $(DEMO)
	@echo "Adding what tests, experiments and benchmarks need to .venv ..."
	@$(BIN)/python -m pip install --quiet --editable '.[test,bench]'
	@touch $@
