# Every target sets itself up: a CPython 3.11 or newer with pip is all that has to be there.
VENV := .venv
PY := $(VENV)/bin/python
# An activated environment's Python may have no pip, as .venv's has none: what it was made from comes first.
BASE_PYTHON := $(shell for p in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
  base=$$("$$p" -c 'import sys; print(sys._base_executable)' 2>/dev/null) || continue; for q in "$$base" "$$p"; do \
  "$$q" -c 'import sys; from importlib.util import find_spec; sys.exit(sys.version_info < (3, 11) or not find_spec("pip"))' \
  2>/dev/null && echo "$$q" && exit; done; done)
PYTEST_ARGS ?=

# The first target is what a bare 'make' does.
help:
	@echo 'Each target sets itself up (.venv, a minute or two the first time). Durations: two cores.'
	@echo '  make demo       trains a network on handwritten digits, saves it, predicts elsewhere    10 s'
	@echo '  make test       all tests; PYTEST_ARGS=tests/lod for a part, WORKERS=2                   20 min'
	@echo '  make lint types format    ruff, mypy                                                     10 s, 2 min'
	@echo '  make bench      steps and first steps against JAX, and Paddle where found               20 min'
	@echo '  make performance  docs/performance.md; PARTS="streams growth" for some; SHORT=1 tries it    90 min'
	@echo '  make golden     recordings of Paddle 1.8.5; GOLDEN=FOLDER for others                     minutes'
	@echo '  make prove      random programs against finite differences; SECONDS=3600'
	@echo '  make fuzz       hostile files and kills; SECONDS=1800 for each target'
	@echo '  make kills      jobs that lose a process at random moments; TIMES=20 of each kind'
	@echo '  make notebooks  executes the notebooks and stores what they show; NAMES=ragged_data      3 min'
	@echo '  make docs       builds the site into build/site                                          1 min'
	@echo '  make coverage   writes docs/coverage.md                                                  1 min'
	@echo '  make clean      removes the environment and what was built'

.PHONY: help test demo lint types format bench performance coverage golden prove fuzz kills docs notebooks clean

# A file's tests share what they compiled, so each file is one worker's, in the folders' order: else the files of one long
# test come last. A worker takes up to 6 GB.
WORKERS ?= 2
test: $(VENV)/.with-test
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

demo: $(VENV)/.with-demo
	$(PY) -m demo

lint: $(VENV)/.with-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.with-dev
	$(PY) -m mypy

format: $(VENV)/.with-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(VENV)/.with-test
	$(PY) -m benchmarks

# PARTS names some of: one all streams growth imports. SHORT=1 shows that all of it works, in build/performance.
performance: $(VENV)/.with-test
	$(PY) -m benchmarks.page $(if $(SHORT),--short) $(if $(PARTS),--parts $(PARTS))

coverage: $(VENV)/.with-test
	$(PY) -m tools.coverage

# GOLDEN=<folder with ops/ and zoo/> runs a whole recording folder instead of the copy in tests/golden/data.
golden: $(VENV)/.with-test
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.ops
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.zoo
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.padding
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.lower
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.c
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.modules
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.passes
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.doors
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.stablehlo
	FLUIDJAX_GOLDEN=$(GOLDEN) $(PY) -m tests.golden.scripts

# Random programs against jax.grad, finite differences and exact rows, for SECONDS.
prove: $(VENV)/.with-test
	$(PY) -m tests.gradcheck.sweep --seconds $(or $(SECONDS),3600)

# SECONDS for each target; the tests run each for one.
SECONDS ?= 1800
fuzz: $(VENV)/.with-test
	FUZZ_SECONDS=$(SECONDS) $(PY) -m pytest tests/fuzz tests/crash $(PYTEST_ARGS)

# Jobs that lose a process at random moments, and have to end as if nobody had; TIMES of each kind.
TIMES ?= 20
kills: $(VENV)/.with-test
	$(PY) -m tools.kills --job trainers --times $(TIMES)
	for mode in async half_async geo; do for victim in server trainer; do \
	$(PY) -m tools.kills --job servers --times $(TIMES) --mode $$mode --victim $$victim || exit 1; done; done

# The site, in build/site; a broken link, a bad docstring or a misspelt word fails.
docs: $(VENV)/.with-docs
	$(PY) -m codespell_lib README.md CONTRIBUTING.md CHANGELOG.md docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet -f tools/mkdocs.yml

# Executed from top to bottom; what they show is stored in them.
notebooks: $(VENV)/.with-notebooks
	$(PY) -m tools.notebooks $(NAMES)

# The tests also execute the notebooks and the demo, so 'test' installs what they need.
EXTRAS_test := test,demo
EXTRAS_demo := demo
EXTRAS_dev := dev
EXTRAS_docs := docs
EXTRAS_notebooks := test,demo,notebooks

$(VENV)/.with-%: pyproject.toml | $(PY)
	"$(BASE_PYTHON)" -m pip --python $(PY) install --quiet --disable-pip-version-check -e '.[$(EXTRAS_$*)]'
	touch $@

# '--without-pip' because some systems ship venv without ensurepip; the base pip installs into it instead.
$(PY):
	@test -n "$(BASE_PYTHON)" || { echo "make: no CPython >= 3.11 with pip found; set PYTHON=/path/to/python3.11"; exit 1; }
	"$(BASE_PYTHON)" -m venv --without-pip $(VENV)

clean:
	rm -rf $(VENV) build dist demo_output .pytest_cache .mypy_cache .ruff_cache
