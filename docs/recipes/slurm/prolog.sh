#!/bin/sh
# Slurm prolog: is this node fit for what is about to start on it? In slurm.conf:
#
#   Prolog=/etc/slurm/fsdpbench/prolog.sh
#   PrologFlags=Alloc
#   BatchStartTimeout=600
#
# A node that fails is drained, with who is to blame as the reason, and Slurm requeues the job. A node that could not be
# measured is not: that is no fault of the node's, and a full disk shall not drain a cluster. It is logged.
set -u

: "${FSDPBENCH:=/opt/fsdpbench/bin/fsdpbench}"
: "${FSDPBENCH_PROFILE:=hgx-h100}"                # of profiles/acceptance, or a file
: "${FSDPBENCH_BUDGET:=3m}"                       # what accept may take; it measures less often where that is short
: "${FSDPBENCH_LIMIT_S:=240}"                     # for what hangs; less than BatchStartTimeout
: "${FSDPBENCH_RESULTS:=/var/lib/fsdpbench}"      # the newest result of this node
: "${FSDPBENCH_TEXTFILES:=/var/lib/prometheus/node-exporter}" # for Prometheus; nothing is put there if it is missing

node=${SLURMD_NODENAME:-$(hostname -s)}
out=$FSDPBENCH_RESULTS/prolog

mkdir -p "$out" || exit 0
# Of the environment of the job nothing may steer the check: it is not yet the user's turn.
env -i PATH="$PATH" HOME=/root timeout --kill-after=30 "$FSDPBENCH_LIMIT_S" \
  "$FSDPBENCH" accept "$FSDPBENCH_PROFILE" --budget "$FSDPBENCH_BUDGET" --out "$out" --overwrite --quiet >"$out/log" 2>&1
code=$?

if [ -f "$out/metrics.prom" ] && [ -d "$FSDPBENCH_TEXTFILES" ]; then
  # Under another name first: the collector must never read half a file.
  cp "$out/metrics.prom" "$FSDPBENCH_TEXTFILES/fsdpbench.prom.$$" &&
    mv "$FSDPBENCH_TEXTFILES/fsdpbench.prom.$$" "$FSDPBENCH_TEXTFILES/fsdpbench.prom"
fi

case $code in
  0) exit 0 ;;
  9 | 10)
    # The first line of a list in the summary is who is to blame; without one, its headline.
    why=$(sed -n 's/^- //p' "$out/summary.md" 2>/dev/null | head -n 1)
    [ -n "$why" ] || why=$(sed -n '1s/^# //p' "$out/summary.md" 2>/dev/null)
    scontrol update NodeName="$node" State=DRAIN Reason="fsdpbench: ${why:-exit code $code}" || true
    exit 1
    ;;
  *)
    logger -t fsdpbench "prolog on $node: not judged (exit code $code), see $out/log" 2>/dev/null || true
    exit 0
    ;;
esac
