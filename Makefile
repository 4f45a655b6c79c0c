# `make help` lists what a person types, and every `make check-NAME`: name, one line of help and command are in one place.
.DEFAULT_GOAL := help
.PHONY: help deps configure build test test-build under-load headers demo bench-build bench analysis wheel wheel-test site report gallery hta accept-faults checkpoint-faults peer peer-check peer-parsers peer-deepspeed peer-job peer-bench random-configs check-mutants recipes asan asan-build tsan tsan-build fuzz faults cuda cuda-build gpu-rehearsal cuda-headers clean

# ccache makes rebuilding fast where it is installed; it is not needed.
LAUNCHER := $(if $(shell command -v ccache),-D CMAKE_CXX_COMPILER_LAUNCHER=ccache)
FSDPBENCH := build/bin/fsdpbench
# Shows errors and the end; the rest goes into the log that follows.
QUIETLY := src/cmake/quietly.sh
PYTHON := /usr/bin/python3 -B
# $(call made,TARGETS): builds them in build/.
made = @$(QUIETLY) build/build.log cmake --build build --target $(1)

help:
	@echo "make demo    install what is missing, build, and run the quickstart with and without prefetching"
	@echo "make build   the program, as build/bin/fsdpbench (installs what is missing)"
	@echo "make test    build everything and pass all tests"
	@echo "make under-load  the tests of processes and of what joins them once more, while other processes keep all cores busy"
	@echo "make headers  every header without a source on its own through the compiler"
	@echo "make bench   the speed programs, with the ratios they print"
	@echo "make analysis  the Python package that draws reports, into .venv (downloads matplotlib, numpy, pandas and mcp from PyPI)"
	@echo "make wheel   what pip installs, in dist (scikit-build-core and auditwheel from PyPI, into build/wheel-venv)"
	@echo "make wheel-test  packs what make build has made, installs that into an empty environment and uses it"
	@echo "make site    docs/ as a site of HTML pages with search, in build/site (MkDocs Material from PyPI)"
	@echo "make report  a report page of the quickstart, in runs/quickstart-report"
	@echo "make gallery the pictures of docs/gallery.md, by the commands printed there (needs chromium)"
	@echo "make hta     compare with HolisticTraceAnalysis, downloaded from PyPI into build/hta-venv"
	@echo "make peer    record what PyTorch's FSDP does on CPUs, and compare (5 GB from PyPI into build/peer-venv)"
	@echo "make peer-check  does PyTorch still do what is stored? a twelfth of the configurations"
	@echo "make peer-traces  small traces of PyTorch's own profiler, recorded anew, and read"
	@echo "make peer-parsers  DeepSpeed, Accelerate, torchtitan … read what export writes for them (from PyPI)"
	@echo "make peer-job  fsdpbench.torch in real jobs of PyTorch on CPUs: explained traces, timed steps, late ranks named, a stopped one found by watch"
	@echo "make peer-deepspeed  record what DeepSpeed's ZeRO does on CPUs, and compare"
	@echo "make recipes  docs/recipes against the schemas of Kubernetes and GitHub (from PyPI)"
	@echo "make peer-bench  step times beside PyTorch's FSDP2, FSDP1 and DDP over gloo, in turns"
	@echo "make asan    tests with the address and undefined-behaviour sanitizers (in build-asan)"
	@echo "make tsan    tests with the thread sanitizer (in build-tsan)"
	@echo "make faults  full disks, kills, signals, strangers, limits: all tests of tests/faults, and 500 random faults"
	@echo "make accept-faults  forty faults in real processes for accept to find: 19 of 20 named right, none passes"
	@echo "make checkpoint-faults  a training is killed at sixty random moments of saving and training: what is complete loads"
	@echo "make fuzz    each parser gets damaged files for a minute (FUZZ_S seconds), under the address sanitizer"
	@echo "make random-configs  random configurations of all keys through run, simulate, explain, traces and export (CASES, FIRST)"
	@echo "make check-mutants  changes one line at a time and runs the tests: nine of ten changes must be noticed (hours)"
	@echo "make cuda    the program and its CUDA backend, in build-cuda, with the tests that need no GPU (needs the CUDA toolkit,"
	@echo "             NCCL and cuDNN; downloads the headers of cudnn-frontend from PyPI)"
	@echo "make gpu-rehearsal  the four calls of tests/gpu/run on stand-ins: packed, and without this source tree"
	@echo "make cuda-headers  compiles the CUDA backend against the headers of NCCL 2.19 to 2.30 and CUDA 12.8 to 13.3, downloaded"
	@echo "             from PyPI (some hundred MB) into build-cuda/headers"
	@echo "make deps    only install the Debian packages listed in src/cmake/debian-packages.txt"
	@echo "make clean   remove the build folders"

deps:
	@src/cmake/install-debian-packages.sh

configure: deps
	@cmake --preset default $(LAUNCHER) --log-level=WARNING >/dev/null

test-build: configure
	@$(QUIETLY) build/build.log cmake --build build

asan-build tsan-build: %-build: deps
	@cmake --preset $* $(LAUNCHER) --log-level=WARNING >/dev/null
	@$(QUIETLY) build-$*/build.log cmake --build build-$*

# Two at a time, as there are two cores on a small machine.
FUZZ_S := 60
fuzz: deps
	@cmake --preset asan $(LAUNCHER) --log-level=WARNING >/dev/null
	@$(QUIETLY) build-asan/build.log cmake --build build-asan \
	  --target fuzz_profile fuzz_sweep fuzz_cluster fuzz_trace fuzz_job fuzz_result fuzz_trials fuzz_launch
	printf '%s\n' profile sweep cluster trace job result trials launch | xargs -P 2 -I {} sh -c 'build-asan/bin/fuzz_{} . $(FUZZ_S)'

# Cases FIRST to FIRST + CASES - 1; one alone is `build/bin/random_configs . 1 NUMBER 1`.
CASES := 100000
FIRST := 1
random-configs: configure
	@$(QUIETLY) build/build.log cmake --build build --target random_configs
	build/bin/random_configs . $(CASES) $(FIRST)

# 270 of them, with a floor for six rooms. `python3 tests/mutants/mutants.py --help`: another seed, lines that changed.
check-mutants: deps
	$(if $(LAUNCHER),CMAKE_CXX_COMPILER_LAUNCHER=ccache) /usr/bin/python3 -B tests/mutants/mutants.py

# The long ones, too. `python3 tests/faults/campaign.py --help`: one case alone, another seed, another build.
faults: configure
	@$(QUIETLY) build/build.log cmake --build build --target fsdpbench
	@FSDPBENCH_FAULTS=all $(QUIETLY) build/faults.log ctest --preset default --label-regex '^faults$$'
	/usr/bin/python3 -B tests/faults/campaign.py $(FSDPBENCH) . --cases 500

# One at a time: what is planted are differences of speed. As root, or where user namespaces are allowed.
accept-faults: configure
	@$(QUIETLY) build/build.log cmake --build build --target fsdpbench
	/usr/bin/python3 -B tests/faults/campaign.py $(FSDPBENCH) . --of accept --cases 42 --jobs 1

# Thirty trainings, each killed twice and then gone on with.
checkpoint-faults: configure
	@$(QUIETLY) build/build.log cmake --build build --target fsdpbench
	/usr/bin/python3 -B tests/faults/campaign.py $(FSDPBENCH) . --of checkpoint --cases 30

# CUDA_BUILD=build adds CUDA to what `make test` has built: the program's own libraries are not compiled again.
CUDA_BUILD := build-cuda
cuda: cuda-build
	@$(QUIETLY) $(CUDA_BUILD)/test.log ctest --test-dir $(CUDA_BUILD) --output-on-failure --no-tests=error -j 4 \
	  --label-exclude '^gpu$$'  # as the preset, whose folder is always build-cuda

cuda-build: deps
	@src/cmake/fetch-cudnn-frontend.sh $(CUDA_BUILD)
	@cmake --preset cuda -B $(CUDA_BUILD) $(LAUNCHER) $(subst CXX,CUDA,$(LAUNCHER)) --log-level=WARNING >/dev/null
	@$(QUIETLY) $(CUDA_BUILD)/build.log cmake --build $(CUDA_BUILD) --target all benches

# Less than two minutes of one core; most of it are programs that train.
gpu-rehearsal: cuda-build
	@$(QUIETLY) $(CUDA_BUILD)/build.log cmake --build $(CUDA_BUILD) --target rehearsal_programs
	@$(QUIETLY) $(CUDA_BUILD)/gpu-rehearsal.log tests/gpu/rehearsal/rehearse.py $(abspath $(CUDA_BUILD))

# Needs the toolkit, and no build.
cuda-headers: deps
	/usr/bin/python3 -B tests/cuda_headers.py build-cuda/headers

clean:
	rm -rf build build-asan build-tsan build-cuda build-mutants build-wheel dist
