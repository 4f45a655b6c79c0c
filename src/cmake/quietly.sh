#!/bin/bash
# Runs a build or ctest. All that it says goes into LOG; shown are errors, warnings, failed tests and the summary, and how
# far it is: on a terminal one line that moves on, elsewhere a line every half a minute. Ends with the command's own exit
# status.
#   quietly.sh LOG COMMAND…
set -uo pipefail
log=$1
shift
mkdir -p "$(dirname "$log")"
begin=$SECONDS
progress='^\[[0-9]+/[0-9]+\] |^ *Start +[0-9]+: |^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*(Passed|\*\*\*Skipped) '
boring='^-- |^Test project |^ninja: no work to do|^Preset |^$'
moving=
said=$SECONDS
"$@" </dev/null 2>&1 | tee "$log" | {
  while IFS= read -r line; do
    if [[ $line =~ $progress ]]; then
      if [ -t 1 ]; then
        printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "$line"
        moving=yes
      elif ((SECONDS - said >= 30)); then
        said=$SECONDS
        printf '%4d s  %.110s\n' "$((SECONDS - begin))" "$line"
      fi
    elif [[ ! $line =~ $boring ]]; then
      [ -z "$moving" ] || printf '\r\033[K'
      moving=
      printf '%s\n' "$line"
    fi
  done
  [ -z "$moving" ] || printf '\r\033[K'
}
status=${PIPESTATUS[0]}
[ "$status" = 0 ] && echo "done in $((SECONDS - begin)) s ($log has all of it)"
exit "$status"
