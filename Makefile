# make quickstart | test | test-sglang | test-slurm | test-gpu | slurm-up | slurm-down | slurm-node | check | format | clean
# Needs Python 3.11-3.13 with venv; no root, no compiler. Everything else is installed into .venv, keyed by the pins of
# setup.cfg: rebuilt when they change, otherwise ready at once.
# PIP_ARGS: more arguments for pip, e.g. the index of torch's CPU builds.
# ARGS: more arguments for launch.py or pytest.
# ACTION, NODE: what slurm-node does to which node, e.g. ACTION=off NODE=n2; slurm/testcluster/node.sh says what there is.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/gyre-pins
PYTHON ?=
PIP_ARGS ?=
ARGS ?=
export OMP_NUM_THREADS ?= 1

# Prints a hash of everything that pip reads from setup.cfg.
PINS = import configparser, hashlib; c = configparser.ConfigParser(); c.read("setup.cfg"); \
  o = c["options"]; t = [o["install_requires"], o["package_dir"], o["python_requires"]]; \
  t += [f"{k}={v}" for s in ("options.extras_require", "options.entry_points") for k, v in c[s].items()]; \
  print(hashlib.sha256("\n".join(t).encode()).hexdigest()[:16])
# Installed first, by itself: a later resolve then has no reason to look for another build.
TORCH = $(shell sed -n 's/^ *\(torch==[^ ]*\)$$/\1/p' setup.cfg | sort -u)
USABLE = import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))

.PHONY: help quickstart test test-sglang test-slurm test-gpu slurm-up slurm-down slurm-node check lint layout imports types rules format clean env
.DEFAULT_GOAL := help

help:
	@sed -n '1,6s/^# //p' Makefile

quickstart: env
	@$(PY) launch.py $(ARGS)

test: env
	@$(PY) -m pytest $(ARGS)

# A real SGLang on CPU, in an environment of its own: 3.3 GB in the cache, some minutes when it is made. A file's tests share servers.
test-sglang: env
	@$(VENV)/bin/gyre engine install sglang --device cpu
	@GYRE_REQUIRE=$${GYRE_REQUIRE:-sglang} $(PY) -m pytest -n 2 --dist loadfile $(ARGS) tests/sglang

# A real SLURM of one machine, as root: for tests, and to rehearse. Its knobs: slurm/testcluster/cluster.sh.
slurm-up:
	@bash slurm/testcluster/up.sh

slurm-down:
	@bash slurm/testcluster/down.sh

slurm-node:
	@bash slurm/testcluster/node.sh $(ACTION) $(NODE)

# The cluster is stopped afterwards unless it was up before.
test-slurm: env
	@bash slurm/testcluster/with.sh env GYRE_REQUIRE=$${GYRE_REQUIRE:-slurm} $(PY) -m pytest $(ARGS) tests/slurm

# What only an NVIDIA GPU shows, with SGLang's environment for GPUs; at most 8 minutes once that is made. Without a GPU it says so.
test-gpu: env
	@if $(PY) -c 'import sys; from gyre_hpc.engines.sglang.environment import sees_gpu; sys.exit(not sees_gpu())'; then \
	  $(VENV)/bin/gyre engine install sglang --device cuda; \
	fi
	@timeout --signal=INT --kill-after=20 480 $(PY) -m pytest $(ARGS) tests/gpu

# `make -k check` goes on after a failure.
check: lint layout imports types rules

lint: env
	@$(PY) -m ruff check .

layout: env
	@$(PY) -m ruff format --check .

imports: env
	@$(VENV)/bin/lint-imports setup.cfg

types: env
	@$(PY) -m mypy
	@$(PY) -m mypy -p benchmarks

rules: env
	@$(PY) tests/house/rules.py

format: env
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@$(PY) tests/house/rules.py --fix

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment: as it is if its stamp is that of the pins, else built anew.
env:
	@if [ -x $(PY) ] && [ "$$($(PY) -c '$(PINS)' 2>/dev/null)" = "$$(cat $(STAMP) 2>/dev/null)" ]; then exit 0; fi; \
	for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	  if $$python -c '$(USABLE)' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  if command -v apt-get >/dev/null; then fix="sudo apt-get install python3 python3-venv"; \
	  elif command -v dnf >/dev/null; then fix="sudo dnf install python3.12"; \
	  elif command -v brew >/dev/null; then fix="brew install python@3.12"; \
	  else fix="conda create -n gyre python=3.12 && conda activate gyre"; fi; \
	  echo "make: missing: Python 3.11, 3.12 or 3.13 with venv; install it with: $$fix" >&2; exit 1; \
	fi; \
	echo "environment: building $(VENV) with $$($$found --version) (some minutes, once per change of the pins)"; \
	rm -rf $(VENV) && $$found -m venv $(VENV) && \
	$(PY) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) $(TORCH) && \
	$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --use-pep517 $(PIP_ARGS) -e '.[cpu,dev]' && \
	$(PY) -c '$(PINS)' > $(STAMP)
