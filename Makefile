# Two commands do everything, set-up included: `make run` runs the main job, `make test` passes the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The lowest supported Triton is tested beside the one that pip chooses (the highest).
LOWEST_TRITON := 3.6.0
LOWEST := $(VENV)/triton-$(LOWEST_TRITON)
SCENARIO ?= scenarios/
# The one torch that the tests were run with.
TORCH ?= torch==2.13.0

.PHONY: setup run test test-core test-zoo test-lowest numerics faults oracle expected power doctor check format bench report clean

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[dev,bench,cutedsl,fa4,report]'
	touch $@

$(LOWEST)/ready: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --no-deps --target $(LOWEST) triton==$(LOWEST_TRITON)
	touch $@

run: setup
	$(BIN)/jitwarm run $(SCENARIO) --quick

# Two stages at a time, the output of each in one piece.
test: check $(LOWEST)/ready
	$(MAKE) --jobs=2 --output-sync=target test-zoo test-core test-lowest numerics

test-core: setup
	$(BIN)/python -m pytest -m 'not gpu' --ignore=tests/zoo

test-zoo: setup
	$(BIN)/python -m pytest -m 'not gpu' tests/zoo

# What depends on Triton, once more with the lowest version.
test-lowest: $(LOWEST)/ready
	PYTHONPATH=$(LOWEST) TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/zoo/numerics -m 'not gpu'
	PYTHONPATH=$(LOWEST) $(BIN)/python -m pytest -m 'triton and not gpu'

# Kernels against their references, in Triton's interpreter: a process of its own, because the interpreter replaces @triton.jit.
numerics: setup
	TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/zoo/numerics -m 'not gpu'

# Long: every state of small engines, replayed step by step, against the proof.
oracle: setup
	$(BIN)/python tests/zoo/oracle.py
	$(BIN)/python tests/zoo/oracle_v4.py

# Every known fault is found, and its twin is silent: one table.
faults: setup
	$(BIN)/jitwarm faults tests/faults

# The quick cases against their reviewed keys and counts: what a pull request runs.
expected: setup
	$(BIN)/jitwarm check $(SCENARIO) --quick

# How good `jitwarm compare` is on this machine: 12 minutes on 2 cores, on which nothing else may run.
power: setup
	$(BIN)/python -m measurements.power

doctor: setup
	$(BIN)/jitwarm doctor

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_architecture.py

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup
	$(BIN)/asv machine --yes
	$(BIN)/asv run 'HEAD^!' --show-stderr
	$(BIN)/asv publish

# What there is of results, of asv's history and of expectations, as one page.
report: setup
	$(BIN)/jitwarm report $(wildcard reports/out) --out reports/out/report.html \
		$(if $(wildcard reports/asv/results/*/*.json),--asv reports/asv/results) \
		$(if $(wildcard reports/expected/*.json),--expected reports/expected)

clean:
	rm -rf $(VENV) reports/out reports/asv build *.egg-info
