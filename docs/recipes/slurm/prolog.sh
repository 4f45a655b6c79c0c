#!/bin/sh
# Slurm prolog: is this node fit for what is about to start on it? In slurm.conf:
#
#   Prolog=/etc/slurm/fsdpbench/prolog.sh
#   PrologFlags=Alloc
#   BatchStartTimeout=600
#
# fsdpbench starts a rank per GPU itself. A node that fails, that loses a rank or on which the check hangs is drained, with
# the part to blame as the reason, and Slurm requeues the job. A node that could not be judged (a wrong profile, a full
# disk, a busy host) is not drained, because that says nothing about its GPUs and links: it is logged, and the job starts.
set -u

: "${FSDPBENCH:=/opt/fsdpbench/bin/fsdpbench}"
: "${FSDPBENCH_PROFILE:=hgx-h100}"                # of profiles/acceptance, or a file
: "${FSDPBENCH_BUDGET:=3m}"                       # what accept may take; it measures less often where that is short
: "${FSDPBENCH_LIMIT_S:=240}"                     # when ranks that hang are ended; 45 s less than BatchStartTimeout
: "${FSDPBENCH_GRACE_S:=35}"                        # after that accept itself is taken for hanging
: "${FSDPBENCH_RESULTS:=/var/lib/fsdpbench}"      # the newest result of this node
: "${FSDPBENCH_TEXTFILES:=/var/lib/prometheus/node-exporter}" # for Prometheus; nothing is put there if it is missing

node=${SLURMD_NODENAME:-$(hostname -s)}
out=$FSDPBENCH_RESULTS/prolog

mkdir -p "$out" || exit 0
# If accept cannot even start, what an earlier one wrote must not be taken for its answer.
rm -f "$out/summary.md" "$out/metrics.prom" "$out/result.json" "$out/pass_nodes.txt" "$out/fail_nodes.txt"
# The job's environment must not change the check: nothing of it is passed on. accept ends its ranks at --limit and says
# which one hangs; timeout is for the case that accept itself hangs.
env -i PATH="$PATH" HOME=/root SLURMD_NODENAME="$node" timeout --kill-after=10 $((FSDPBENCH_LIMIT_S + FSDPBENCH_GRACE_S)) \
  "$FSDPBENCH" accept "$FSDPBENCH_PROFILE" --budget "$FSDPBENCH_BUDGET" --limit "${FSDPBENCH_LIMIT_S}s" \
  --out "$out" --overwrite --quiet >"$out/log" 2>&1
code=$?

if [ -f "$out/metrics.prom" ] && [ -d "$FSDPBENCH_TEXTFILES" ]; then
  # Under another name first: the collector must never read half a file.
  cp "$out/metrics.prom" "$FSDPBENCH_TEXTFILES/fsdpbench.prom.$$" &&
    mv "$FSDPBENCH_TEXTFILES/fsdpbench.prom.$$" "$FSDPBENCH_TEXTFILES/fsdpbench.prom"
fi

case $code in
  0) exit 0 ;;
  # 5: a rank was lost or hung. 9: wrong data. 10: fail. 124, 137: accept itself hung. 134, 135, 136, 139: it crashed.
  5 | 9 | 10 | 124 | 134 | 135 | 136 | 137 | 139)
    # The first line of a list in the summary is the part to blame; without one, its headline. A run that was ended has
    # written none.
    case $code in
      5 | 9 | 10) why=$(sed -n 's/^- //p' "$out/summary.md" 2>/dev/null | head -n 1) ;;
      124 | 137) why="the acceptance hung for $((FSDPBENCH_LIMIT_S + FSDPBENCH_GRACE_S)) s" ;;
      *) why="the acceptance crashed (exit code $code)" ;;
    esac
    [ -n "$why" ] || why=$(sed -n '1s/^# //p' "$out/summary.md" 2>/dev/null)
    scontrol update NodeName="$node" State=DRAIN Reason="fsdpbench: ${why:-exit code $code}" || true
    exit 1
    ;;
  *)
    logger -t fsdpbench "prolog on $node: not judged (exit code $code), see $out/log" 2>/dev/null || true
    exit 0
    ;;
esac
