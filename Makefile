# Every target sets up .venv first, where pyproject.toml has changed since the last time.

PYTHON ?= python3
ARGS ?=
NAME ?= list
BIN := .venv/bin
READY := .venv/ready

.PHONY: help demo test lint bench reproduce docs clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\): .*## */\1\t/p' Makefile | expand -t 8

demo: $(READY)  ## the main job on built-in data: a table and figures, in two minutes
	@$(BIN)/farrier demo $(ARGS)

test: $(READY)  ## the tests; ARGS goes to pytest: make test ARGS=--slow
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: $(READY)  ## style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

bench: $(READY)  ## time compilation, training and prediction
	@$(BIN)/python -m benchmarks $(ARGS)

reproduce: $(READY)  ## make results again: make reproduce NAME=uci, or NAME=list
	@$(BIN)/python -m experiments $(NAME) $(ARGS)

docs: $(READY)  ## the documentation site, in docs/_build/html
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:  ## remove .venv and all caches
	@rm -rf .venv .pytest_cache .ruff_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@echo "Setting up .venv; this takes a minute or two, once ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[test,bench]'
	@touch $@
