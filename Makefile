# One command for each habit. `make demo` and `make test` set everything up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: rtx gpu demo docs test test-all behaviour pictures format lint types check bench faults fuzz clean

demo: $(VENV)/.installed
	$(BIN)/winnow examples/overflow.yaml

# the docs as a site that needs no server: site/index.html
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# one test of each behavior; `make test-all` adds those that take long: more cases of the same, long matrices, and builds
# with TensorRT for RTX. CI runs these tests and a twentieth of the long ones
MARKED ?= -m "not slow"
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto --dist worksteal $(MARKED)

test-all: MARKED =
test-all: test

# what a user sees of forty runs is written down anew, and what is different is printed: tests/behaviour
behaviour: $(VENV)/.installed-dev
	$(BIN)/python -m tests.behaviour

# what a terminal shows of a triage, as the guide links it (a test says when it is stale); needs tmux
pictures: $(VENV)/.installed-dev
	$(BIN)/python -m tests.report.terminal_captures --triage --into docs/pictures --widths 80 120

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

check: MARKED =
check: lint types test

# beside polygraphy, which is installed into a folder of its own, and searches by themselves: benchmarks/results/README.md
bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.beside_peer
	$(BIN)/python -m benchmarks.searches
	$(BIN)/python -m benchmarks.random_faults
	$(BIN)/python -m benchmarks.node_cases

faults: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.faults

# hostile and malformed files, and check scripts as people write them, by the hundred
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.malformed
	$(BIN)/python -m benchmarks.hostile_inputs
	$(BIN)/python -m benchmarks.hostile_configs
	$(BIN)/python -m benchmarks.check_scripts

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Winnow needs Python 3.10 to 3.13; name one: make PYTHON=python3.12 ...") if not (3, 10) <= sys.version_info[:2] <= (3, 13) else 0'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed

# TensorRT for RTX, whose builder runs on a CPU, beside the rest: its tests skip without it
rtx: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --editable '.[tensorrt-rtx]'

# all tests that need a GPU, and one table of them; with 2 and one line where there is none
gpu: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.gpu_tests

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
