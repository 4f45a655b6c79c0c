#!/usr/bin/python3
"""Compiles the CUDA backend's sources, those of kernels excepted, against the headers of other releases of NCCL and of
the CUDA toolkit than the one at hand: as the compiler of a machine with that toolkit would, but without its libraries.
The headers come from NVIDIA's packages on PyPI (some hundred MB are downloaded once, and only headers are kept).

    tests/cuda_headers.py [FOLDER OF HEADERS, build-cuda/headers] [NAME …]
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLKIT = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
CUDA_12_8 = ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-cupti-cu12==12.8.90"]
CUDA_13_1 = ["nvidia-cuda-runtime==13.1.80", "nvidia-cuda-cupti==13.1.75", "nvidia-cuda-crt==13.1.80"]
CUDA_13_3 = ["nvidia-cuda-runtime==13.3.29", "nvidia-cuda-cupti==13.3.35", "nvidia-cuda-crt==13.3.33"]
# Name: packages whose headers come before the toolkit's, and the folders of src/backend/cuda that are compiled.
RELEASES = {
    "nccl-2.19": (["nvidia-nccl-cu12==2.19.3"], ["nccl"]),
    "nccl-2.27": (["nvidia-nccl-cu12==2.27.7"], ["nccl"]),
    "nccl-2.28": (["nvidia-nccl-cu12==2.28.9"], ["nccl"]),
    "nccl-2.30": (["nvidia-nccl-cu12==2.30.7"], ["nccl"]),
    "cuda-12.8": (CUDA_12_8, [".", "cupti", "nccl"]),
    "cuda-13.1": (CUDA_13_1, [".", "cupti", "nccl"]),
    "cuda-13.3": (CUDA_13_3, [".", "cupti", "nccl"]),
}
# These want what only a configured build has.
GENERATED = {"load_plugin.cpp", "no_cuda.cpp", "plugin.cpp"}


def headers(package: str, folder: Path) -> Path:
    """The include folder of a package, downloaded if it is not there."""
    target = folder / package.replace("==", "-")
    if not target.exists():
        with tempfile.TemporaryDirectory() as download:
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                 "--only-binary", ":all:", "--dest", download, package], check=True)
            partial = target.with_suffix(".partial")
            with zipfile.ZipFile(next(Path(download).glob("*.whl"))) as wheel:
                wheel.extractall(partial, [name for name in wheel.namelist() if "/include/" in name])
            partial.rename(target)
    return next(path for path in target.rglob("include") if path.is_dir())


def problem_of(name: str, folder: Path) -> str:
    """The compiler's errors; empty if it accepts everything."""
    packages, parts = RELEASES[name]
    includes = [headers(package, folder) for package in packages] + [TOOLKIT]
    for part in parts:
        sources = sorted((ROOT / "src/backend/cuda" / part).glob("*.cpp"))
        text = "".join(f'#include "{source}"\n' for source in sources if source.name not in GENERATED)
        command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                   '-DFSDPBENCH_CUPTI_LIBRARY=""', "-DFMT_SHARED", f"-I{ROOT / 'src'}",
                   *(argument for include in includes for argument in ("-isystem", str(include))), "-xc++", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{part}: {done.stderr.strip()}"
    return ""


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build-cuda" / "headers"
    wrong = 0
    for name in sys.argv[2:] or RELEASES:
        problem = problem_of(name, folder)
        print(f"{name}: {problem or 'compiles'}", flush=True)
        wrong += bool(problem)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
