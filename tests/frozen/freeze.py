"""Freezes what the program says, so that a change of its structure can be shown to change no answer.

    freeze.py write PROGRAM SOURCE FOLDER [--cases N] [--random PROGRAM] [--corpus PROGRAM]
    freeze.py compare OLD_FOLDER NEW_FOLDER
    freeze.py check PROGRAM SOURCE           # the small sample that `make test` asks, against answers.json
    freeze.py renew PROGRAM SOURCE           # answers.json anew, after a change that was meant

`write` asks every question of QUESTIONS (each run profile: explain in all formats, simulate with all of its files, every
export; clusters, sweeps, the tuner, what-if) and stores each answer as a text file that has no date, path or revision in
it. --random takes N random configurations of all keys along (build/bin/random_configs), --corpus the generated traces of
other programs (build/bin/corpus_files). `compare` names each answer that differs and shows the first lines that do;
what renames.json declares is renamed in the old answers first. Everything is on the computed clock or runs nothing, so
a busy machine changes nothing. Exit codes: 0 equal, 1 not, 2 wrong usage."""

import argparse
import concurrent.futures
import difflib
import fnmatch
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Fields that say when, where and by which build an answer was given, in any JSON document.
VOLATILE = {"world", "digest", "command_line", "seconds", "elapsed_s", "evaluations_per_s", "search_s"}
EXPLAIN = {"table": [], "json": ["--format", "json"],
           "collectives": ["--format", "collectives"], "schedule": ["--schedule"]}
CLOCK = ["--set", "emulate.compute_tflops=0.05", "--set", "emulate.link_gb_per_s=1"]
RATED = {"llama3-8b-emulated", "offload-emulated", "scaling-base"}  # run profiles that say how fast ranks are
STEPS = ["--set", "train.steps=3", "--set", "train.warmup=1"]


class Question:
    """Its name, and command lines that are run one after another in a folder of their own. The answer is what the
    last one prints, and the files below `out` there."""

    def __init__(self, name: str, *commands: list[str]) -> None:
        self.name, self.commands = name, commands


def questions(source: Path) -> list[Question]:
    asked = []
    profiles = sorted(path.stem for path in (source / "profiles/runs").glob("*.toml"))
    for profile in profiles:
        # Profiles of real computation get rates for the computed clock; those of GPUs are simulated on a cluster.
        clock = ["--cluster", "dgx-h100"] if profile.startswith("gpu-") else [] if profile in RATED else CLOCK
        for form, options in EXPLAIN.items():
            asked.append(Question(f"explain/{profile}.{form}", ["explain", profile, *options]))
        asked.append(Question(f"export/{profile}", ["export", profile, "--to", "all", "--out", "out"]))
        asked.append(Question(f"simulate/{profile}", ["simulate", profile, *clock, "--out", "out"]))
        asked.append(Question(f"simulate/{profile}.explained", ["simulate", profile, *clock, "--out", "run"],
                              ["explain", "--from", "run"]))
        asked.append(Question(f"simulate/{profile}.exported", ["simulate", profile, *clock, "--out", "run"],
                              ["trace", "explain", "run/trace", "--out", "out"]))
    for preset in ("fsdp1", "fsdp2", "deepspeed-z1", "deepspeed-z2", "deepspeed-z3", "megatron-v2",
                   "simplefsdp", "xla"):
        settings = ["--set", f"fsdp.preset={preset}"]
        asked.append(Question(f"preset/{preset}.explain", ["explain", "llama3-8b-emulated", *settings]))
        asked.append(Question(f"preset/{preset}.simulate", ["simulate", "llama3-8b-emulated", *settings, "--out", "out"]))
        asked.append(Question(f"preset/{preset}.export", ["export", "llama3-8b-emulated", *settings, "--to", "all",
                                                         "--out", "out"]))
    for cluster in sorted(path.stem for path in (source / "profiles/clusters").glob("*.toml")):
        asked.append(Question(f"cluster/{cluster}", ["simulate", "llama3-8b-emulated", "--cluster", cluster, "--ranks",
                                                     "16", "--out", "out"]))
    asked.append(Question("cluster/large", ["simulate", "llama3-8b-emulated", "--cluster", "dgx-h100", "--ranks", "1024",
                                            "--out", "out"]))
    trouble = {"slow-rank": ["inject.slow_rank=1", "inject.slow_rank_factor=1.5"], "jitter": ["simulate.jitter_pct=5"],
               "slow-link": ["inject.slow_link_rank=1", "inject.slow_link_factor=2"],
               "sync": ["inject.host_sync_after_layer=1"]}
    for name, keys in trouble.items():
        settings = [argument for key in keys for argument in ("--set", key)]
        asked.append(Question(f"trouble/{name}", ["simulate", "llama3-8b-emulated", *settings, "--out", "out"]))
        asked.append(Question(f"trouble/{name}.explained", ["simulate", "llama3-8b-emulated", *settings, "--out", "run"],
                              ["explain", "--from", "run"]))
    changes = {"link": ["--link-scale", "2"], "prefetch": ["--set", "fsdp.backward_prefetch=none"],
               "wrap": ["--set", "fsdp.wrap=blocks:2"], "strategy": ["--set", "fsdp.strategy=shard_grad_op"]}
    for name, options in changes.items():
        asked.append(Question(f"what-if/{name}", ["simulate", "llama3-8b-emulated", "--out", "run"],
                              ["what-if", "run", *options, "--out", "out"]))
    asked.append(Question("tune/budget", ["tune", "llama3-8b-emulated", "--memory", "30GiB", "--evaluations", "300",
                                          "--threads", "1", "--out", "out"]))
    asked.append(Question("tune/cluster", ["tune", "llama3-8b-emulated", "--cluster", "dgx-h100", "--evaluations", "300",
                                           "--threads", "1", "--allow-dtypes", "bf16", "--out", "out"]))
    asked.append(Question("tune/traces", ["simulate", "llama3-8b-emulated", "--out", "run"],
                          ["tune", "--from", "run/trace", "--evaluations", "100", "--threads", "1", "--out", "out"]))
    asked.append(Question("compare/stored", ["simulate", "llama3-8b-emulated", "--out", "a"],
                          ["simulate", "llama3-8b-emulated", "--set", "fsdp.backward_prefetch=none", "--out", "b"],
                          ["compare", "a", "b"]))
    return asked


# One of each kind; what engines_test.py and trace_explain_test.py hold to the nanosecond is left to `freeze.py write`.
SAMPLE = ("explain/quickstart.*", "explain/hybrid.schedule", "export/llama3-8b-emulated", "simulate/fsdp1", "simulate/hybrid*",
          "preset/deepspeed-z3.*", "cluster/dgx-h100", "what-if/strategy", "tune/budget", "compare/stored")


def plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in VOLATILE}
    return [plain(item) for item in value] if isinstance(value, list) else value


def canonical(text: str) -> str:
    """JSON with its keys in order and nothing volatile in it; anything else, and traces, which are large, as it is."""
    if not text.lstrip().startswith(("{", "[")) or '"traceEvents"' in text[:10000]:
        return text
    try:
        return json.dumps(plain(json.loads(text)), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    except json.JSONDecodeError:
        return text


def without_places(text: str, places: dict[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    text = re.sub(r"\d{4}-\d\d-\d\dT?[-_ ]?\d\d[:-]?\d\d[:-]?\d\d(Z|\+\d+)?", "<time>", text)
    return re.sub(r"(?<=revision )[0-9a-f]{7,40}(-dirty)?", "<revision>", text)


def files_below(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".gz":
                content = gzip.decompress(content)
            yield str(path.relative_to(folder)), content.decode("utf-8", "replace")


def ask(program: str, source: Path, question: Question) -> dict[str, str]:
    """Its answers, by file name; "printed" is what the last command printed and how it ended."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "profiles").symlink_to(source / "profiles")  # names are looked up where the program is started
        clean = {key: value for key, value in os.environ.items() if not key.startswith("FSDPBENCH_")}
        for command in question.commands:
            command = command + STEPS if command[0] == "simulate" else command
            done = subprocess.run([program, *command], cwd=folder, capture_output=True, text=True, timeout=900,
                                  env=clean | {"NO_COLOR": "1", "COLUMNS": "120", "FSDPBENCH_PYTHON": "/bin/false"})
        # Neither progress, nor the page that needs a Python with matplotlib.
        errors = [line for line in done.stderr.splitlines()
                  if not line.startswith(("step ", "no page: ")) and "policies" not in line]
        answers = {"printed": canonical(done.stdout) + "\n".join(errors) + f"\nexit {done.returncode}\n"}
        if (folder / "out").is_dir():
            answers |= {name: canonical(text) for name, text in files_below(folder / "out")}
        places = {str(folder): "<folder>", str(source): "<source>", os.path.realpath(folder): "<folder>",
                  str(Path(program).resolve()): "<program>"}
        return {name: without_places(text, places) for name, text in answers.items()}


def ask_all(program: str, source: Path, asked: list[Question]) -> Iterator[tuple[str, str]]:
    """Each answer of all questions as "question/file" and its text."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for question, files in zip(asked, pool.map(lambda one: ask(program, source, one), asked)):
            for name, text in files.items():
                yield f"{question.name}/{name}", text


def store(answers: Iterable[tuple[str, str]], folder: Path) -> None:
    for name, text in answers:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write(arguments: argparse.Namespace) -> int:
    source, folder = Path(arguments.source).resolve(), Path(arguments.folder)
    program = str(Path(arguments.program).resolve())
    wanted = [one for one in questions(source) if fnmatch.fnmatch(one.name, arguments.only)]
    store(ask_all(program, source, wanted), folder)
    if arguments.random:
        with tempfile.TemporaryDirectory() as kept:
            subprocess.run([arguments.random, str(source), str(arguments.cases), "1", str(1 << 60), kept], check=True,
                           stdout=subprocess.DEVNULL)
            places = {kept: "<folder>", str(source): "<source>"}
            store(((f"random/{name}", without_places(canonical(text), places))
                   for name, text in files_below(Path(kept))), folder)
    if arguments.corpus:
        with tempfile.TemporaryDirectory() as made:
            subprocess.run([arguments.corpus, made], check=True, stdout=subprocess.DEVNULL)
            cases = [Question(f"corpus/{case.name}", ["trace", "explain", str(case), "--out", "out"])
                     for case in sorted(Path(made).iterdir())]
            store(((name, text.replace(made, "<folder>")) for name, text in ask_all(program, source, cases)), folder)
    print(f"{sum(1 for path in folder.rglob('*') if path.is_file())} answers in {folder}")
    return 0


def renamed(name: str, text: str, renames: list[dict[str, str]]) -> str:
    """An old answer in today's words."""
    for rename in renames:
        if fnmatch.fnmatch(name, rename.get("in", "*")):
            text = re.sub(rename["old"], rename["new"], text)
    return canonical(text)


def compare(arguments: argparse.Namespace) -> int:
    renames = json.loads((HERE / "renames.json").read_text(encoding="utf-8"))
    old, new = Path(arguments.old), Path(arguments.new)
    names = sorted({str(path.relative_to(folder)) for folder in (old, new) for path in folder.rglob("*") if path.is_file()})
    names = [name for name in names if fnmatch.fnmatch(name, arguments.only)]
    differ = 0
    for name in names:
        if not ((old / name).exists() and (new / name).exists()):
            print(f"only in {old if (old / name).exists() else new}: {name}")
            differ += 1
            continue
        before = renamed(name, (old / name).read_text(encoding="utf-8"), renames)
        after = canonical((new / name).read_text(encoding="utf-8"))
        if before == after:
            continue
        differ += 1
        lines = [line[:200] for line in difflib.unified_diff(before.splitlines()[:20000], after.splitlines()[:20000], "old",
                                                             "new", n=0, lineterm="")][2:]
        print(f"{name}:", *lines[:arguments.lines], sep="\n  ")
    print(f"{len(names)} answers, {differ} differ")
    return 1 if differ or not names else 0


def sample(arguments: argparse.Namespace) -> dict[str, str]:
    source = Path(arguments.source).resolve()
    asked = [one for one in questions(source) if any(fnmatch.fnmatch(one.name, pattern) for pattern in SAMPLE)]
    answers = ask_all(str(Path(arguments.program).resolve()), source, asked)
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in answers}


def renew(arguments: argparse.Namespace) -> int:
    answers = dict(sorted(sample(arguments).items()))
    (HERE / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    print(f"{len(answers)} answers frozen")
    return 0


def check(arguments: argparse.Namespace) -> int:
    frozen, now = json.loads((HERE / "answers.json").read_text(encoding="utf-8")), sample(arguments)
    differ = [name for name in sorted(frozen.keys() | now.keys()) if frozen.get(name) != now.get(name)]
    for name in differ:
        what = "is no longer given" if name not in now else "is new" if name not in frozen else "has changed"
        print(f"{name} {what}")
    if differ:
        print("If that was meant, look at the difference (freeze.py write with both programs, then compare), and say\n"
              "  tests/frozen/freeze.py renew build/bin/fsdpbench .")
    print(f"{len(frozen)} frozen answers, {len(differ)} differ")
    return 1 if differ or not now else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (write, check, renew):
        command = commands.add_parser(function.__name__)
        command.set_defaults(function=function)
        command.add_argument("program")
        command.add_argument("source")
        if function is write:
            command.add_argument("folder")
            command.add_argument("--cases", type=int, default=500)
            command.add_argument("--random")
            command.add_argument("--corpus")
            command.add_argument("--only", default="*", help="questions, as explain/*")
    command = commands.add_parser("compare")
    command.set_defaults(function=compare)
    command.add_argument("old")
    command.add_argument("new")
    command.add_argument("--only", default="*", help="answers, as explain/*")
    command.add_argument("--lines", type=int, default=6, help="of each difference")
    arguments = parser.parse_args()
    return arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())
