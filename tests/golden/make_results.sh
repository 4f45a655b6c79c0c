#!/bin/sh
# One of each kind of result, for the Python package's tests: make_results.sh PROGRAM. Writes results.tar.gz beside this.
set -eu
program="$(realpath "$1")"
here="$(dirname "$(realpath "$0")")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir results
small="--set model.layers=2 --set mesh.ranks=2 --set train.steps=5 --set train.warmup=1"
rates="--set emulate.compute_tflops=0.05 --set emulate.link_gb_per_s=1"
run() { # what of exit codes is a verdict is fine
  PATH="$(dirname "$program"):$PATH" fsdpbench "$@" -q >/dev/null 2>&1 || [ $? -ge 7 ]
}
# shellcheck disable=SC2086
{
  run run quickstart $small $rates --out results/run
  run run quickstart $small --set emulate.compute_tflops=0.05 --set emulate.link_gb_per_s=0.05 --out results/slow
  run compare results/run results/slow --out results/compare
  run gate results/slow --against results/run --out results/gate
  run accept cpu $small --set model.width=64 --set model.ffn_width=128 --set train.seq_len=32 $rates --out results/accept
  run trace explain results/run/trace --out results/explain
  printf 'base = "run/config.toml"\ntrials = 2\n[axes]\n"fsdp.backward_prefetch" = ["pre", "none"]\n' >results/sweep.toml
  run sweep results/sweep.toml --out results/sweep
}
rm -rf results/slow results/sweep.toml
for kept in results/run/result.json results/compare/compare.json results/gate/gate.json results/accept/result.json \
  results/explain/explain.json results/sweep/sweep.json; do
  [ -s "$kept" ] || { echo "$kept was not written" >&2; exit 1; }
  mkdir -p "kept/$(dirname "$kept")"
  cp "$kept" "kept/$kept"
done
tar -C kept --sort=name --owner=0 --group=0 --mtime=@0 -czf "$here/results.tar.gz" results
