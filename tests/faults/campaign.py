#!/usr/bin/python3
"""A random campaign of faults: each case breaks something at a seeded moment or place, and all promises are asked for.

    campaign.py PROGRAM SOURCE_FOLDER [--cases N] [--seed S] [--only K] [--kind NAME] [--jobs J]
                [--of program|accept|checkpoint] [--summary FILE]

A case is decided by the seed and its number alone, so `--seed S --only K` runs it again; what the machine does meanwhile
is not in the seed. The promises (promises.py): every finished measurement is there once; exit codes are those of
docs/exit-codes.md; nothing hangs; no process is left; no traceback and no library's words; files are whole or not there. What a
case does is a function of one of the *_faults.py. `--of accept`: faults that are planted for `accept` to find; of twenty
at least nineteen must be named right, and none may pass. `--of checkpoint`: kills while a training is saved or trains.
"""

import argparse
import collections
import concurrent.futures
import importlib
import json
import os
import platform
import random
import subprocess
import sys
import time
import traceback
import unittest
from pathlib import Path

import fault
import harness

# They fill fault.ALL; in another order a seed would mean other cases.
MODULES = {"program": ("run_faults", "sweep_faults", "file_faults", "job_faults"), "accept": ("accept_faults",),
           "checkpoint": ("checkpoint_faults",)}
NAMED_RIGHT = 0.95


def kinds_of(cases: int, seed: int, only: str) -> list[str]:
    """Each kind as often as its weight says, in a random order: the first of any length are a fair sample."""
    chosen = {name: entry.weight for name, entry in fault.ALL.items() if not only or name == only}
    if not chosen:
        raise SystemExit(f"there is no kind '{only}'; known are {', '.join(fault.ALL)}")
    order = random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < cases:
        deck = [name for name, weight in chosen.items() for _ in range(weight)]
        order.shuffle(deck)
        kinds += deck
    return kinds[:cases]


class Outcome:
    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.skipped = ""
        self.broken = ""
        self.named: bool | None = None
        self.said = ""
        self.codes: list[str] = []
        self.seconds = 0.0


def run_case(seed: int, number: int, kind: str) -> Outcome:
    outcome = Outcome(number, kind)
    begin = time.monotonic()
    case = fault.Case(random.Random(f"{seed}/{number}/{kind}"))
    try:
        fault.ALL[kind].call(case)
        case.check_all()
    except unittest.SkipTest as skip:
        outcome.skipped = str(skip)
    except AssertionError as error:  # promises.Broken and harness.Hang among them
        outcome.broken = f"{type(error).__name__}: {error}"
    except Exception:  # the campaign's own mistake must not end it
        outcome.broken = traceback.format_exc()
    finally:
        outcome.codes, outcome.named, outcome.said = case.codes, case.named, case.said
        try:
            case.bench.close()
        except AssertionError as error:
            outcome.broken = outcome.broken or str(error)
    outcome.seconds = time.monotonic() - begin
    return outcome


def revision() -> str:
    done = subprocess.run([harness.PROGRAM, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def command(chosen: argparse.Namespace, seed: int) -> str:
    """That does the same again, from the source folder."""
    program = os.path.relpath(harness.PROGRAM, harness.SOURCE)
    return f"tests/faults/campaign.py {program} . --cases {chosen.cases} --seed {seed} --jobs {chosen.jobs}" + (
        f" --of {chosen.of}" if chosen.of != "program" else "")


def summary(outcomes: list[Outcome], again: str, seed: int, seconds: float, load: str) -> dict:
    by_kind: dict[str, dict] = {}
    for outcome in sorted(outcomes, key=lambda o: o.kind):
        entry = by_kind.setdefault(outcome.kind, {"cases": 0, "skipped": 0, "broken": 0, "exit_codes": {}})
        entry["cases"] += 1
        entry["skipped"] += bool(outcome.skipped)
        entry["broken"] += bool(outcome.broken)
        for code, count in collections.Counter(outcome.codes).items():
            entry["exit_codes"][code] = entry["exit_codes"].get(code, 0) + count
    ran = [outcome for outcome in outcomes if not outcome.skipped]
    return {
        "command": again,
        "program": revision(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} processors, {platform.system()}, load before and after: {load}, "
                   f"{Path('/proc/loadavg').read_text().split()[0]}",
        "seed": seed,
        "faults": len(ran),
        "skipped": dict(collections.Counter(outcome.skipped for outcome in outcomes if outcome.skipped)),
        "broken": [{"case": o.number, "kind": o.kind, "why": o.broken[:400]} for o in outcomes if o.broken],
        **named(ran),
        "processes_ended": sum(len(outcome.codes) for outcome in ran),
        "seconds": round(seconds),
        "kinds": by_kind,
    }


def named(ran: list[Outcome]) -> dict:
    """Counts of faults that were to be found."""
    asked = [outcome for outcome in ran if outcome.named is not None]
    missed = [{"case": o.number, "kind": o.kind, "said": o.said[:400]} for o in asked if not o.named]
    return {"named_right": len(asked) - len(missed), "to_be_named": len(asked), "missed": missed} if asked else {}


def print_table(found: dict) -> None:
    width = max(map(len, found["kinds"]))
    for kind, entry in found["kinds"].items():
        codes = "  ".join(f"{code}: {count}" for code, count in sorted(entry["exit_codes"].items()))
        print(f"{kind:{width}}  {entry['cases']:4}  {codes}")
    for reason, count in found["skipped"].items():
        print(f"skipped {count}: {reason}")
    print(f"{found['faults']} faults in {found['seconds']} s, {found['processes_ended']} processes, "
          f"{len(found['broken'])} promises broken; seed {found['seed']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("source")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--only", type=int, help="the number of one case")
    parser.add_argument("--kind", default="", help="one kind of fault")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--of", choices=MODULES, default="program", help="faults of the program, those for accept to find, or kills of a training that is saved")
    parser.add_argument("--summary", help="a JSON file for the counts")
    chosen = parser.parse_args()
    harness.own_network() if chosen.of == "accept" else harness.own_mounts()
    for module in MODULES[chosen.of]:
        importlib.import_module(module)
    harness.PROGRAM = str(Path(chosen.program).resolve())
    harness.SOURCE = Path(chosen.source).resolve()
    seed = random.randrange(2**32) if chosen.seed is None else chosen.seed
    kinds = kinds_of(chosen.cases if chosen.only is None else max(chosen.cases, chosen.only + 1), seed, chosen.kind)
    numbers = range(len(kinds)) if chosen.only is None else [chosen.only]
    load = Path("/proc/loadavg").read_text().split()[0]
    begin = time.monotonic()
    outcomes = []
    print(f"seed {seed}, {len(numbers)} cases", flush=True)
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run_case, seed, k, kinds[k]) for k in numbers]):
            outcome = done.result()
            outcomes.append(outcome)
            words = "BROKEN" if outcome.broken else "skipped" if outcome.skipped else "ok"
            if outcome.named is not None and not outcome.broken:
                words = "named right" if outcome.named else f"NOT NAMED: {outcome.said}"
            print(f"case {outcome.number:4} of seed {seed}: {outcome.kind}: {words} [{' '.join(outcome.codes)}] "
                  f"{outcome.seconds:.1f} s", flush=True)
            if outcome.broken:
                print(f"  {outcome.broken}\n  again: {sys.argv[0]} {chosen.program} {chosen.source} --seed {seed} "
                      f"--only {outcome.number} --cases {chosen.cases}"
                      f"{' --kind ' + chosen.kind if chosen.kind else ''}{f' --of {chosen.of}' if chosen.of != 'program' else ''}",
                      flush=True)
    found = summary(outcomes, command(chosen, seed), seed, time.monotonic() - begin, load)
    print_table(found)
    if chosen.summary:
        Path(chosen.summary).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if "to_be_named" in found:
        print(f"named right: {found['named_right']} of {found['to_be_named']}")
    unnamed = found.get("named_right", 0) < NAMED_RIGHT * found.get("to_be_named", 0)
    return 1 if found["broken"] or unnamed else 0


if __name__ == "__main__":
    sys.exit(main())
