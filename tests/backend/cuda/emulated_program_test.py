#!/usr/bin/python3
"""The whole program on imagined GPUs: a run through the emulated plugin gives the CPU backend's losses, a valid trace
with the kernels in it, and a result that says what it ran on.

    emulated_program_test.py FSDPBENCH PLUGIN SOURCE_FOLDER
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, PLUGIN, SOURCE = sys.argv[1:4]


def run(folder: Path, *settings: str) -> dict:
    arguments = [part for setting in settings for part in ("--set", setting)]
    command = [PROGRAM, "run", f"{SOURCE}/profiles/runs/mlp.toml", "--out", str(folder), "--set", "train.steps=3",
               "--set", "train.warmup=1", "--set", "emulate.link_gb_per_s=none", "--set", "emulate.link_latency_us=0",
               "--set", "mesh.ranks=2", *arguments]
    done = subprocess.run(command, env=os.environ | {"FSDPBENCH_CUDA_PLUGIN": PLUGIN}, capture_output=True, text=True,
                          timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(f"code {done.returncode}: {done.stderr}")
    return json.loads((folder / "result.json").read_text(encoding="utf-8")) | {"printed": done.stdout}


class EmulatedProgramTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = Path(cls.folder.name)
        cls.cpu = run(root / "cpu")
        cls.gpu = run(root / "gpu", "device.backend=cuda")
        cls.events = run(root / "events", "device.backend=cuda", "device.timer=events")
        cls.root = root

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_losses_are_the_cpu_backends(self):
        for mine, reference in zip(self.gpu["train"]["loss"], self.cpu["train"]["loss"], strict=True):
            self.assertAlmostEqual(mine / reference, 1, delta=1e-5)

    def test_the_timer_changes_no_number(self):
        self.assertEqual(self.gpu["train"]["params_digest"], self.events["train"]["params_digest"])

    def test_the_peak_is_the_schedules(self):
        for result in (self.gpu, self.events):
            self.assertEqual(result["memory"]["peak_bytes"], self.cpu["memory"]["peak_bytes"])

    def test_the_result_says_what_it_ran_on(self):
        self.assertEqual(self.gpu["world"]["backend"], "cuda")
        for result, timer in ((self.gpu, "CUPTI"), (self.events, "CUDA events")):
            for device in result["world"]["devices"]:
                self.assertIn("Imagined GPU", device["GPU"])
                self.assertTrue(device["timer"].startswith(timer), device["timer"])
        self.assertIn("Imagined GPU", self.gpu["printed"])

    def test_the_traces_are_valid_and_have_the_kernels(self):
        for name in ("trace.json", "trace/rank_0.json.gz", "trace/rank_1.json.gz"):
            done = subprocess.run([PROGRAM, "trace", "check", str(self.root / "gpu" / name)], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with gzip.open(self.root / "gpu" / "trace" / "rank_0.json.gz", "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        kernels = [event for event in events if event.get("cat") == "kernel"]
        launches = {event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"}
        self.assertGreater(len(kernels), 20)
        self.assertTrue({kernel["args"]["correlation"] for kernel in kernels} <= launches)
        self.assertTrue(any(kernel["name"].startswith("nccl") for kernel in kernels))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
