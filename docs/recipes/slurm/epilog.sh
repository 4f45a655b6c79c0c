#!/bin/sh
# Slurm epilog: has the node become slower than when it was accepted? In slurm.conf:
#
#   Epilog=/etc/slurm/fsdpbench/epilog.sh
#
# Compares an acceptance with the node's baseline and drains the node if anything is worse. Without a baseline it does
# nothing; make one of five accepted results or more, so that it is known how much they scatter:
#
#   for i in 1 2 3 4 5; do
#     fsdpbench accept hgx-h100 --out /var/lib/fsdpbench/baselines/$i
#   done
set -u

: "${FSDPBENCH:=/opt/fsdpbench/bin/fsdpbench}"
: "${FSDPBENCH_PROFILE:=hgx-h100}"
: "${FSDPBENCH_BUDGET:=3m}"
: "${FSDPBENCH_LIMIT_S:=240}" # when ranks that hang are ended
: "${FSDPBENCH_GRACE_S:=35}" # after that accept itself is taken for hanging
: "${FSDPBENCH_RESULTS:=/var/lib/fsdpbench}"
: "${FSDPBENCH_THRESHOLD:=10}" # percent: what must be lost before a node is drained

node=${SLURMD_NODENAME:-$(hostname -s)}
out=$FSDPBENCH_RESULTS/epilog
baselines=$FSDPBENCH_RESULTS/baselines

[ -d "$baselines" ] || exit 0
mkdir -p "$out" || exit 0
# If accept cannot even start, what an earlier one wrote must not be taken for its answer.
rm -f "$out/summary.md" "$out/result.json" "$out/gate/summary.md"
env -i PATH="$PATH" HOME=/root SLURMD_NODENAME="$node" timeout --kill-after=10 $((FSDPBENCH_LIMIT_S + FSDPBENCH_GRACE_S)) \
  "$FSDPBENCH" accept "$FSDPBENCH_PROFILE" --budget "$FSDPBENCH_BUDGET" --limit "${FSDPBENCH_LIMIT_S}s" \
  --out "$out" --overwrite --quiet >"$out/log" 2>&1
accepted=$?
case $accepted in
  5 | 124 | 134 | 135 | 136 | 137 | 139) # nothing that could be compared
    case $accepted in
      5) why=$(sed -n 's/^- //p' "$out/summary.md" 2>/dev/null | head -n 1) ;; # a rank was lost or hung
      124 | 137) why="the acceptance hung for $((FSDPBENCH_LIMIT_S + FSDPBENCH_GRACE_S)) s" ;;
      *) why="the acceptance crashed (exit code $accepted)" ;;
    esac
    scontrol update NodeName="$node" State=DRAIN Reason="fsdpbench: ${why:-a rank was lost}" || true
    exit 0
    ;;
esac
if [ ! -f "$out/result.json" ]; then
  logger -t fsdpbench "epilog on $node: not judged (accept $accepted), see $out/log" 2>/dev/null || true
  exit 0
fi
"$FSDPBENCH" gate "$out" --against "$baselines" --threshold "$FSDPBENCH_THRESHOLD" --out "$out/gate" --overwrite \
  >"$out/gate.log" 2>&1
gated=$?

if [ "$accepted" = 9 ] || [ "$accepted" = 10 ] || [ "$gated" = 7 ]; then
  why=$(sed -n '1s/^# //p' "$out/gate/summary.md" 2>/dev/null)
  # What failed by itself comes first: the part to blame, or else the headline.
  if [ "$accepted" = 9 ] || [ "$accepted" = 10 ]; then
    why=$(sed -n 's/^- //p' "$out/summary.md" 2>/dev/null | head -n 1)
    [ -n "$why" ] || why=$(sed -n '1s/^# //p' "$out/summary.md" 2>/dev/null)
  fi
  scontrol update NodeName="$node" State=DRAIN Reason="fsdpbench: ${why:-accept $accepted, gate $gated}" || true
elif [ "$accepted" != 0 ] || [ "$gated" != 0 ]; then
  logger -t fsdpbench "epilog on $node: not judged (accept $accepted, gate $gated), see $out" 2>/dev/null || true
fi
exit 0
