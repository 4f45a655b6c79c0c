"""What GPU this is, and the rates its datasheet states."""

import glob
import importlib.util
import os
import shutil
import subprocess
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


def unpack(archive: Path, out: Path) -> Path:
    """The folder of programs of an archive of tests/gpu/pack, unpacked under `out`."""
    target = out.resolve() / "gpu-pack"
    shutil.rmtree(target, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    shutil.unpack_archive(archive, out)
    return target / "bin"


def program_environment(programs: Path) -> dict:
    """What our own programs need to find their libraries, and nobody else may get: Python's PyTorch brings libraries of
    its own, which others of the same name must not displace. Empty for programs of a build."""
    if programs.parent.name != "gpu-pack":
        return {}
    wheels = importlib.util.find_spec("nvidia")
    folders = [str(programs.parent / "lib"), "/usr/local/cuda/lib64"]
    for folder in (wheels.submodule_search_locations or []) if wheels else []:
        folders += sorted(glob.glob(f"{folder}/*/lib"))
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join(folders + ([before] if before else []))}
