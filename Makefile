# The commands a person needs; everything else is CMake. `make` alone explains them.
.DEFAULT_GOAL := help
.PHONY: help deps configure build test test-build under-load headers demo bench-build bench analysis wheel wheel-test site report gallery hta accept-faults checkpoint-faults peer peer-check peer-parsers peer-deepspeed peer-job peer-bench random-configs check-mutants recipes asan asan-build tsan tsan-build fuzz faults cuda cuda-build gpu-rehearsal cuda-headers clean

# ccache makes rebuilding fast where it is installed; it is not needed.
LAUNCHER := $(if $(shell command -v ccache),-D CMAKE_CXX_COMPILER_LAUNCHER=ccache)
PROFILE := profiles/runs/quickstart.toml
FSDPBENCH := build/bin/fsdpbench
# Shows errors and the end; the rest goes into the log that follows.
QUIETLY := src/cmake/quietly.sh

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

# Only the program: no test, no benchmark.
build: configure
	@$(QUIETLY) build/build.log cmake --build build --target fsdpbench

test: test-build
	@$(MAKE) --no-print-directory analysis || echo "make analysis failed: the Python package's tests are skipped."
	@$(QUIETLY) build/test.log ctest --preset default

test-build: configure
	@$(QUIETLY) build/build.log cmake --build build

# `tests/under_load ctest --preset default` for all of them. (The sanitizers' threads are slowed down as well.)
under-load: test-build
	@$(QUIETLY) build/under-load.log tests/under_load ctest --preset default --label-regex '^(launch|processes)$$'

headers: configure
	@$(QUIETLY) build/build.log cmake --build build --target header_tests

# Computation is emulated, so that the demo shows the same on a busy machine: ranks that really compute share its cores.
demo: build
	@/usr/bin/python3 -B src/cmake/demo.py $(FSDPBENCH) $(PROFILE)

bench-build: configure
	@$(QUIETLY) build/build.log cmake --build build --target benches

bench: bench-build
	@for program in $$(ls build/bin/bench_* | grep -v bench_fsdp); do echo "== $$program =="; $$program || exit 1; done
	build/bin/bench_fsdp --sweep model-batch-ranks --benchmark_filter=llama3.2-1b/train.batch_per_rank:1/
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 2 --bind-to none build/bin/bench_collectives_processes

hta: build
	@$(QUIETLY) build/build.log cmake --build build --target corpus_files
	FSDPBENCH_HTA=1 ctest --preset default --label-regex '^hta$$'

# Another PyTorch than the pinned one: PEER_PYTHON=/its/python make peer.
PEER_VENV := build/peer-venv
PEER_PYTHON ?= $(PEER_VENV)/bin/python
peer: configure $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
	@$(QUIETLY) build/build.log cmake --build build --target peer_test fsdpbench
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore record.py recorded && $(abspath $(PEER_PYTHON)) -B -Wignore train.py recorded
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore train_tensor.py recorded
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore exported.py recorded $(abspath build/bin/fsdpbench)
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore profiles.py recorded
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore allocator.py recorded
	build/bin/peer_test

# Each twelfth configuration once more, against what is stored: the versions of all packages are fixed.
peer-check: build $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore record.py recorded --check 12
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore exported.py recorded --check 12
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore profiles.py recorded --check
	$(PEER_PYTHON) -B -Wignore tests/peer/eager_loss.py
	$(PEER_PYTHON) -B -Wignore tests/peer/parsers.py
	cd tests/peer && FSDPBENCH_PROGRAM=$(abspath $(FSDPBENCH)) $(abspath $(PEER_PYTHON)) -B -Wignore in_job.py --case accelerate-fsdp2

# Times are in them, so they are new each time.
peer-traces: configure $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
	@$(QUIETLY) build/build.log cmake --build build --target foreign_test
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore profiled.py recorded
	build/bin/foreign_test --gtest_filter='*Recorded*'

# The stored exports, read by the systems that they are for: those of them that PyPI has.
peer-parsers: $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
	$(PEER_PYTHON) -m pip install --quiet --disable-pip-version-check --requirement tests/peer/parsers-requirements.txt
	$(PEER_PYTHON) -B -Wignore tests/peer/parsers.py
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore profiles.py ../../analysis/tests/data --models

# DeepSpeed compiles an extension of its own first, which takes a minute.
peer-deepspeed: configure $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
	$(PEER_PYTHON) -m pip install --quiet --disable-pip-version-check --requirement tests/peer/parsers-requirements.txt
	@$(QUIETLY) build/build.log cmake --build build --target peer_test
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore deepspeed_record.py recorded
	build/bin/peer_test --gtest_filter='*DeepSpeed*'

peer-job: build $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
	cd tests/peer && FSDPBENCH_PROGRAM=$(abspath $(FSDPBENCH)) $(abspath $(PEER_PYTHON)) -B -Wignore in_job.py
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore in_job.py --cost --case fsdp2 --case fsdp1 --case ddp
	cd tests/peer && $(abspath $(PEER_PYTHON)) -B -Wignore watched.py

peer-bench: build $(if $(filter $(PEER_VENV)/%,$(PEER_PYTHON)),$(PEER_VENV)/installed)
	$(PEER_PYTHON) -B tests/peer/bench.py $(FSDPBENCH) --out build/peer-bench.json

# make test tries them; what it lacks are the schemas, which PyPI has and Debian does not.
recipes: build build/recipes-venv/installed
	build/recipes-venv/bin/python -B tests/recipes/recipes_test.py $(FSDPBENCH) . -k schema

build/recipes-venv/installed: tests/recipes/requirements.txt
	@src/cmake/install-debian-packages.sh
	/usr/bin/python3 -m venv --system-site-packages build/recipes-venv
	build/recipes-venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(PEER_VENV)/installed: tests/peer/requirements.txt
	@src/cmake/install-debian-packages.sh
	/usr/bin/python3 -m venv $(PEER_VENV)
	$(PEER_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# Rebuilt when what the package needs changes; the package itself is used from where it lies.
analysis: .venv/installed
.venv/installed: analysis/requirements.txt
	@src/cmake/install-debian-packages.sh
	/usr/bin/python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	echo $(abspath analysis) >$$(echo .venv/lib/python3*/site-packages)/fsdpbench.pth
	@touch $@

# docs/ as a site, in build/site. Links that lead nowhere fail.
site: build/site-venv/installed
	@NO_MKDOCS_2_WARNING=1 build/site-venv/bin/mkdocs build --strict --config-file analysis/mkdocs.yml

build/site-venv/installed: analysis/site-requirements.txt
	@src/cmake/install-debian-packages.sh
	/usr/bin/python3 -m venv build/site-venv
	build/site-venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# dist/fsdpbench-….whl: the program, its libraries, profiles and Python package, for every Linux of this glibc or a newer one.
# WHEEL_BUILD=build packs the program that `make build` made, for processors like this one: what CI does.
WHEEL_BUILD := build-wheel
wheel: build/wheel-venv/installed
	@$(QUIETLY) build/wheel.log src/cmake/make-wheel.sh $(WHEEL_BUILD) dist

# As CI does it: what is compiled for the other tests, installed and used where this source tree is not to be seen.
wheel-test: build
	@$(MAKE) --no-print-directory wheel WHEEL_BUILD=build
	/usr/bin/python3 -B tests/wheel/wheel_test.py dist/fsdpbench-*.whl

build/wheel-venv/installed: src/cmake/wheel-requirements.txt
	@src/cmake/install-debian-packages.sh
	/usr/bin/python3 -m venv build/wheel-venv
	build/wheel-venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

report: build analysis
	$(FSDPBENCH) run $(PROFILE) --out runs/quickstart-report --overwrite --quiet
	$(FSDPBENCH) report runs/quickstart-report

gallery: build analysis
	.venv/bin/python analysis/gallery.py $(FSDPBENCH)

# What a sanitizer is asked stands in tests/CMakeLists.txt and, for parts of a program, beside it (SANITIZED).
asan tsan: %: %-build
	@$(QUIETLY) build-$@/test.log ctest --preset $@

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
