#!/bin/sh
# Installs the packages of debian-packages.txt that are missing: says which, works as root or through sudo, and prints
# the exact command where it may do neither. Does nothing, quickly, when all are there.
set -eu
list="$(dirname "$0")/debian-packages.txt"

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian system: please install what corresponds to these packages yourself:" >&2
  tr '\n' ' ' <"$list" >&2
  echo >&2
  exit 0
fi

missing=""
while read -r package; do
  status="$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)"
  [ "$status" = installed ] || missing="$missing $package"
done <"$list"
[ -n "$missing" ] || exit 0

install="apt-get install --yes --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
  as_root=""
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
  as_root="sudo "
else
  echo "These Debian packages are missing, and neither root nor sudo is at hand. Please run as root:" >&2
  echo "  apt-get update && $install" >&2
  exit 1
fi
echo "Installing the missing Debian packages:$missing"
${as_root}apt-get update --quiet || echo "Going on with the package lists that are here."
${as_root}env DEBIAN_FRONTEND=noninteractive $install
