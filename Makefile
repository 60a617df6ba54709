# The two commands: `make run` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV   := build/venv
PYTHON := $(VENV)/bin/python
SETUP  := python3 local/bootstrap.py
# The environment's own folder comes first: sam build looks for python3.13 on PATH.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: lock
lock:  ## Compile requirements/*.in again (needs the registry)
	@$(SETUP) requirements/local.txt
	@$(PYTHON) -m pip install --quiet uv
	@for name in local dev checkov; do \
	  $(VENV)/bin/uv pip compile --quiet --upgrade --no-header --no-emit-index-url --no-emit-find-links --no-annotate \
	    --python-version 3.13 requirements/$$name.in -o requirements/$$name.txt; \
	done
