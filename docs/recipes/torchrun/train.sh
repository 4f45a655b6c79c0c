#!/bin/bash
# Trains under torchrun, and goes on by itself after a rank was lost: torchrun starts all ranks again, and they go on with
# the newest complete checkpoint.
#
#   train.sh my-training.toml /shared/my-training --set train.steps=10000
#
# On several nodes start it on each, with the same NODES and RENDEZVOUS. As many ranks must go on as saved the checkpoint,
# so a lost node is waited for.
set -eu

profile=$1
folder=$2 # all ranks see it: checkpoints and result
shift 2
: "${FSDPBENCH:=fsdpbench}"
: "${NODES:=1}"
: "${RANKS_PER_NODE:=8}"
: "${RESTARTS:=3}"
: "${EVERY:=50}"                # steps from one checkpoint to the next
: "${RENDEZVOUS:=localhost:0}"  # host:port of one of several nodes
read -ra torchrun <<<"${TORCHRUN:-torchrun}"

exec "${torchrun[@]}" --nnodes "$NODES" --nproc-per-node "$RANKS_PER_NODE" --max-restarts "$RESTARTS" \
  --rdzv-backend c10d --rdzv-endpoint "$RENDEZVOUS" --rdzv-id "${RENDEZVOUS_ID:-fsdpbench}" --no-python \
  "$FSDPBENCH" run "$profile" --set checkpoint.folder="$folder/checkpoints" --set checkpoint.every="$EVERY" \
  --resume "$folder/checkpoints" --out "$folder/result" --overwrite "$@"
