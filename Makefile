# Two commands do everything on a machine that has Python 3.11 and a C++ compiler: `make demo` and
# `make test`. Both make the virtual environment first if there is none. Tests of the report in a
# browser are skipped without Chromium (on Debian: apt-get install chromium).

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
CODE := schemas transforms trainer pipelines
CHECKED := $(CODE) tests examples benchmarks setup.py
WORK ?= build/bench-training

# Without cached bytecode every process that imports torch spends ten seconds on compiling it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv demo test lint types format reference bench bench-training bench-decoding clean

venv: $(INSTALLED)

# Made again when a pin, the build or a kernel changes; the Python folders are installed editable.
$(INSTALLED): setup.py pyproject.toml constraints.txt $(wildcard transforms/kernels/*)
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e ".[demo,dev]"
	touch $@

# English to Russian names: train, translate names never seen, report. See examples/names-enru.yaml.
demo: $(INSTALLED)
	$(BIN)/python examples/names.py --target ru --output runs/names-enru-data
	$(BIN)/rareword run examples/names-enru.yaml --output runs/names-enru --overwrite

test: lint types
	$(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)

# mypy gets the view that Python has after installation: the folders as packages below `rareword`.
types: $(INSTALLED)
	mkdir -p build/typecheck
	ln -sfn ../.. build/typecheck/rareword
	cd build/typecheck && $(abspath $(BIN))/mypy --config-file ../../pyproject.toml \
		$(addprefix -p rareword.,$(CODE))

format: $(INSTALLED)
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

# The tables of options in the user guide, after a change of options.
reference: $(INSTALLED)
	$(BIN)/python -m rareword.pipelines.reference docs/decode.md docs/training.md

# All tables of docs/benchmarks.md beside the peers, in one run: make bench TEXT=FILE
bench: $(INSTALLED)
	$(BIN)/python benchmarks/segmentation.py all --text "$(TEXT)" --json build/bench.json

# Training beside JoeyNMT: make bench-training SOURCE=train.en TARGET=train.de DEV_SOURCE=... DEV_TARGET=...
bench-training: $(INSTALLED)
	$(BIN)/python benchmarks/training.py --source "$(SOURCE)" --target "$(TARGET)" \
		--dev-source "$(DEV_SOURCE)" --dev-target "$(DEV_TARGET)" --work "$(WORK)" \
		--json build/bench-training.json

# Decoding beside JoeyNMT with the models that bench-training has left: make bench-decoding
bench-decoding: $(INSTALLED)
	$(BIN)/python benchmarks/decoding.py --work "$(WORK)" --json build/bench-decoding.json

clean:
	rm -rf build dist $(VENV) benchmarks/.peers benchmarks/.peers-training *.egg-info transforms/*.so
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
