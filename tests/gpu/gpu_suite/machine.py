"""What GPU this is, and the rates its datasheet states."""

import subprocess

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
