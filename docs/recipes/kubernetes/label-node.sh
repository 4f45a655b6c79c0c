#!/bin/sh
# Accepts the node it runs on and labels the node with the verdict: label-node.sh PROFILE [option of accept …],
# as the labels fsdpbench.io/verdict (pass, fail, inconclusive, error) and fsdpbench.io/date. Ends with the code of accept,
# or 4 if the node could not be labelled. Needs what a pod has (a service account that may patch nodes, NODE_NAME) and curl.
set -u

: "${FSDPBENCH:=/opt/fsdpbench/bin/fsdpbench}"
: "${FSDPBENCH_OUT:=/results/accept}"
: "${FSDPBENCH_HANG_S:=720}" # after that accept itself is taken for hanging; less than the Job's activeDeadlineSeconds
: "${KUBERNETES_API:=https://${KUBERNETES_SERVICE_HOST:-kubernetes.default.svc}:${KUBERNETES_SERVICE_PORT:-443}}"
: "${SERVICE_ACCOUNT:=/var/run/secrets/kubernetes.io/serviceaccount}"
: "${NODE_NAME:?the name of the node, from spec.nodeName}"

# A rank per GPU, which this starts; ranks that hang are ended at --limit (default: 1.5 budgets and 2 minutes).
# A node that hangs must not keep the label of a day when it passed: accept that itself hangs is ended.
timeout --kill-after=10 "$FSDPBENCH_HANG_S" "$FSDPBENCH" accept "$@" --out "$FSDPBENCH_OUT" --overwrite
code=$?
case $code in
  0) verdict=pass ;;
  # 5: a rank was lost or hung. 124, 137: accept itself hung. 134, 135, 136, 139: it crashed.
  5 | 9 | 10 | 124 | 134 | 135 | 136 | 137 | 139) verdict=fail ;;
  11) verdict=inconclusive ;;
  *) verdict=error ;;
esac

# Labels only: taints of a node are one list, which a patch would replace with all that others put there.
patch=$(printf '{"metadata":{"labels":{"fsdpbench.io/verdict":"%s","fsdpbench.io/date":"%s"}}}' \
  "$verdict" "$(date -u +%Y-%m-%dT%H-%M-%SZ)")

set -- --silent --show-error --fail --retry 5 --request PATCH --header "Content-Type: application/merge-patch+json" \
  --data "$patch" --output /dev/null
[ ! -f "$SERVICE_ACCOUNT/ca.crt" ] || set -- "$@" --cacert "$SERVICE_ACCOUNT/ca.crt"
# The token goes in by a file, not by the command line, which every process of the node can read.
umask 077
headers=$(mktemp) || exit 4
trap 'rm -f "$headers"' EXIT
[ ! -f "$SERVICE_ACCOUNT/token" ] || printf 'Authorization: Bearer %s\n' "$(cat "$SERVICE_ACCOUNT/token")" >"$headers"
curl "$@" --header "@$headers" "$KUBERNETES_API/api/v1/nodes/$NODE_NAME" || exit 4
echo "node $NODE_NAME: $verdict"
exit "$code"
