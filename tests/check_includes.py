#!/usr/bin/python3
"""The one table of folders: what each is, what it may include, how many lines it may have. Fails on whatever breaks it.

    check_includes.py SOURCE_FOLDER [--print-budget | --set-budget | --write-readme]

- a folder includes only what its row allows, and a row stands below all that it uses: no include runs up;
- no folder, and none of the limits of the whole project, is above its budget; no room has too large a share;
- the table in src/README.md is this one (--write-readme writes it);
- headers of CUDA, NCCL and CUPTI stay in their backend's folder, CLI11 in the command line, oneDNN in the CPU kernels;
- concrete backends are named in runs/select_backend.cpp only;
- backends are chosen by CMake: no #if, #ifdef, #ifndef outside ALLOWED_CONDITIONALS;
- includes start at src/, headers begin with #pragma once, no file is longer than 700 lines;
- a source includes its own header first, so that what this lacks shows where sources are compiled one at a time;
- units (a header with the source of its name) do not include each other in a circle.

--print-budget shows what there is beside what there may be, and the picture of rooms. --set-budget sets every budget to
what there is, rounded up: a decision, which the commit's message explains.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    name: str
    lines: int  # budget
    begin: str  # headers to begin reading at
    uses: str  # folders and single headers, beside base and itself
    concept: str


# A room is a folder of src, with those in it; they may use each other. Rooms stand below the rooms that they use.
FOLDERS = [
    Folder("base", 2000, "lane.h, lane_pool.h", "",
           "bytes, lanes, clocks, errors"),
    Folder("record", 1450, "json_fields.h, table.h, console.h", "",
           "a thing is declared once, with name, unit and meaning, and can be written, read, tabled, printed and documented"),
    Folder("config/words", 650, "words.h, system_file.h", "",
           "what other engines and frameworks call things, of profiles/systems: presets of their defaults, words that people bring along, names in traces"),
    Folder("config", 5150, "run_config.h, fields.cpp", "config/words/words.h",
           "every key as a line: read, written, checked, documented; machines to simulate; where files are found by name"),
    Folder("launch", 3050, "session.h, run_ranks.h", "",
           "who the ranks are: threads, or processes of a launcher; how they meet, talk and end"),
    Folder("hardware", 1350, "host_topology.h, gpu_monitor.h", "record/table.h",
           "what the host is built of and has left; how its GPUs fare"),
    Folder("trace", 3250, "record.h, FORMAT.md", "hardware/gpu_health.h",
           "records of ops, and the two Chrome files made of them and read again"),
    Folder("plan", 1750, "plan.h", "config/run_config.h",
           "who owns which bytes: units, mesh, shard layouts; closed forms of communication"),
    Folder("schedule", 4600, "training.h, op.h, policy.h, build_schedules.cpp", "plan config/run_config.h",
           "in which order a step is issued: ops, lanes, allocations, policies; a training is a configuration with all that follows from it"),
    Folder("dialects", 1400, "dialect.h, vocabulary.h", "plan config config/words",
           "a configuration in another system's words"),
    Folder("backend", 800, "device.h, communicator.h", "launch hardware/gpu_health.h",
           "interfaces of what runs ranks: device, communicator, kernels"),
    Folder("backend/cpu/kernels", 1600, "cpu_kernels.h", "backend",
           "the arithmetic on processors; matrix products by oneDNN"),
    Folder("backend/cpu", 2900, "cpu_backend.h", "backend launch",
           "lanes as threads, ranks as threads or processes, emulated links and compute"),
    Folder("backend/cuda/kernels", 3800, "cuda_kernels.h", "backend backend/cuda/check.h",
           "the arithmetic on NVIDIA GPUs, with cuBLASLt and cuDNN"),
    Folder("backend/cuda/nccl", 1350, "nccl_communicator.h",
           "backend launch backend/cuda/check.h backend/cuda/id_exchange.h backend/cuda/lane_access.h",
           "collectives by NCCL, and their watch"),
    Folder("backend/cuda/cupti", 1700, "cupti_timer.h", "backend backend/cuda/op_timer.h",
           "what the GPU itself recorded of each op"),
    Folder("backend/cuda", 2050, "cuda_device.h, plugin.h",
           "backend launch hardware backend/cuda/kernels backend/cuda/nccl",
           "lanes as streams: a plugin beside the program, which needs no CUDA itself"),
    Folder("model", 1700, "model.h", "plan backend config/run_config.h",
           "layers with explicit forward and backward, written once against the kernels"),
    Folder("clock", 5900, "forecast.h, op_times.h", "trace schedule plan config",
           "what a step would take: schedules on a computed clock, what ops cost, how wrong that may be; no thread, no sleeping"),
    Folder("account", 5200, "run_view.h, cause.h, find_stalls.h, judge.h",
           "record/table.h hardware/gpu_health.h trace schedule plan dialects clock config/run_config.h",
           "why nothing was computed: numbers of a step, one table of causes, one walk that finds them, what a change would gain"),
    Folder("engine", 3500, "setup.h, run.h", "launch hardware/gpu_health.h trace schedule plan backend model clock config",
           "the executor: the only place where schedule meets backend; masters, data, checkpoints"),
    Folder("runs", 6250, "cell.h, trial.h, measure.h, result_fields.h",
           "record config launch hardware trace plan schedule backend model clock account engine",
           "a cell, a trial, a sweep, a job of several processes; their world and their files"),
    Folder("tune", 4400, "space.h, search.h, what_if.h", "record config hardware/other_work.h plan schedule clock account engine runs",
           "the best setting under a budget; what another setting would take; what to expect of a machine"),
    Folder("foreign", 11850, "job_trace.h, explain.h, match_schedule.h",
           "record config config/words trace plan schedule dialects clock account engine runs tune",
           "other programs' traces up to a step that the walk of causes understands, and what is said of them"),
    Folder("accept/collectives", 2050, "measure_collectives.h",
           "record config launch hardware backend account engine runs",
           "collectives alone, as nccl-tests measure them; several at once"),
    Folder("accept/stages", 3800, "acceptance.h, measure_acceptance.h, acceptance_report.h",
           "record config launch hardware schedule backend account engine runs accept/collectives accept",
           "the stages on real ranks and the time they may take; the judgement and its files"),
    Folder("accept/gate", 900, "gate_report.h", "record config/write.h hardware/other_work.h account runs accept/stages accept",
           "later results against accepted ones"),
    Folder("accept", 2600, "finding.h, blame_links.h, verdict.h", "record account runs/result_fields.h",
           "fit or not, and who is to blame: from rates to named parts, with interval and evidence"),
    Folder("app/commands", 4250, "command.h, run.cpp",
           "record config config/words launch hardware trace schedule dialects clock account engine runs tune foreign "
           "accept/collectives accept/stages accept/gate app",
           "a file a command: its options, help and body"),
    Folder("app", 1050, "main.cpp, command_line.cpp",
           "record config config/words launch hardware trace plan schedule backend clock account engine runs tune app/commands",
           "the program: the command line, and what single commands say"),
]


@dataclass(frozen=True)
class Limit:
    name: str
    most: int
    unit: str
    files: str  # globs from the root of the tree; those after "-" are left out


# Of the whole project. Keys are the rows of "All keys" in profiles/README.md, which config_test keeps current.
LIMITS = [
    Limit("src", 640, "files", "src/**/*.cpp src/**/*.h src/**/*.cu src/**/*.cuh"),
    Limit("keys", 159, "keys", "profiles/README.md"),
    Limit("tests", 94450, "lines", "tests/**/*.cpp tests/**/*.h tests/**/*.cu tests/**/*.cuh tests/**/*.py"),
    Limit("analysis/fsdpbench", 10150, "lines", "analysis/fsdpbench/**/*.py"),
    Limit("bench", 4250, "lines", "bench/**/*.cpp bench/**/*.h"),
    Limit("profiles", 4750, "lines", "profiles/**/*.toml"),
    Limit("docs", 38400, "words", "docs/**/*.md - docs/result-format.md"),
]
MOST_ROOMS = 21  # with bench and analysis
MOST_FLOORS = 10  # the longest chain of rooms that use each other
MOST_SHARE = {"backend": 16}  # per cent of all lines, bench and analysis among them; of the other rooms:
MOST_SHARE_OF_OTHERS = 13

# Concrete backends are chosen in one place; the CPU backend makes the CPU kernels.
SINGLE_FILES = {
    "runs/select_backend.cpp": ["backend/cpu/backend.h", "backend/cuda/backend.h"],
    "backend/cpu/backend.cpp": ["backend/cpu/kernels/cpu_kernels.h"],
}
# Third-party headers and the only places (folders or files) that may include them.
THIRD_PARTY = [
    (r"cuda|cublas|cupti|cudnn|nvrtc|nccl|nvml", ["backend/cuda"]),
    (r"nvtx", ["trace/nvtx_range.cpp", "backend/cuda"]),
    (r"mpi\.h", []),
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
BY_NAME = {folder.name: folder for folder in FOLDERS}
README_BEGIN = "<!-- begin: written by tests/check_includes.py src --write-readme -->\n"
README_END = "<!-- end -->\n"


def folder_of(path: str) -> str:
    """The longest folder of the table that holds `path`."""
    folder = path
    while "/" in folder:
        folder = folder.rsplit("/", 1)[0]
        if folder in BY_NAME:
            return folder
    return ""


def room_of(name: str) -> str:
    return name.split("/")[0]


def is_within(path: str, place: str) -> bool:
    return path == place or path.startswith(place + "/")


def table_problems() -> list[str]:
    """A row uses what stands above it; within a room, anything."""
    found = []
    rooms = list(dict.fromkeys(room_of(folder.name) for folder in FOLDERS))
    for folder in FOLDERS:
        for used in folder.uses.split():
            if used not in BY_NAME and not folder_of(used):
                found.append(f"{folder.name}: its row uses {used}, which is in no row")
            elif rooms.index(room_of(used)) > rooms.index(room_of(folder.name)):
                found.append(f"{folder.name}: its row uses {used}, which stands below it")
    return found


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
    if header in BY_NAME[source].uses.split() or target in BY_NAME[source].uses.split():
        return None
    return f"{source} may not include {header}"


def third_party_problem(path: str, header: str) -> str | None:
    for pattern, places in THIRD_PARTY:
        if re.match(pattern, header) and not any(is_within(path, place) for place in places):
            return f"<{header}> may only be included in {', '.join(places) or 'no file'}"
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


def sources(root: Path) -> dict[str, str]:
    files = sorted(p for p in root.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


def check(root: Path) -> list[str]:
    texts = sources(root)
    if not texts:
        return [f"{root}: no sources found"]
    found = table_problems() + cycle_problems(texts)
    for path, text in texts.items():
        found += problems_of_file(path, text, root)
    return found


def lines_of(text: str) -> int:
    return text.count("\n")


def lines_by_folder(texts: dict[str, str]) -> dict[str, int]:
    found = {folder.name: 0 for folder in FOLDERS}
    for path, text in texts.items():
        if folder_of(path) and not path.endswith(".in"):
            found[folder_of(path)] += lines_of(text)
    return found


def measured(limit: Limit, tree: Path) -> int:
    globs, _, without = limit.files.partition(" - ")
    left_out = {file for glob in without.split() for file in tree.glob(glob)}
    files = [file for glob in globs.split() for file in tree.glob(glob) if file not in left_out]
    if limit.unit == "files":
        return len(files)
    texts = [file.read_text(encoding="utf-8") for file in files]
    if limit.unit == "keys":
        rows = [text.split("\n## All keys\n")[-1] for text in texts]
        return sum(len(re.findall(r"^\| `[^`]+` \|", row, re.MULTILINE)) for row in rows)
    return sum(len(text.split()) if limit.unit == "words" else lines_of(text) for text in texts)


def budget_problems(lines: dict[str, int], limits: dict[str, int]) -> list[str]:
    what = "raise it in tests/check_includes.py, and say in the commit's message why, or take something out"
    found = []
    for folder in FOLDERS:
        have = lines.get(folder.name, 0)
        if have > folder.lines:
            found.append(f"src/{folder.name}: {have} lines, {have - folder.lines} more than its budget: {what}")
        if have == 0:
            found.append(f"src/{folder.name}: is in the table and has no sources")
    for limit in LIMITS:
        if (have := limits.get(limit.name, 0)) > limit.most:
            found.append(f"{limit.name}: {have} {limit.unit}, {have - limit.most} more than its budget: {what}")
    return found


@dataclass
class Picture:
    """Rooms, bench and analysis among them: lines and what they use, by name."""

    lines: dict[str, int]
    uses: dict[str, set[str]]

    def floors(self) -> dict[str, int]:
        """Of each room: 1 if it uses none, else one more than the highest that it uses."""
        known: dict[str, int] = {}

        def floor(room: str) -> int:
            if room not in known:
                known[room] = 0  # of a circle, which is a problem of its own
                known[room] = 1 + max((floor(used) for used in self.uses[room]), default=0)
            return known[room]

        return {room: floor(room) for room in self.lines}

    def share(self, room: str) -> float:
        return 100 * self.lines[room] / sum(self.lines.values())

    def problems(self) -> list[str]:
        found = []
        if len(self.lines) > MOST_ROOMS:
            found.append(f"{len(self.lines)} rooms, more than {MOST_ROOMS}: merge those that only ever appear together")
        if (highest := max(self.floors().values())) > MOST_FLOORS:
            found.append(f"rooms that use each other make {highest} floors, more than {MOST_FLOORS}")
        for room in self.lines:
            most = MOST_SHARE.get(room, MOST_SHARE_OF_OTHERS)
            if self.share(room) > most:
                found.append(f"{room}: {self.share(room):.1f} % of all lines, more than {most} %")
        return found


def picture(texts: dict[str, str], tree: Path) -> Picture:
    lines: dict[str, int] = {}
    uses: dict[str, set[str]] = {}
    outside = {"bench": ["*.cpp", "*.h"], "analysis": ["fsdpbench/**/*.py"]}
    files = [(room_of(path), text) for path, text in texts.items() if not path.endswith(".in")]
    files += [(name, file.read_text(encoding="utf-8")) for name, globs in outside.items()
              for glob in globs for file in (tree / name).rglob(glob)]
    for room, text in files:
        lines[room] = lines.get(room, 0) + lines_of(text)
        found = uses.setdefault(room, set())
        for line in text.splitlines():
            include = INCLUDE.match(line)
            if include and include.group(2) in texts and room_of(include.group(2)) != room:
                found.add(room_of(include.group(2)))
    return Picture(lines, uses)


def readme_table() -> str:
    rows = ["| folder | the concept | begin reading at | may include, beside base |", "|---|---|---|---|"]
    for folder in FOLDERS:
        begin = ", ".join(f"`{name}`" for name in folder.begin.split(", "))
        uses = ", ".join(f"`{name}`" if name.endswith(".h") else name for name in folder.uses.split()) or "–"
        rows.append(f"| `{folder.name}/` | {folder.concept} | {begin} | {uses} |")
    return README_BEGIN + "\n" + "\n".join(rows) + "\n\n" + README_END


def readme_problems(readme: str) -> list[str]:
    if readme_table() in readme:
        return []
    return ["src/README.md does not hold the table of tests/check_includes.py: run it with --write-readme"]


def begin_problems(root: Path) -> list[str]:
    return [f"src/{folder.name}/{name} is where to begin reading, and is not there"
            for folder in FOLDERS for name in folder.begin.split(", ") if not (root / folder.name / name).exists()]


def write_readme(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    begin, end = text.index(README_BEGIN), text.index(README_END) + len(README_END)
    path.write_text(text[:begin] + readme_table() + text[end:], encoding="utf-8")


def print_budget(texts: dict[str, str], tree: Path) -> None:
    lines = lines_by_folder(texts)
    print(f"{'folder':22} {'lines':>7} {'budget':>7}")
    for folder in FOLDERS:
        print(f"{folder.name:22} {lines[folder.name]:7} {folder.lines:7}")
    for limit in LIMITS:
        print(f"{limit.name:22} {measured(limit, tree):7} {limit.most:7} {limit.unit}")
    now = picture(texts, tree)
    floors = now.floors()
    print(f"\n{'room':10} {'lines':>7} {'share':>7} {'floor':>6}  uses")
    for room in sorted(now.lines, key=lambda name: (floors[name], name)):
        print(f"{room:10} {now.lines[room]:7} {now.share(room):5.1f} % {floors[room]:6}  {' '.join(sorted(now.uses[room]))}")
    print(f"{len(now.lines)} rooms, {max(floors.values())} floors, {sum(map(len, now.uses.values()))} arrows, "
          f"{sum(lines.values())} lines in src")
    for folder in FOLDERS:
        used = {header for path, text in texts.items() if folder_of(path) == folder.name
                for line in text.splitlines() if (include := INCLUDE.match(line)) for header in [include.group(2)]}
        idle = [name for name in folder.uses.split() if name not in used and all(folder_of(h) != name for h in used)]
        if idle:
            print(f"{folder.name} may include and does not: {' '.join(idle)}")


def set_budget(texts: dict[str, str], tree: Path) -> None:
    """Rounded up to 50, so that a fix of some lines is no decision; files to 5, keys not at all."""
    script = Path(__file__)
    text = script.read_text(encoding="utf-8")

    def put(kind: str, name: str, value: int) -> None:
        nonlocal text
        text = re.sub(rf'(?<=    {kind}\("{re.escape(name)}", )\d+', str(value), text)

    for name, lines in lines_by_folder(texts).items():
        put("Folder", name, -(-lines // 50) * 50)
    for limit in LIMITS:
        step = {"keys": 1, "files": 5, "words": 100}.get(limit.unit, 50)
        put("Limit", limit.name, -(-measured(limit, tree) // step) * step)
    script.write_text(text, encoding="utf-8")


def main() -> int:
    root = Path(sys.argv[1])
    tree = root.resolve().parent
    options = sys.argv[2:]
    texts = sources(root)
    if options == ["--print-budget"]:
        print_budget(texts, tree)
        return 0
    if options == ["--set-budget"]:
        set_budget(texts, tree)
        return 0
    if options == ["--write-readme"]:
        write_readme(root / "README.md")
        return 0
    problems = check(root) + readme_problems((root / "README.md").read_text(encoding="utf-8")) + begin_problems(root)
    problems += budget_problems(lines_by_folder(texts), {limit.name: measured(limit, tree) for limit in LIMITS})
    problems += picture(texts, tree).problems()
    print("\n".join(problems) if problems else "All includes and budgets follow the table.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
