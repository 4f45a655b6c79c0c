"""What GPU this is, the rates its datasheet states, and where its libraries are."""

import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Dense bf16 FLOP/s by NVIDIA's datasheets (without sparsity), longest name first.
PEAK_BF16 = {
    "GB200": 2.5e15,
    "B200": 2.25e15,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
}


def peak_bf16(name: str) -> float | None:
    """None for a GPU that the table lacks: no peak is guessed."""
    return next((rate for part, rate in PEAK_BF16.items() if part in name), None)


def gpu_facts() -> dict:
    """Of the first GPU; empty if nvidia-smi does not answer."""
    keys = ["name", "uuid", "driver_version", "memory.total", "clocks.max.sm", "power.limit", "pci.bus_id"]
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(keys)}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = answer.strip().splitlines()
    if not lines:
        return {}
    facts = dict(zip(keys, (value.strip() for value in lines[0].split(","))))
    facts["gpus"] = len(lines)
    return facts


def unpack(archive: Path, folder: Path) -> Path:
    """The root of an archive of tests/gpu/pack, unpacked in `folder`."""
    target = folder / "gpu-pack"
    shutil.rmtree(target, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.unpack_archive(archive, folder)
    return target


def path_python() -> str:
    """The interpreter that has PyTorch, if any here has: the suite itself may run under another."""
    return shutil.which("python3") or sys.executable


def wheel_folders() -> list[str]:
    """Folders of libraries that NVIDIA's packages of that interpreter brought."""
    try:
        told = subprocess.run([path_python(), "-c", "import nvidia; print(*nvidia.__path__, sep='\\n')"],
                              capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [folder for line in told.splitlines() for folder in sorted(glob.glob(f"{line}/*/lib"))]


def program_environment(programs: Path) -> dict:
    """What our own programs need to find their libraries, and nobody else may get: Python's PyTorch brings libraries of
    its own, which others of the same name must not displace. PyTorch's come before the toolkit's, so that both sides of a
    comparison call the same ones. Empty for programs of a build."""
    if programs.parent.name != "gpu-pack":
        return {}
    folders = [str(programs.parent / "lib"), *wheel_folders(), "/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"]
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join(folders + ([before] if before else []))}


def libraries_of(plugin: Path, environment: dict) -> dict:
    """Where the loader finds each of NVIDIA's libraries that the plugin asks for: None for one that it does not find."""
    try:
        told = subprocess.run(["ldd", str(plugin)], env=os.environ | environment, capture_output=True, text=True, timeout=60,
                              check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found = dict(re.findall(r"^\s*(lib(?:cu|nv|nccl)\S*) => (not found|\S+)", told, re.MULTILINE))
    return {name: None if path == "not found" else path for name, path in found.items()}
