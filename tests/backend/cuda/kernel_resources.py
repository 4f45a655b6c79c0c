#!/usr/bin/python3
"""Each kernel as the compiler made it for one GPU, from ptxas and from the machine code itself: registers, spills,
shared memory, the warps a multiprocessor can hold by registers, and how wide memory is accessed. Fails if a kernel spills,
if one that moves tensors has no access of 128 bits, and if a variant reads by 128 bits and writes by fewer; compares with
the table in src/backend/cuda/kernels/README.md, or writes it there.

    kernel_resources.py NVCC FOLDER [--write]

FOLDER keeps what is compiled. nvdisasm comes from PATH, or from NVIDIA's package on PyPI, downloaded into FOLDER.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "backend" / "cuda" / "kernels"
PAGE = ROOT / "src" / "backend" / "cuda" / "kernels" / "README.md"
ARCHITECTURE = "sm_90"
DISASSEMBLER = "nvidia-cuda-nvdisasm==13.2.51"
HEAD = "| kernel | variants | registers | shared bytes | warps | 128-bit loads, stores |\n|---|---|---|---|---|---|\n"
# These work on single numbers, or (softmax, store_head) are there to be right where cuDNN has no kernel.
NARROW = {"clip_factor_kernel", "delay_kernel", "finish_column_sums_kernel", "finish_squares_kernel", "mean_kernel", "count_kernel", "scan_kernel", "move_kernel",
          "softmax_backward_kernel", "softmax_kernel", "store_head_kernel", "table_kernel"}
SUMS = {"partial_column_sums_kernel", "partial_sums_kernel", "terms_kernel"}  # write little


def disassembler(folder: Path) -> str:
    found = shutil.which("nvdisasm") or next((str(p) for p in folder.rglob("bin/nvdisasm")), None)
    if found:
        return found
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary", ":all:", "--dest", folder, DISASSEMBLER], check=True)
    with zipfile.ZipFile(next(folder.glob("nvidia_cuda_nvdisasm-*.whl"))) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith("bin/nvdisasm")])
    program = next(folder.rglob("bin/nvdisasm"))
    program.chmod(0o755)
    return str(program)


def compiled(nvcc: str, source: Path, folder: Path) -> tuple[Path, str]:
    """The machine code, and what ptxas said of it; made again if any source is newer."""
    cubin, log = folder / f"{source.stem}.cubin", folder / f"{source.stem}.ptxas"
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if not log.exists() or log.stat().st_mtime < newest:
        done = subprocess.run(
            [nvcc, "-std=c++20", f"-arch={ARCHITECTURE}", "-cubin", "-O3", "--expt-relaxed-constexpr", "--fmad=false",
             f"-I{ROOT / 'src'}", "-Xptxas=-v", "-o", cubin, source], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{source.name} does not compile:\n{done.stderr}")
        log.write_text(done.stderr, encoding="utf-8")
    return cubin, log.read_text(encoding="utf-8")


def readable(symbols: list[str]) -> dict[str, str]:
    """By symbol: the kernel's own name, without namespaces and arguments."""
    lines = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout.splitlines()
    return {symbol: re.search(r"(\w+)(?:<|\()", line.replace("(anonymous namespace)", "").split("::", 3)[-1].lstrip(":"))[1]
            for symbol, line in zip(symbols, lines, strict=True)}


def kernels_of(cubin: Path, said: str, program: str) -> list[dict]:
    code = subprocess.run([program, "-c", cubin], capture_output=True, text=True, check=True).stdout
    sections = dict(re.findall(r"^\.text\.(\S+):\n(.*?)(?=^\.text\.|\Z)", code, re.MULTILINE | re.DOTALL))
    found = re.findall(r"Compiling entry function '(\S+)' for.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes "
                       r"spill loads.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?", said, re.DOTALL)
    names = readable([kernel[0] for kernel in found])
    return [{"name": names[symbol], "spills": int(stores) + int(loads), "registers": int(registers), "shared": int(shared or 0),
             "loads": len(re.findall(r"\bLDG\.\S*128", sections[symbol])),
             "stores": len(re.findall(r"\bSTG\.\S*128", sections[symbol]))}
            for symbol, _, stores, loads, registers, shared in found]


def warps(registers: int) -> int:
    """That a multiprocessor of 65536 registers holds; it gives them to a warp 256 at a time."""
    return min(64, 65536 // (-(-registers * 32 // 256) * 256))


def span(values: list[int]) -> str:
    return str(values[0]) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def main() -> int:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    nvcc, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    program = disassembler(folder)
    sources = sorted(SOURCES.glob("*.cu"))
    with ThreadPoolExecutor(min(len(sources), os.cpu_count() or 1)) as pool:
        results = list(pool.map(lambda source: compiled(nvcc, source, folder), sources))
    rows, wrong = "", []
    for source, (cubin, said) in zip(sources, results, strict=True):
        by_name: dict[str, list[dict]] = {}
        for kernel in kernels_of(cubin, said, program):
            by_name.setdefault(kernel["name"], []).append(kernel)
        for name, variants in sorted(by_name.items()):
            what = {key: [variant[key] for variant in variants] for key in variants[0] if key != "name"}
            if max(what["spills"]) > 0:
                wrong.append(f"{source.name}: {name} spills {max(what['spills'])} bytes")
            if name not in NARROW and max(what["loads"]) == 0 and max(what["stores"]) == 0:
                wrong.append(f"{source.name}: {name} accesses no memory by 128 bits")
            if name not in SUMS | NARROW and any(loads > 0 and stores == 0 for loads, stores in zip(what["loads"], what["stores"])):
                wrong.append(f"{source.name}: a variant of {name} reads by 128 bits and writes by fewer")
            rows += (f"| {source.stem} `{name}` | {len(variants)} | {span(what['registers'])} | {span(what['shared'])} | "
                     f"{span([warps(r) for r in what['registers']])} | {span(what['loads'])}, {span(what['stores'])} |\n")
    page = PAGE.read_text(encoding="utf-8")
    begin = page.find(HEAD)
    end = page.find("\n\n", begin) + 1
    if "--write" in sys.argv[3:]:
        PAGE.write_text(page[:begin] + HEAD + rows + page[end:], encoding="utf-8")
    elif begin < 0 or page[begin:end] != HEAD + rows:
        wrong.append(f"src/backend/cuda/kernels/README.md has another table than this compiler makes; with --write it becomes:\n{HEAD}{rows}")
    print("\n".join(wrong) or f"{rows.count(chr(10))} kernels, no spills, tables agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
