# `make help` lists what a person types, and every `make check-NAME`: name, one line of help and command are in one place.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.PHONY: help build test demo demo-begin bench wheel cuda analysis clean deps configure test-build asan-build tsan-build cuda-build
.PHONY: $(shell sed -n 's/^\(check-[a-z-]*\):.*/\1/p' Makefile)

# ccache makes rebuilding fast where it is installed; it is not needed.
LAUNCHER := $(if $(shell command -v ccache),-D CMAKE_CXX_COMPILER_LAUNCHER=ccache)
FSDPBENCH := build/bin/fsdpbench
# Shows errors and the end; the rest goes into the log that follows.
QUIETLY := src/cmake/quietly.sh
PYTHON := /usr/bin/python3 -B
# $(call made,TARGETS): builds them in build/.
made = @$(QUIETLY) build/build.log cmake --build build --target $(1)

help:
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf 'make %-24s %s\n' "$$name" "$$text"; done

build: configure  ## the program, as build/bin/fsdpbench (installs what is missing)
	$(call made,fsdpbench)

demo-begin:
	@[ -x $(FSDPBENCH) ] || echo "The program is built first: 3 to 10 minutes on 2 to 16 cores, seconds where it is built already."

# Computation is emulated, so that the demo shows the same on a busy machine: ranks that really compute share its cores.
demo: demo-begin build  ## build, then the quickstart with and without prefetching
	@$(PYTHON) src/cmake/demo.py $(FSDPBENCH) profiles/runs/quickstart.toml

test: test-build  ## build everything and pass all tests
	@$(MAKE) --no-print-directory analysis || echo "make analysis failed: the Python package's tests are skipped."
	@$(QUIETLY) build/test.log ctest --preset default

bench: check-benches  ## the speed programs, with the ratios they print
	@for program in $$(ls build/bin/bench_* | grep -v bench_fsdp); do echo "== $$program =="; $$program || exit 1; done
	build/bin/bench_fsdp --sweep model-batch-ranks --benchmark_filter=llama3.2-1b/train.batch_per_rank:1/
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 2 --bind-to none build/bin/bench_collectives_processes

analysis: .venv/installed  ## the Python package, into .venv (from PyPI: matplotlib, numpy, pandas)

# WHEEL_BUILD=build packs the program that `make build` made, for processors like this one: what CI does.
WHEEL_BUILD := build-wheel
wheel: build/wheel-venv/installed  ## what pip installs, in dist: for every Linux of this glibc or a newer one
	@$(QUIETLY) build/wheel.log src/cmake/make-wheel.sh $(WHEEL_BUILD) dist

# CUDA_BUILD=build adds CUDA to what `make test` has built: the program's own libraries are not compiled again.
CUDA_BUILD := build-cuda
cuda: cuda-build  ## the CUDA backend in build-cuda, and its tests that need no GPU (needs CUDA, NCCL, cuDNN)
	@$(QUIETLY) $(CUDA_BUILD)/test.log ctest --test-dir $(CUDA_BUILD) --output-on-failure --no-tests=error -j 4 \
	  --label-exclude '^gpu$$'  # as the preset, whose folder is always build-cuda

clean:  ## remove the build folders
	rm -rf build build-asan build-tsan build-cuda build-mutants build-wheel dist

# Checks beside `make test`. .ci/run has those that every change must pass; the others take long or record anew.

# `tests/under_load ctest --preset default` for all tests. (The sanitizers' threads are slowed down as well.)
check-under-load: test-build  ## tests of processes once more, while other processes keep all cores busy
	@$(QUIETLY) build/under-load.log tests/under_load ctest --preset default --label-regex '^(launch|processes)$$'

check-headers: configure  ## every header without a source by itself through the compiler
	$(call made,header_tests)

check-benches: configure  ## the speed programs compile
	$(call made,benches)

# What a sanitizer is asked is in tests/CMakeLists.txt and, for parts of a program, beside it (SANITIZED).
check-asan: asan-build  ## tests with the address and undefined-behaviour sanitizers, in build-asan
	@$(QUIETLY) build-asan/test.log ctest --preset asan

check-tsan: tsan-build  ## tests with the thread sanitizer, in build-tsan
	@$(QUIETLY) build-tsan/test.log ctest --preset tsan

check-wheel: build  ## packs the built program, installs it into an empty environment and uses it
	@$(MAKE) --no-print-directory wheel WHEEL_BUILD=build
	$(PYTHON) tests/wheel/wheel_test.py dist/fsdpbench-*.whl

check-hta: build  ## our metrics against HolisticTraceAnalysis (from PyPI)
	$(call made,corpus_files)
	FSDPBENCH_HTA=1 ctest --preset default --label-regex '^hta$$'

# make test tries them; what it lacks are the schemas, which PyPI has and Debian does not.
check-recipes: build build/recipes-venv/installed  ## docs/recipes against the schemas of Kubernetes and GitHub
	build/recipes-venv/bin/python -B tests/recipes/recipes_test.py $(FSDPBENCH) . -k schema

check-site: build/site-venv/installed  ## docs/ as a site with search, in build/site; links that lead nowhere fail
	@NO_MKDOCS_2_WARNING=1 build/site-venv/bin/mkdocs build --strict --config-file analysis/mkdocs.yml

# Less than two minutes of one core, most of them for programs that train.
check-gpu-rehearsal: cuda-build  ## the four calls of tests/gpu/run, packed, on stand-ins for GPUs
	@$(QUIETLY) $(CUDA_BUILD)/build.log cmake --build $(CUDA_BUILD) --target rehearsal_programs
	@$(QUIETLY) $(CUDA_BUILD)/gpu-rehearsal.log tests/gpu/rehearsal/rehearse.py $(abspath $(CUDA_BUILD))

# Needs the toolkit, and no build; some hundred MB from PyPI.
check-cuda-headers: deps  ## the CUDA backend against headers of NCCL 2.19 to 2.30 and CUDA 12.8 to 13.3
	$(PYTHON) tests/cuda_headers.py build-cuda/headers

# The long tests, too. `python3 tests/faults/campaign.py --help`: one case alone, another seed, another build.
check-faults: build  ## full disks, kills, signals, strangers, limits; and 500 random faults
	@FSDPBENCH_FAULTS=all $(QUIETLY) build/faults.log ctest --preset default --label-regex '^faults$$'
	$(PYTHON) tests/faults/campaign.py $(FSDPBENCH) . --cases 500

# One at a time: what is planted are differences of speed. As root, or where user namespaces are allowed.
check-accept-faults: build  ## forty faults for accept to find: 19 of 20 named right, none passes
	$(PYTHON) tests/faults/campaign.py $(FSDPBENCH) . --of accept --cases 42 --jobs 1

check-checkpoint-faults: build  ## thirty trainings, each killed twice: what is complete loads
	$(PYTHON) tests/faults/campaign.py $(FSDPBENCH) . --of checkpoint --cases 30

# 270 of them, with a floor for six rooms. `python3 tests/mutants/mutants.py --help`: another seed, lines that changed.
check-mutants: deps  ## changes one line at a time: do the tests notice? (hours)
	$(if $(LAUNCHER),CMAKE_CXX_COMPILER_LAUNCHER=ccache) $(PYTHON) tests/mutants/mutants.py

# Two at a time, as there are two cores on a small machine.
FUZZ_S := 60
FUZZED := profile sweep cluster trace job xla result trials launch
check-fuzz: deps  ## damaged files for each parser, FUZZ_S seconds, under the address sanitizer
	@cmake --preset asan $(LAUNCHER) --log-level=WARNING >/dev/null
	@$(QUIETLY) build-asan/build.log cmake --build build-asan --target $(FUZZED:%=fuzz_%)
	printf '%s\n' $(FUZZED) | xargs -P 2 -I {} sh -c 'build-asan/bin/fuzz_{} . $(FUZZ_S)'

# Cases FIRST to FIRST + CASES - 1; one alone is `build/bin/random_configs . 1 NUMBER 1`.
CASES := 100000
FIRST := 1
check-random-configs: configure  ## random configurations of all keys through run, simulate, traces and export
	$(call made,random_configs)
	build/bin/random_configs . $(CASES) $(FIRST)

# PyTorch on CPUs: 5 GB from PyPI. Another one than the pinned: PEER_PYTHON=/its/python make check-peer.
PEER_VENV := build/peer-venv
PEER_PYTHON ?= $(PEER_VENV)/bin/python
PEER_READY := $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
PEER = cd tests/peer && FSDPBENCH_PROGRAM=$(abspath $(FSDPBENCH)) $(abspath $(PEER_PYTHON)) -B -Wignore
PEER_PARSERS = $(PEER_PYTHON) -m pip install --quiet --disable-pip-version-check -r tests/peer/parsers-requirements.txt

# Each twelfth configuration once more, against what is stored: the versions of all packages are fixed.
check-peer: build $(PEER_READY)  ## does PyTorch still do what is stored? A twelfth of the configurations
	$(PEER) record.py recorded --check 12
	$(PEER) exported.py recorded --check 12
	$(PEER) profiles.py recorded --check
	$(PEER) eager_loss.py
	$(PEER) parsers.py
	$(PEER) in_job.py --case accelerate-fsdp2

check-peer-all: build $(PEER_READY)  ## records anew what PyTorch's FSDP does on CPUs, and compares
	$(call made,peer_test)
	for script in record train train_tensor; do $(PEER) $$script.py recorded && cd ../.. || exit 1; done
	$(PEER) exported.py recorded $(abspath $(FSDPBENCH))
	for script in profiles allocator; do $(PEER) $$script.py recorded && cd ../.. || exit 1; done
	build/bin/peer_test

# Times are in them, so they are new each time.
check-peer-traces: configure $(PEER_READY)  ## records small traces of PyTorch's profiler anew, and reads them
	$(call made,foreign_test)
	$(PEER) profiled.py recorded
	build/bin/foreign_test --gtest_filter='*Recorded*'

check-peer-parsers: $(PEER_READY)  ## DeepSpeed, Accelerate, torchtitan … read what export writes for them
	$(PEER_PARSERS)
	$(PEER) parsers.py
	$(PEER) profiles.py ../../analysis/tests/data --models

# DeepSpeed compiles an extension of its own first, which takes a minute.
check-peer-deepspeed: configure $(PEER_READY)  ## records what DeepSpeed's ZeRO does on CPUs, and compares
	$(PEER_PARSERS)
	$(call made,peer_test)
	$(PEER) deepspeed_record.py recorded
	build/bin/peer_test --gtest_filter='*DeepSpeed*'

check-peer-job: build $(PEER_READY)  ## fsdpbench.torch and watch in real jobs of PyTorch, with late and stopped ranks
	$(PEER) in_job.py
	$(PEER) in_job.py --cost --case fsdp2 --case fsdp1 --case ddp
	$(PEER) watched.py

check-peer-bench: build $(PEER_READY)  ## step times beside PyTorch's FSDP2, FSDP1 and DDP over gloo, in turns
	$(PEER) bench.py $(abspath $(FSDPBENCH)) --out $(abspath build/peer-bench.json)

# Steps of the targets above.

deps:
	@src/cmake/install-debian-packages.sh

configure: deps
	@cmake --preset default $(LAUNCHER) --log-level=WARNING >/dev/null

test-build: configure
	@$(QUIETLY) build/build.log cmake --build build

asan-build tsan-build: %-build: deps
	@cmake --preset $* $(LAUNCHER) --log-level=WARNING >/dev/null
	@$(QUIETLY) build-$*/build.log cmake --build build-$*

cuda-build: deps
	@src/cmake/fetch-cudnn-frontend.sh $(CUDA_BUILD)
	@cmake --preset cuda -B $(CUDA_BUILD) $(LAUNCHER) $(subst CXX,CUDA,$(LAUNCHER)) --log-level=WARNING >/dev/null
	@$(QUIETLY) $(CUDA_BUILD)/build.log cmake --build $(CUDA_BUILD) --target all benches

# Environments of Python, made again when what they need changes. The package itself is used from where it is.
build/recipes-venv/installed: tests/recipes/requirements.txt
build/peer-venv/installed: tests/peer/requirements.txt
build/site-venv/installed: analysis/site-requirements.txt
build/wheel-venv/installed: src/cmake/wheel-requirements.txt
.venv/installed: analysis/requirements.txt
build/recipes-venv/installed build/peer-venv/installed build/site-venv/installed build/wheel-venv/installed .venv/installed:
	@src/cmake/install-debian-packages.sh
	/usr/bin/python3 -m venv $(if $(findstring recipes,$@),--system-site-packages) $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	$(if $(filter .venv/%,$@),echo $(abspath analysis) >$$(echo .venv/lib/python3*/site-packages)/fsdpbench.pth)
	@touch $@
