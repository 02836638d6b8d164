# `make demo` for the main job, `make test` for everything that CI checks. Each target does its own set-up.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint bench figures clean

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

help:
	@echo "make demo      evaluate three designs end to end and write a report"
	@echo "make test      lint, types, import contracts, tests"
	@echo "make test-all  the same with the long tests"
	@echo "make bench     speed against physical limits and peers, as ratios of one run"
	@echo "make figures   make stale figures, tables and pictures of README and docs again"
	@echo "make install   .venv with everything that the tests need"
	@echo "make clean     remove what these targets made"

install: $(READY)

# PyTorch first and by its exact version, so that no other requirement can pull in another build of it.
$(READY): pyproject.toml evidence/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[plot,schedule,search,rtl,serial,opencl,models,dev]' --editable ./evidence
	# Chakra's traces need protobuf alone; what else the package asks for draws pictures.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps mlc-chakra
	touch $@

demo: install
	$(BIN)/presilicon evaluate edge-fp32 edge-bf16 edge-fp8 --workload digits-cnn --seeds auto

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

test-all: lint
	$(BIN)/pytest -n 2 --dist worksteal -m 'not gpu'

bench: install
	$(BIN)/python benchmarks/bench_formats.py --peers
	$(BIN)/python benchmarks/bench_matmul.py
	$(BIN)/python benchmarks/bench_emulation.py --peers
	$(BIN)/python benchmarks/bench_instrument.py
	$(BIN)/python benchmarks/bench_instrument_training.py
	$(BIN)/python benchmarks/bench_scheduling.py
	$(BIN)/python benchmarks/bench_opencl.py

figures: install
	$(BIN)/python tools/figures.py make

clean:
	rm -rf .venv build runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
