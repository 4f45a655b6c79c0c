#!/usr/bin/python3
"""Reads the include lines under src/ and fails on everything that breaks the borders between folders.

    check_includes.py SOURCE_FOLDER

- a folder includes only what the table below allows (src/README.md shows the same table);
- headers of CUDA and NCCL stay in their backend's folder, CLI11 in the command line, oneDNN in the CPU kernels;
- concrete backends are named in runs/select_backend.cpp only;
- backends are chosen by CMake: no #if, #ifdef, #ifndef outside ALLOWED_CONDITIONALS;
- includes start at src/, headers begin with #pragma once, no file is longer than 700 lines;
- a source includes its own header first, so that what this lacks shows where sources are compiled one at a time;
- units (a header with the source of its name) do not include each other in a circle.
"""

import re
import sys
from pathlib import Path

# The rooms of app, each with the rooms before it that it may use.
APP_ROOMS = {
    "app/console": [],
    "app/machine": [],
    "app/experiment": ["app/console", "app/machine"],
    "app/report": ["app/console", "app/machine", "app/experiment"],
    "app/collectives": ["app/console", "app/machine", "app/experiment"],
    "app/acceptance": ["app/console", "app/machine", "app/experiment", "app/collectives"],
    "app/gate": ["app/console", "app/machine", "app/experiment", "app/report", "app/collectives", "app/acceptance"],
    "app/job": ["app/console", "app/machine", "app/experiment", "app/report"],
    "app/commands": ["app/console", "app/machine", "app/experiment", "app/report", "app/collectives", "app/acceptance", "app/gate", "app/job"],
    "app": ["app/console", "app/machine", "app/job", "app/commands"],
}
BELOW_APP = ["hardware", "config", "plan", "schedule", "dialects", "config/words", "backend", "model", "launch", "trace", "replay", "metrics", "accept", "watch", "foreign", "tune", "engine"]
# Everything may include base and itself. A name with a slash is a single header, others are whole folders.
MAY_INCLUDE = {
    "base": [],
    "hardware": [],
    "config/words": [],
    "config": ["config/words"],
    "trace": [],
    "launch": [],
    "backend": ["launch"],
    "backend/cpu": ["backend", "launch", "hardware"],
    "backend/cpu/kernels": ["backend"],
    "backend/cuda": ["backend", "launch", "hardware", "backend/cuda/kernels", "backend/cuda/nccl", "backend/cuda/cupti"],
    "backend/cuda/kernels": ["backend", "backend/cuda/check.h"],
    "backend/cuda/nccl": ["backend", "launch", "backend/cuda/check.h", "backend/cuda/id_exchange.h", "backend/cuda/lane_access.h"],
    "backend/cuda/cupti": ["backend", "backend/cuda/check.h", "backend/cuda/op_timer.h"],
    "backend/virtual": ["backend"],
    "plan": ["config/run_config.h"],
    "schedule": ["plan", "config/run_config.h"],
    "model": ["plan", "backend", "config/run_config.h"],
    "replay": ["trace", "schedule", "plan", "config/run_config.h", "config/cluster.h", "config/calibration.h"],
    "metrics": ["replay", "trace", "schedule", "plan", "config/run_config.h"],
    "tune": ["metrics", "replay", "schedule", "plan", "config"],
    "accept": ["metrics"],
    "watch": ["metrics"],
    "dialects": ["plan", "config", "config/words"],
    "foreign": ["metrics", "replay", "trace", "schedule", "plan", "config", "dialects", "config/words"],
    "engine": ["replay", "schedule", "plan", "model", "backend", "launch", "trace", "config/run_config.h", "config/accuracy.h", "config/cluster.h", "config/calibration.h"],
    **{room: BELOW_APP + rooms for room, rooms in APP_ROOMS.items()},
}
# The CPU backend makes the CPU kernels; nothing else crosses downwards.
SINGLE_FILES = {
    "runs/select_backend.cpp": ["backend/cpu/backend.h", "backend/cuda/backend.h", "backend/virtual/backend.h"],
    "backend/cpu/backend.cpp": ["backend/cpu/kernels/cpu_kernels.h"],
}
# Third-party headers and the only places (folders or files) that may include them.
THIRD_PARTY = [
    (r"cuda|cublas|cupti|cudnn|nvrtc|nccl|nvml", ["backend/cuda"]),
    (r"nvtx", ["trace/nvtx_range.cpp", "backend/cuda"]),
    (r"CLI/", ["app/command_line.cpp"]),
    (r"dnnl|oneapi/dnnl/dnnl\.h", ["backend/cpu/kernels"]),
    (r"toml\+\+", ["config", "hardware/machine_facts.cpp"]),
]
# NCCL of the header and NCCL that runs may differ from each other and from what this was written for.
ALLOWED_CONDITIONALS = {"backend/cuda/cupti/cupti_generation.h", "backend/cuda/nccl/nccl_version.cpp"}
MOST_LINES = 700  # a file holds a whole concept; a class has at most 500 (CONTRIBUTING.md)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".in"}


def folder_of(path: str) -> str:
    """The longest folder of MAY_INCLUDE that holds `path`."""
    folder = path
    while "/" in folder:
        folder = folder.rsplit("/", 1)[0]
        if folder in MAY_INCLUDE:
            return folder
    return ""


def is_within(path: str, place: str) -> bool:
    return path == place or path.startswith(place + "/")


def project_include_problem(path: str, header: str, root: Path) -> str | None:
    source, target = folder_of(path), folder_of(header)
    if not (root / header).exists():
        # Written at build time from a .in file beside it, or a mistake.
        if not (root / (header + ".in")).exists():
            return f'"{header}" is not a path from src/'
    if not target:
        return f'"{header}" lies in no folder of the table'
    if target in ("base", source) or header in SINGLE_FILES.get(path, []):
        return None
    for allowed in MAY_INCLUDE[source]:
        if header == allowed or target == allowed:
            return None
    return f"{source} may not include {header}"


def third_party_problem(path: str, header: str) -> str | None:
    for pattern, places in THIRD_PARTY:
        if re.match(pattern, header) and not any(is_within(path, place) for place in places):
            return f"<{header}> may only be included in {', '.join(places)}"
    return None


def problems_of_file(path: str, text: str, root: Path) -> list[str]:
    found = []
    lines = text.splitlines()
    if not folder_of(path):
        found.append(f"{path}: lies in no folder of the table")
        return found
    for number, line in enumerate(lines, 1):
        if CONDITIONAL.match(line) and path not in ALLOWED_CONDITIONALS:
            found.append(f"{path}:{number}: preprocessor conditional: {line.strip()}")
        if include := INCLUDE.match(line):
            quote, header = include.groups()
            problem = third_party_problem(path, header)
            if problem is None and quote == '"':
                problem = project_include_problem(path, header, root)
            if problem:
                found.append(f"{path}:{number}: {problem}")
    if len(lines) > MOST_LINES:
        found.append(f"{path}: {len(lines)} lines, more than {MOST_LINES}")
    if path.endswith((".h", ".cuh")) and not any(line.strip() == "#pragma once" for line in lines[:5]):
        found.append(f"{path}: does not begin with #pragma once")
    own = re.sub(r"\.cpp$", ".h", path)
    first = next((include.group(2) for line in lines if (include := INCLUDE.match(line))), None)
    if own != path and (root / own).exists() and first != own:
        found.append(f'{path}: its first include is not "{own}"')
    return found


def cycles(includes: dict[str, set[str]]) -> list[list[str]]:
    """Groups of units that reach each other by includes (Tarjan's strongly connected components), sorted."""
    found, index, low, stack = [], {}, {}, []

    def visit(unit: str) -> None:
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in sorted(includes.get(unit, ())):
            if other not in index:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], index[other])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            group = sorted(stack[at:])
            del stack[at:]
            if len(group) > 1:
                found.append(group)

    sys.setrecursionlimit(10_000)
    for unit in sorted(includes):
        if unit not in index:
            visit(unit)
    return sorted(found)


def cycle_problems(texts: dict[str, str]) -> list[str]:
    unit_of = {path: path.rsplit(".", 1)[0] for path in texts}
    includes: dict[str, set[str]] = {unit: set() for unit in unit_of.values()}
    for path, text in texts.items():
        for line in text.splitlines():
            include = INCLUDE.match(line)
            target = unit_of.get(include.group(2)) if include else None
            if target and target != unit_of[path]:
                includes[unit_of[path]].add(target)
    return [f"units that include each other: {', '.join(group)}" for group in cycles(includes)]


def check(root: Path) -> list[str]:
    files = sorted(p for p in root.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    if not files:
        return [f"{root}: no sources found"]
    texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
    found = cycle_problems(texts)
    for path, text in texts.items():
        found += problems_of_file(path, text, root)
    return found


def readme_problems(readme: str) -> list[str]:
    """The table in src/README.md names every folder of MAY_INCLUDE with what it may include."""
    rows = {}
    for line in readme.split("## Who may include whom")[-1].splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.split("|")]
        if len(cells) == 4:
            for folder in re.sub(r"\(.*\)", "", cells[1]).split(","):
                rows[folder.strip()] = cells[2]
    found = []
    for folder, allowed in MAY_INCLUDE.items():
        if folder == "base" or not allowed and folder in rows:
            continue
        if folder in APP_ROOMS:  # beside all that lies below app
            allowed = APP_ROOMS[folder]
        if folder not in rows and not folder.startswith("backend/"):
            found.append(f"src/README.md: its table lacks {folder}")
        found += [f"src/README.md: its row of {folder} lacks {name}" for name in allowed if name not in rows.get(folder, name)]
    return found


def main() -> int:
    root = Path(sys.argv[1])
    problems = check(root) + readme_problems((root / "README.md").read_text(encoding="utf-8"))
    print("\n".join(problems) if problems else "All includes follow the table.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
