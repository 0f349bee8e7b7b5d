# A fresh Debian needs python3 and make, nothing else: each target sets up what it uses,
# in .venv (and .bench-venv) next to the sources, and a second call skips what is done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .bench-venv
BATCH := 50
# test processes: more than there are cores, for most wait, and five used half of two cores
WORKERS ?= 8
COVERAGE := $(CURDIR)/.coverage-data

export PIP_DISABLE_PIP_VERSION_CHECK := 1
INSTALL := -m pip install --quiet --no-compile
# what builds is there already (.ci/venv); without, pip fetches it for each package
EDITABLE = $(BIN)/python $(INSTALL) --no-build-isolation --editable '$1' || \
  $(BIN)/python $(INSTALL) --editable '$1'
# on all cores, which pip does not. What no test imports is half of all; some packages
# have files for other versions of Python. Thousands of processes load these, and a
# setuptools that is only here to build; columns of code are a tenth of each file
NOT_IMPORTED := pip|mypyc?|typeshed|setuptools|pkg_resources|prompt_toolkit|wcwidth|jedi
NOT_IMPORTED := /($(NOT_IMPORTED)|lexers|styles|pymdownx|f2py|tests?|testing)/
COMPILE = find src $(VENV)/lib -name '*.py' | grep -Ev '$(NOT_IMPORTED)' | \
  PYTHONNODEBUGRANGES=1 xargs -P 0 -n 500 $(BIN)/python -m compileall -q >/dev/null || :; \
  rm -f $(VENV)/lib/*/site-packages/distutils-precedence.pth

.PHONY: help demo examples test packages tests format types style test-quick quick integrations matrix coverage docs zipapp bench gpu figures mutants soak clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    tag Alice's Adventures in Wonderland under weigh run; a report of it"
	@echo "make examples  the guides end to end, with spaCy, torch, Scalene (a GiB)"
	@echo "make test    style, types, import contract, tests (of root: most as a user)"
	@echo "make test-quick  the same, with the tests that take a minute in all"
	@echo "make integrations  those of make test that it does once, on the other schedulers"
	@echo "make matrix  the scheduler tests on each version of each scheduler (root, Debian)"
	@echo "make gpu     measure on a real NVIDIA GPU with torch: a table (8 minutes)"
	@echo "make coverage which lines and branches no test runs (some minutes longer)"
	@echo "make docs    the pages as a site, in site/; what is generated from the code"
	@echo "make zipapp  one file, dist/weigh.pyz, for machines without pip"
	@echo "make bench   compare weigh with other tools (an hour; BENCHMARK=\"--only peak,cost\")"
	@echo "make figures what fits, packs and runs cost, and how good they are"
	@echo "make mutants  changed figures of a module that its tests do not notice"
	@echo "make soak    a day in minutes: leaks, crowds, failing disks (some minutes)"
	@echo "make clean   remove what these made; records in .weigh stay"

demo: $(VENV)/.demo
	$(BIN)/weigh run --label alice --param batch_size=$(BATCH) -- \
	  $(BIN)/python examples/ner/tag.py examples/ner/alice.txt out.tsv $(BATCH)
	@$(BIN)/weigh report last -o $(CURDIR)/demo.html
	@printf '%s\n' '' 'Try next:' \
	  '  xdg-open demo.html                 the report with curves, in a browser' \
	  '  make demo BATCH=300                the same with a larger batch' \
	  '  export PATH=$$PWD/$(BIN):$$PATH      then, in this shell:' \
	  '  weigh request                      what to request from the scheduler' \
	  '  weigh run -- COMMAND               measure a program of yours' \
	  '  weigh help cheatsheet              one page of commands' \
	  'and docs/tutorial.md: ten minutes with weigh'

# -rs: what a machine lacks, such as a scheduler, is skipped with the reason
examples: $(VENV)/.examples
	@ci/packages.sh
	WEIGH_EXAMPLES=1 PATH="$(CURDIR)/$(BIN):$$PATH" \
	  ci/isolated.sh $(BIN)/python -m pytest tests/docs/examples -rs $(PYTEST)

# root's `make test` runs each test once, most of them as an ordinary user
EACH_ONCE := $(if $(DIRTY),,$(shell [ "$$(id -u)" -eq 0 ] && \
  unshare -mnpuif --mount-proc true 2>/dev/null && echo ci/each_once.sh))

# what needs one core runs next to what waits: a server, or a job of a test
test:
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.dev packages
	@$(MAKE) --no-print-directory format
	@$(MAKE) --no-print-directory -j 2 types tests

packages: $(VENV)/.made
	@ci/packages.sh

# -rs, --durations: what was skipped and why, and the slowest tests
tests: $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" ci/isolated.sh $(DIRTY) $(or $(EACH_ONCE),ci/pytest.sh) \
	  $(BIN)/python -n $(WORKERS) -rfEs --durations=10 -m "not integrations" $(PYTEST)

# what `make test` does once, with the other schedulers
integrations: $(VENV)/.dev packages
	PATH="$(CURDIR)/$(BIN):$$PATH" ci/isolated.sh $(DIRTY) ci/pytest.sh $(BIN)/python \
	  -n $(WORKERS) -rfEs --durations=10 -m integrations $(PYTEST)

style: format types
format: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/lint-imports

# what needs no scheduler, browser, terminal or compiler, and starts few processes
QUICK := tests/unit tests/laws/fuzz tests/docs/test_words.py tests/docs/test_docs_commands.py \
  tests/verbs/compare tests/verbs/report tests/verbs/sweep \
  $(wildcard tests/verbs/plan/test_plan_[cfnsw]*.py) \
  $(addprefix tests/verbs/submit/test_,job_scripts.py rounds.py scheduler_command.py \
  submit_checks.py submit_screen.py) \
  --ignore=tests/unit/staging --ignore=tests/unit/hooks \
  --ignore=tests/unit/estimate/test_scan_command.py \
  --deselect=tests/unit/measure/test_programs.py::test_a_live_virtual_machine_is_read_after_its_end \
  --ignore=tests/laws/fuzz/test_shell_against_bash.py \
  --ignore=tests/unit/measure/gpu --ignore=tests/unit/measure/region -m "not slurm and not gridengine"
test-quick: format
	@$(MAKE) --no-print-directory -j 2 types quick
quick: $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -q -n 2 \
	  $(QUICK) $(PYTEST)

# each version in a Debian of its own, kept in .cache/matrix; writes docs/schedulers.md
matrix: $(VENV)/.dev
	$(BIN)/python tools/matrix.py $(MATRIX)

docs: $(VENV)/.dev
	$(BIN)/python tools/reference.py .
	$(BIN)/zensical build --clean --strict

# one file that runs where pip is refused; ZIPAPP="3.12" for fewer versions of Python
zipapp: $(VENV)/.weigh
	$(BIN)/python tools/zipapp.py dist/weigh.pyz $(ZIPAPP)

bench: $(VENV)/.weigh $(BENCH)/.peers
	$(BIN)/python benchmarks/measure.py --peers $(BENCH)/bin $(BENCHMARK)

# no environment is set up: GPU_PYTHON has torch, click, msgspec and pytest; no network
GPU_PYTHON ?= python3
gpu:
	PYTHONPATH="$(CURDIR)/src:$$PYTHONPATH" $(GPU_PYTHON) tools/real_gpu.py $(GPU)

# real programs in a cgroup of the advised size: benchmarks/real_programs.py, as root
# weigh's own figures, a table each, in some minutes; FIGURES=--quick for fewer runs of exec
figures: $(VENV)/.dev
	for name in regions estimate estimate_history growth pack; do \
	  echo "## $$name"; $(BIN)/python benchmarks/$$name.py || exit; done
	@echo "## exec"
	$(BIN)/python benchmarks/exec.py $(FIGURES)

# one change of the source at a time: make mutants MODULE=estimate/fit.py \
#   TESTS=tests/unit/estimate MUTANTS="--each 2 --seed 7"
mutants: export PATH := $(CURDIR)/$(BIN):$(PATH)
mutants: $(VENV)/.dev
	$(BIN)/python tools/mutate.py $(MUTANTS) src/weigh/$(MODULE) $(or $(TESTS),tests/unit)

soak: $(VENV)/.dev
	WEIGH_FUZZ=long $(BIN)/python -m pytest -q -n 2 -m "hypothesis or long" tests
	$(BIN)/python soak/soak.py $(SOAK)
	ci/isolated.sh $(BIN)/python soak/heal.py
	ci/isolated.sh $(BIN)/python soak/heal.py --races 30

# with the tests that measure Python's own weight, which is another then: those may fail
coverage: export COVERAGE_FILE := $(COVERAGE)/data
coverage: $(VENV)/.dev
	rm -rf $(COVERAGE)
	mkdir -p $(COVERAGE)
	-PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/coverage run -m pytest $(PYTEST)
	$(BIN)/coverage combine -q $(COVERAGE)
	$(BIN)/coverage html -q -d $(COVERAGE)/html
	$(BIN)/coverage report

clean:
	rm -rf $(VENV) $(BENCH) build dist site .cache out.tsv demo.html .mypy_cache .ruff_cache .pytest_cache \
	  .hypothesis .import_linter_cache .coverage-data
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.made $(BENCH)/.made:
	@echo "setting up $(@D), once"
	@.ci/venv $(PYTHON) $(@D)
	@touch $@

$(VENV)/.weigh: $(VENV)/.made pyproject.toml
	$(call EDITABLE,.)
	$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(call EDITABLE,.[dev])
	$(COMPILE)
	@touch $@

$(VENV)/.demo: $(VENV)/.weigh examples/ner/requirements.txt
	$(BIN)/python $(INSTALL) --requirement examples/ner/requirements.txt
	@touch $@

$(VENV)/.examples: $(VENV)/.dev examples/ner/requirements.txt examples/torch_cpu/requirements.txt
	$(BIN)/python $(INSTALL) --requirement examples/ner/requirements.txt \
	  --requirement examples/torch_cpu/requirements.txt --editable '.[profile]'
	@touch $@

# one at a time: a peer that cannot be installed here is left out, not fatal
$(BENCH)/.peers: $(BENCH)/.made benchmarks/peers.txt
	@while read -r peer; do \
	  $(BENCH)/bin/python $(INSTALL) "$$peer" || echo "skipped: $$peer" >&2; \
	done < benchmarks/peers.txt
	@touch $@
