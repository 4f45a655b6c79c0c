#!/bin/sh
# Puts the headers of cudnn-frontend (header-only, MIT) into FOLDER/cudnn-frontend/include, from NVIDIA's package on
# PyPI. Does nothing if they are there.
#   fetch-cudnn-frontend.sh FOLDER
set -eu
version=1.32.0
folder="$1/cudnn-frontend"
[ ! -e "$folder/include/cudnn_frontend.h" ] || exit 0
mkdir -p "$folder"
echo "Downloading the headers of cudnn-frontend $version from PyPI"
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$folder" "nvidia-cudnn-frontend==$version"; then
  echo "nvidia-cudnn-frontend $version could not be downloaded; unpack its include folder to $folder/include by hand." >&2
  exit 1
fi
python3 - "$folder" <<'END'
import sys, zipfile
from pathlib import Path
folder = Path(sys.argv[1])
wheel = next(folder.glob("nvidia_cudnn_frontend-*.whl"))
with zipfile.ZipFile(wheel) as files:
    files.extractall(folder, [name for name in files.namelist() if name.startswith("include/")])
wheel.unlink()
END
