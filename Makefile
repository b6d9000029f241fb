# Needs Python 3.10 or newer with venv, g++, make and a network; all else is installed into .venv.
#
#   make train   train over an emulated slow link, three ways, and compare (DATA=path, ARGS="--steps 100")
#   make test    run every test
#   make setup   environment, dependencies and build, without running anything
#   make bench   measure, and write result files into benchmarks/ (PROFILES=folder of published runs;
#                as root also over a real slow link)
#   make lint    check format, style and types
#   make format  repair the format
#   make clean   remove what was built; the environment (.venv) stays
#
# Recipes print a line each; what they hide is shown when they fail. All paths are relative, so that a
# checkout may lie in a folder with spaces.

PYTHON ?= python3
BUILD := build/dev
BIN := .venv/bin
JOBS := $(shell nproc)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# However CMake is started: Ninja, and ccache where there is one.
export CMAKE_GENERATOR := Ninja
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(shell command -v ccache)
export CXX
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PATH := $(CURDIR)/$(BIN):$(PATH)

find = $(sort $(shell find $(wildcard $(1)) -name $(2)))
cpp_files := $(call find,include src tests examples,'*.h') $(call find,src tests examples,'*.cc')
lane_sources := $(shell sed -n 's/^set(lane_sources \(.*\))/\1/p' CMakeLists.txt)
linted_sources := $(call find,src/core,'*.cc') $(addprefix src/runtime/,$(lane_sources))
on_profiles := planning search
as_root := slow_link
package_files := pyproject.toml README.md LICENSE CMakeLists.txt \
  $(call find,cmake,'*.cmake') $(call find,include src,'*.h') $(call find,src,'*.cc') $(call find,python,'*.py*')
benchmarks := $(filter-out $(as_root) $(on_profiles),$(basename $(notdir $(shell grep -l __main__ benchmarks/*.py))))
test_files := $(call find,tests,'*.cc') $(call find,tests,'*.h')

.PHONY: help
help:
	sed -n 's/^#   //p' Makefile

.PHONY: setup
setup: .venv/package $(BUILD)/tests

.PHONY: train
train: .venv/package
	$(BIN)/dreamddp train $(if $(DATA),--data "$(DATA)") $(ARGS)

.PHONY: test
test: setup
	status=0
	$(BIN)/python -m pytest -q -n $(JOBS) $(ARGS) || { echo "pytest: exit code $$?"; status=1; }
	ctest="$(BIN)/ctest --test-dir $(BUILD) --output-on-failure --timeout 120 -j $(JOBS) --no-tests=error"
	$$ctest | grep -Ev '^ *Start | Passed ' || $$ctest --rerun-failed || status=1
	exit $$status

.PHONY: bench
bench: .venv/package
	for name in $(benchmarks); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name; done
	for name in $(if $(PROFILES),$(on_profiles)); do
	  echo "== $$name"; $(BIN)/python -m benchmarks.$$name "$(PROFILES)"
	done
	for workers in $(if $(filter 0,$(shell id -u)),2 4); do
	  for name in $(as_root); do
	    echo "== $$name, $$workers workers"; $(BIN)/python -m benchmarks.$$name --workers $$workers
	  done
	done

# The environment, step by step; each is done again only when what it depends on has changed.

.venv/created: scripts/check-system
	scripts/check-system "$(PYTHON)" "$(CXX)"
	scripts/quietly "Creating the environment .venv" "$(PYTHON)" -m venv .venv
	touch $@

.venv/dependencies: requirements/setup.txt .venv/created
	scripts/quietly "Installing dependencies" $(BIN)/python -m pip install -r requirements/setup.txt
	touch $@

.venv/package: .venv/dependencies $(package_files)
	scripts/quietly "Building and installing dreamddp (minutes the first time)" $(BIN)/python -m pip install \
	  --no-build-isolation --no-deps --config-settings=build-dir=$(BUILD) .
	touch $@

$(BUILD)/tests: .venv/package $(test_files)
	scripts/check-googletest "$(CXX)"
	scripts/quietly "Building the C++ tests" bash -c 'cmake -S . -B $(BUILD) -DDREAMDDP_BUILD_TESTS=ON &&
	  cmake --build $(BUILD) --target core_tests lane_tests'
	touch $@

.venv/linters: requirements/lint.txt .venv/dependencies
	scripts/quietly "Installing linters" $(BIN)/python -m pip install -r requirements/lint.txt
	touch $@

.PHONY: lint
lint: .venv/linters
	status=0
	check() { "$${@:2}" && echo "$$1: passed" || { echo "$$1: FAILED"; status=1; }; }
	check "clang-format" clang-format --dry-run -Werror $(cpp_files)
	check "ruff format" ruff format --check -q
	check "ruff" ruff check -q
	mypy --no-error-summary & mypy=$$!
	scripts/quietly "Configuring for clang-tidy" cmake -S . -B build/lint -DDREAMDDP_BUILD_TESTS=OFF \
	  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python"
	check "clang-tidy" xargs -P $(JOBS) -n 1 clang-tidy -p build/lint --quiet --warnings-as-errors='*' \
	  <<< '$(linted_sources)'
	check "mypy" wait $$mypy
	exit $$status

.PHONY: format
format: .venv/linters
	clang-format -i $(cpp_files)
	ruff check -q --fix-only
	ruff format -q

.PHONY: clean
clean:
	rm -rf build dist .venv/package .mypy_cache .ruff_cache .pytest_cache .hypothesis
