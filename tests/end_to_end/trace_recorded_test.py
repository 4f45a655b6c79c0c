#!/usr/bin/python3
"""`trace explain` of jobs that were recorded on a real device (tests/foreign/recorded-h100), whose settings are known:
each answer is right, wrong or not given, and what is said with confidence may not be wrong.

    trace_recorded_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import re
import tarfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import program
from program import Program

CONFIDENT = 0.8  # of what is said to be less sure nobody relies
LATE = {"fsdp2-slow-gpu": 1, "fsdp2-uneven-sequences": 0}  # what differs between ranks: README.md beside the traces
RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"


def is_sharded(case: dict) -> bool:
    return case["engine"] in ("fsdp1", "fsdp2") and case["world"] > 1 and case.get("strategy") != "NO_SHARD"


def keeps(case: dict) -> bool:
    """Whether parameters stay gathered between forward and backward."""
    return case.get("reshard") is False or case.get("strategy") in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")


def job_is(case: dict, said: str) -> bool:
    if case["world"] == 1:
        return said == "single"
    if is_sharded(case):
        return said == "sharded"
    return said == ("sharded_optimizer" if case.get("zero1") else "data_parallel")


def strategy_is(case: dict, said: str) -> bool:
    plain = "shard_grad_op" if keeps(case) else "full_shard"
    hybrid = "hybrid_shard_grad_op" if keeps(case) else "hybrid_shard"
    if case.get("wrap") == 0:  # one unit is kept anyway
        return said == "full_shard or shard_grad_op"
    return said == (hybrid if case.get("mesh") else plain)


def reshard_is(case: dict, said: str) -> bool:
    if case.get("reshard") == 2:
        return said == "2"
    return said in (("false", "auto") if keeps(case) else ("true", "auto"))  # auto: as the strategy has it


def forward_is(case: dict, said: str) -> bool:
    values = said.split(" or ")
    if "forward_depth" in case:
        return f"explicit:{case['forward_depth']}" in values
    return any(value.startswith("explicit") for value in values) if case.get("forward_prefetch") else "implicit" in values


def backward_is(case: dict, said: str) -> bool:
    values = said.split(" or ")
    if "backward_depth" in case:
        return f"explicit:{case['backward_depth']}" in values
    return keeps(case) or (case.get("backward_prefetch", "pre") or "none") in values


def limit_is(case: dict, said: str) -> bool:
    if case["engine"] == "fsdp2":
        return said == "fsdp2_event"
    return said == "unlimited" if case.get("limit") is False else said.startswith("fsdp1_queue")


def checkpointing_is(case: dict, said: str) -> bool:
    return said == {None: "false", "block": "true", "selective": "selective"}[case.get("checkpoint")]


def units_are(case: dict, said: str) -> bool:
    wrap = case.get("wrap", 1)
    return said == ("1" if wrap == 0 else f"{6 // wrap} and the root")


# Column: the finding that answers it, whether that is right of a case, which cases have it.
COLUMNS = {
    "job": ("job", job_is, lambda case: True),
    "strategy": ("strategy", strategy_is, is_sharded),
    "layout": ("layout", lambda case, said: said == ("flat" if case["engine"] == "fsdp1" else "per_param"), is_sharded),
    "units": ("units", units_are, is_sharded),
    "reshard": ("reshard after forward", reshard_is, lambda case: is_sharded(case) and case.get("wrap") != 0),
    "forward": ("forward prefetch", forward_is, lambda case: is_sharded(case) and case.get("wrap") != 0),
    "backward": ("backward prefetch", backward_is, lambda case: is_sharded(case) and case.get("wrap") != 0),
    "limit": ("all-gather limit", limit_is, lambda case: is_sharded(case) and case.get("wrap") != 0),
    "checkpointing": ("activation checkpointing", checkpointing_is, lambda case: True),
}


def late_of(case: dict, answer: dict) -> str:
    accused = re.search(r"[Rr]ank (\d+) (is late|took)", answer["headline"])
    said = int(accused[1]) if accused else None
    truth = LATE.get(case["name"])
    return RIGHT if said == truth else UNKNOWN if said is None else WRONG


def step_of(case: dict, answer: dict) -> str:
    """As the trace has it; and as it was without the profiler, where that did not hold up the host."""
    steps = answer["step"]["slowest_rank"]["steps_ms"]
    traced = case["profiled_step_ms"]
    # Where the host waits for the device at the end of a step, the profiler's own marks are its ends.
    as_traced = len(steps) == len(traced) and abs(median(steps) / median(traced) - 1) < 0.03
    ahead = case.get("host_ms_a_step", 0) < 0.75 * case["step_ms_median"] and case["world"] == 2
    return RIGHT if as_traced and (not ahead or abs(median(steps) / case["step_ms_median"] - 1) < 0.06) else WRONG


def score(case: dict, answer: dict) -> dict[str, str]:
    """By column: right, wrong or unknown, and what was said."""
    findings = {one["what"]: one for one in answer["recognition"]["findings"]}
    row = {}
    for column, (what, is_right, has) in COLUMNS.items():
        if not has(case):
            continue
        said = findings.get(what)
        if said is None:
            row[column] = UNKNOWN
        elif is_right(case, said["value"]):
            row[column] = RIGHT
        else:
            row[column] = f"{WRONG if said['confidence'] >= CONFIDENT else UNKNOWN}: {said['value']}"
    count = int(findings["accumulation"]["value"]) if "accumulation" in findings else 1
    row["accumulation"] = RIGHT if count == case.get("accumulate", 1) else f"{WRONG}: {count}"
    row["late"] = late_of(case, answer)
    row["step"] = step_of(case, answer)
    return row


class TraceRecorded(Program):
    answers: dict[str, dict] = {}
    cases: dict[str, dict] = {}

    def setUp(self) -> None:
        super().setUp()
        if self.answers:
            return
        recorded = Path(program.SOURCE) / "tests" / "foreign" / "recorded-h100"
        self.cases.update({case["name"]: case for case in json.loads((recorded / "truth.json").read_text())})

        def explain(name: str) -> dict:
            folder = self.folder / name
            with tarfile.open(recorded / f"{name}.tar.xz") as archive:
                archive.extractall(folder)
            return json.loads(self.call("trace", "explain", str(folder), "--json").stdout)

        with ThreadPoolExecutor(2) as pool:
            self.answers.update(zip(self.cases, pool.map(explain, self.cases)))

    def test_nothing_is_wrong_with_confidence(self) -> None:
        table = {name: score(case, self.answers[name]) for name, case in self.cases.items()}
        for name, row in table.items():
            for column, result in row.items():
                with self.subTest(case=name, column=column):
                    self.assertFalse(result.startswith(WRONG), result)
        for column in {column for row in table.values() for column in row}:
            results = [row[column] for row in table.values() if column in row]
            with self.subTest(column=column):
                self.assertGreaterEqual(results.count(RIGHT), 0.9 * len(results), results)

    def test_the_host_is_ahead_of_the_device(self) -> None:
        for name in ("fsdp2", "first-fsdp2", "fsdp1-busy-unlimited"):
            answer = self.answers[name]
            self.assertGreater(answer["host_most_ahead_ms"], 100, name)
            self.assertNotIn("host_bound", [cause["cause"] for cause in answer["causes"] if cause["share_pct"] > 1], name)

    def test_nobody_is_accused_on_few_steps(self) -> None:
        for name, answer in self.answers.items():
            self.assertLess(answer["step"]["slowest_rank"]["n"], 5)
            self.assertNotIn("is late by", answer["headline"], name)
        slow = self.answers["fsdp2-slow-gpu"]["headline"]
        self.assertIn("In these 3 steps rank 1 took", slow)
        self.assertIn("FLOP of the others'", self.answers["fsdp2-uneven-sequences"]["headline"])

    def test_an_all_to_all_is_not_an_expert(self) -> None:
        """Each block exchanges equal parts before and after its products, without a router."""
        answer = self.answers["fsdp2-experts-4"]
        said = {one["what"]: one["value"] for one in answer["recognition"]["findings"]}
        self.assertEqual((said["job"], said["exchanges"]), ("sharded", "of activations, kind unknown"))
        self.assertNotIn("exchanges", answer)

    def test_no_cause_without_its_evidence(self) -> None:
        for name, answer in self.answers.items():
            if answer["step"]["comm_ms"] == 0:
                self.assertEqual(answer["step"]["exposed_comm_ms"], 0, name)
            if "late_launches_pct" not in answer:
                self.assertNotIn("host_bound", [cause["cause"] for cause in answer["causes"]], name)


if __name__ == "__main__":
    program.main()
