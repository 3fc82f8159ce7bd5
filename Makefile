# Everything a newcomer, a reviewer or a machine needs. `make` alone lists it.
# PYTHON=python3.12 picks another interpreter for .venv; FULL=1 makes `make bench` take its time; TORCH=2.14.1 takes
# that torch, with the torchvision that belongs to it (0.29.1), in an environment of its own, .venv-2.14.1.

PYTHON ?= python3
VENV := .venv$(addprefix -,$(TORCH))
VISION = $(shell echo "$(TORCH)" | awk -F. 'NF == 3 { print "0." $$2 + 15 "." $$3 }')
VERSIONS := $(if $(TORCH),torch==$(TORCH) torchvision==$(or $(VISION),$(error TORCH is a whole version, as 2.14.1)))
INSTALL := PYTHON="$(PYTHON)" scripts/install $(VENV)
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
INSTALLED := $(VENV)/.installed
SITE := $(VENV)/.site
TOGETHER := --numprocesses auto --maxprocesses 8 --dist worksteal
AGAIN := --reruns 1 --reruns-delay 5 -r sR # a moment of load fails no suite of an hour; what needed a second run is listed

ALONE = $(shell grep --recursive --files-with-matches --include='test_*.py' 'mark\.alone' tests)

unexport PYTHONDONTWRITEBYTECODE # or each of some hundred processes that tests start would compile all of flatout anew

.PHONY: help install demo test test-full test-pages check bench test-gpu bench-gpu docs site clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo "TORCH=2.14.1 after any of these takes that torch and its torchvision, in .venv-2.14.1."

install: $(INSTALLED) ## make .venv with flatout and what its checks need

$(RUNS): pyproject.toml constraints.txt setup.py src/flatout/native/native.c src/flatout/watch/memory/memory.c src/flatout/probe/ticks.c src/flatout/optimizers/steps.c
	@$(INSTALL) demo $(VERSIONS)
	@touch $@

$(INSTALLED): $(RUNS)
	@$(INSTALL) demo,dev $(VERSIONS)
	@touch $@

demo: $(RUNS) ## diagnose, tune and train a bundled script that is slow in the usual ways
	@$(BIN)/flatout demo
	@command -v flatout > /dev/null || echo "The command flatout is $(BIN)/flatout here."

test: $(INSTALLED) ## every test that needs no GPU, fast and slow; those that measure time after the others, one at a time
	@status=0; \
	$(BIN)/python -m pytest $(TOGETHER) $(AGAIN) -m "not gpu and not alone and not pages" || status=1; \
	$(BIN)/python -m pytest $(AGAIN) -m "alone and not gpu" $(ALONE) || status=1; \
	exit $$status

test-full: ## the same with every example of the property tests, and the pages of the documentation
	@FLATOUT_TESTS=full $(MAKE) --no-print-directory test test-pages

test-pages: $(INSTALLED) ## the commands of the documentation that diagnose and tune, page by page
	@$(BIN)/python -m pytest -m pages tests/docs

check: $(INSTALLED) ## style, types, house rules and the fast tests: before every commit
	@echo "ruff check"          && $(BIN)/ruff check --quiet --output-format concise
	@echo "ruff format --check" && $(BIN)/ruff format --check --quiet
	@echo "mypy"                && $(BIN)/mypy --no-error-summary
	@echo "pytest, fast tests"  && $(BIN)/python -m pytest --quiet $(TOGETHER) -m "not slow and not gpu and not alone"

bench: $(INSTALLED) ## the figures we claim, measured on this machine's CPU
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/account.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/planted.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/sabotage.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/honest.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/changes.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/checkpoints.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/cpu_resnet.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/power.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/false_wins.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/resume.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/run_overhead.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/compiled_code.py
	$(BIN)/python benchmarks/input_pipeline.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/mnist_guide.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/ladder.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/headroom.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/whole.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/whole_training.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/files.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/frameworks.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/gate.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/patches.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/patch_speed.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/report_scale.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/hosts.py $(if $(FULL),,--quick)

test-gpu: $(INSTALLED) ## the tests that need a CUDA device; says so and stops where there is none
	@scripts/on-gpu tests/gpu $(BIN)/python -m pytest -m gpu tests/gpu

bench-gpu: $(INSTALLED) ## the figures on this machine's GPU; says so and stops where there is none
	@scripts/on-gpu benchmarks/gpu.py $(BIN)/python benchmarks/gpu.py
	@scripts/on-gpu benchmarks/gpu_faults.py $(BIN)/python benchmarks/gpu_faults.py

docs: $(INSTALLED) ## write docs/rules, docs/fixes and docs/reference from the code, docs/benchmarks.md from the histories
	@$(BIN)/python scripts/docs
	@$(BIN)/python scripts/benchmarks-page

$(SITE): $(INSTALLED)
	@$(INSTALL) demo,dev,docs $(VERSIONS)
	@touch $@

site: $(SITE) docs ## build the documentation site into build/site; open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

clean: ## remove what checks and builds left; .venv and its like stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	@find src tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
