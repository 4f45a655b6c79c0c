#!/usr/bin/python3
"""Rehearses the four calls of tests/gpu/run without a GPU: packs the programs for stand-ins of a CUDA build, unpacks them
into an empty folder where the source tree and nvcc are not to be seen, and runs every section of every call to its end,
with small models, and with what may come back from a machine with a GPU.

    rehearse.py BUILD_FOLDER          (make check-gpu-rehearsal)
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

# What may come back of one call.
MOST_FILES, MOST_FILE_BYTES, MOST_BYTES, MOST_FOLDERS = 8, 16 << 20, 64 << 20, 2

# Reasons that a section may have to fail here: they are about what stand-ins do not have, speed and cuDNN.
MAY_FAIL = {"tracer_cost": r"tracing makes a step at least [0-9.]+ times as long, more than 1\.02",
            "tests": r"1 failed: attention_gpu_test: all tests were skipped, see attention_gpu_test\.log"}

# Figures without which a section has not done what it is for: a part of their names.
MUST_SAY = {"torch": ["speed over PyTorch eager", "speed over PyTorch compiled"],
            "timers": ["step by CUPTI over events"],
            "changes": ["(device.deterministic = true"],
            "tracer_cost": ["cuda_step_with_cupti_over_without: ratio", "cuda_step_watched_over_unwatched: ratio"],
            "features": ["mesh.tensor = 2", "nccl.register_buffers = local",
                         "fsdp.cpu_offload = all"]}

TINY = """[model]
kind = "decoder"
layers = 1
width = 16
heads = 2
kv_heads = 2
ffn_width = 16
vocab = 256
tied_head = false
rope_theta = 10000.0
norm_epsilon = 1e-5
"""


def stage(build: Path) -> Path:
    """A build folder in which the programs for stand-ins have the places of the real ones."""
    folder = build / "rehearsal"
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    shutil.copy(build / "gpu-programs.txt", folder)
    shutil.copy(build / "CMakeCache.txt", folder)
    for name in (folder / "gpu-programs.txt").read_text(encoding="utf-8").split():
        if not (folder / "bin" / name).exists():  # the program itself, and what has no stand-in
            (folder / "bin" / name).unlink(missing_ok=True)
            (folder / "bin" / name).symlink_to(build / "bin" / name)
    plugin = folder / "lib" / "fsdpbench_cuda.so"
    plugin.unlink(missing_ok=True)
    plugin.symlink_to(build / "lib" / "fsdpbench_cuda_emulated.so")
    return folder


def prepare(build: Path, source: Path, folder: Path) -> None:
    """Everything that the rehearsal needs, in `folder`, which is not of the source tree."""
    subprocess.run([source / "tests" / "gpu" / "pack", "--native", stage(build), folder / "pack.tar.xz"], check=True,
                   env=os.environ | {"PACK_LEVEL": "0"})
    shutil.copytree(source / "tests" / "gpu" / "rehearsal" / "tools", folder / "tools")
    shutil.copytree(build / "lib" / "stand-in", folder / "stand-in", symlinks=True)
    shutil.copy(__file__, folder / "rehearse.py")


def hidden(source: Path, command: list) -> list:
    """The command where nothing of the source tree and no CUDA compiler is to be seen."""
    places = [source, *{place.resolve() for place in Path("/usr/local").glob("cuda*/bin")}]
    script = "".join(f'mount -t tmpfs none "{place}" && ' for place in places) + 'exec "$@"'
    for unshare in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/usr/local"], check=False, capture_output=True).returncode == 0:
            return [*unshare, "sh", "-c", script, "sh", *command]
    print("The source tree stays visible: this machine allows no mounts, neither as root nor in a user namespace.")
    return [*command, "--visible"]


def make_small(root: Path) -> None:
    """Models and profiles that stand-ins can run in a second."""
    for model in (root / "profiles" / "models").glob("*.toml"):
        model.write_text(TINY, encoding="utf-8")
    for profile in (root / "profiles" / "runs").glob("*.toml"):
        text = profile.read_text(encoding="utf-8")
        for key, value in (("steps", 4), ("warmup", 2), ("seq_len", 8), ("batch_per_rank", 2)):
            text = re.sub(rf"^{key} = \d+", f"{key} = {value}", text, flags=re.MULTILINE)
        profile.write_text(text, encoding="utf-8")


def faults_of(out: Path, sections: list[str]) -> list[str]:
    """What is wrong with what a call left: with its files, and with its sections."""
    faults = []
    files = [path for path in out.rglob("*") if path.is_file()]
    if len(files) > MOST_FILES:
        faults.append(f"{len(files)} files, more than {MOST_FILES}")
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        faults.append(f"more than {MOST_BYTES} bytes together")
    for file in files:
        place = file.relative_to(out)
        if file.stat().st_size > MOST_FILE_BYTES:
            faults.append(f"{place} has more than {MOST_FILE_BYTES} bytes")
        if len(place.parts) - 1 > MOST_FOLDERS or not all(re.fullmatch(r"[\w.-]+", part, re.ASCII) for part in place.parts):
            faults.append(f"{place} would not come back")
    if sorted(file.name for file in files) != ["logs.tar", "results.json", "summary.txt"]:
        faults.append(f"the files are {files}")
        return faults
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    if [entry["name"] for entry in results["sections"]] != sections:
        faults.append(f"the sections were {[entry['name'] for entry in results['sections']]}, and not {sections}")
    for entry in results["sections"]:
        of_speed = re.fullmatch(MAY_FAIL.get(entry["name"], ""), entry.get("reason", "")) if entry["status"] == "failed" else None
        if entry["status"] != "passed" and not of_speed:
            faults.append(f"section {entry['name']} {entry['status']}: {entry.get('reason')}")
        if not entry.get("figures"):
            faults.append(f"section {entry['name']} has no figure")
        for figure in MUST_SAY.get(entry["name"], []):
            if not any(figure in name for name in entry.get("figures", {})):
                faults.append(f"section {entry['name']} does not say {figure!r}")
    with tarfile.open(out / "logs.tar") as tar:
        if not any(name.endswith("result.json.gz") or name.startswith("bench_") for name in tar.getnames()):
            faults.append("logs.tar has no results")
    return faults


def inside(folder: Path, source: Path, visible: bool) -> int:
    if not visible and (source.exists() and any(source.iterdir())):
        print(f"{source} is to be seen")
        return 1
    shutil.unpack_archive(folder / "pack.tar.xz", folder / "there")
    root = folder / "there" / "gpu-pack"
    (root / "bin" / "fsdpbench").rename(root / "bin" / "fsdpbench.program")
    shutil.copy(folder / "tools" / "fsdpbench", root / "bin")
    make_small(root)
    # One GPU, as there; nothing of this machine's own tools; of each test program a quarter, since they are of the build, too.
    environment = {"GTEST_TOTAL_SHARDS": "4", "GTEST_SHARD_INDEX": "0",
                   "PATH": f"{folder / 'tools'}:/usr/bin:/bin", "FSDPBENCH_FAKE_GPUS": "1", "FSDPBENCH_FAKE_NVML": "1",
                   "LD_LIBRARY_PATH": str(folder / "stand-in"), "HOME": str(folder), "TMPDIR": str(folder), "NO_COLOR": "1"}
    listed = subprocess.run([root / "tests/gpu/run", "--list"], env=environment, capture_output=True, text=True, check=True).stdout
    calls = {}
    for line in listed.splitlines():
        calls.setdefault(line.split()[0], []).append(line.split()[1])
    faults, begin = [], time.monotonic()
    for call, sections in calls.items():
        out = folder / f"out-{call}"
        done = subprocess.run([root / "tests/gpu/run", "--call", call, "--out", out, "--work", folder / f"work-{call}"], cwd=folder,
                              env=environment, check=False)
        found = faults_of(out, sections) if out.exists() else [f"no results, code {done.returncode}"]
        faults += [f"call {call}: {fault}" for fault in found]
    print(f"{sum(len(sections) for sections in calls.values())} sections in {len(calls)} calls: {time.monotonic() - begin:.0f} s")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def main() -> int:
    if sys.argv[1] == "--inside":
        return inside(Path(sys.argv[2]), Path(sys.argv[3]), "--visible" in sys.argv)
    build, source = Path(sys.argv[1]).resolve(), Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory(prefix="gpu-rehearsal-") as folder:
        prepare(build, source, Path(folder))
        command = ["/usr/bin/python3", "-B", f"{folder}/rehearse.py", "--inside", folder, str(source)]
        return subprocess.run(hidden(source, command), cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
