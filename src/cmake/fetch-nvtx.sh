#!/bin/sh
# Puts the headers of NVTX (Apache 2.0 with LLVM exception) into FOLDER/nvtx/include, from NVIDIA's package on PyPI. Does
# nothing if they are there; fails, soon, where PyPI cannot be reached.
#   fetch-nvtx.sh FOLDER
set -eu
version=13.0.85
folder="$1/nvtx"
[ ! -e "$folder/include/nvtx3/nvToolsExtPayload.h" ] || exit 0
mkdir -p "$folder"
# --platform: the headers are the same for all, and Macs have no package.
timeout 60 python3 -m pip download --quiet --disable-pip-version-check --retries 0 --timeout 10 --no-deps \
  --only-binary :all: --platform manylinux2014_x86_64 --dest "$folder" "nvidia-nvtx==$version"
python3 - "$folder" <<'END'
import sys, zipfile
from pathlib import Path
folder = Path(sys.argv[1])
wheel = next(folder.glob("nvidia_nvtx-*.whl"))
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        if "/include/nvtx3/" in name:
            target = folder / "include" / name.split("/include/")[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files.read(name))
wheel.unlink()
END
