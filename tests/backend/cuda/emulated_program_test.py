#!/usr/bin/python3
"""The whole program on imagined GPUs: a run through the emulated plugin gives the CPU backend's losses, a valid trace
with the kernels in it, and a result that says what it ran on.

    emulated_program_test.py FSDPBENCH PLUGIN SOURCE_FOLDER STAND_IN_FOLDER
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, PLUGIN, SOURCE, STAND_IN = sys.argv[1:5]


def check_trace(path: Path) -> subprocess.CompletedProcess:
    """By the rules of src/trace/FORMAT.md."""
    return subprocess.run([Path(PROGRAM).with_name("check_trace"), path], capture_output=True, text=True, check=False)


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *arguments], env=os.environ | {"FSDPBENCH_CUDA_PLUGIN": PLUGIN} | environment,
                          capture_output=True, text=True, timeout=120, check=False)


def run(folder: Path, *settings: str, **environment: str) -> dict:
    arguments = [part for setting in settings for part in ("--set", setting)]
    command = ["run", f"{SOURCE}/profiles/runs/mlp.toml", "--out", str(folder), "--set", "train.steps=3",
               "--set", "train.warmup=1", "--set", "emulate.link_gb_per_s=none", "--set", "emulate.link_latency_us=0",
               "--set", "mesh.ranks=2", *arguments]
    done = call(*command, **environment)
    if done.returncode != 0:
        raise AssertionError(f"code {done.returncode}: {done.stderr}")
    return json.loads((folder / "result.json").read_text(encoding="utf-8")) | {"printed": done.stdout}


class EmulatedProgramTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = Path(cls.folder.name)
        cls.cpu = run(root / "cpu")
        cls.gpu = run(root / "gpu", "device.backend=cuda", "device.deterministic=true")
        cls.events = run(root / "events", "device.backend=cuda", "device.deterministic=true", "device.timer=events")
        cls.root = root

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_losses_are_the_cpu_backends(self):
        for mine, reference in zip(self.gpu["train"]["loss"], self.cpu["train"]["loss"], strict=True):
            self.assertAlmostEqual(mine / reference, 1, delta=1e-5)

    def test_the_timer_changes_no_number(self):
        self.assertEqual(self.gpu["train"]["params_digest"], self.events["train"]["params_digest"])

    def test_sums_in_any_order_leave_no_digest_and_it_says_so(self):
        default = run(self.root / "default", "device.backend=cuda", "nccl.blocking=true")
        self.assertNotIn("params_digest", default["train"])
        self.assertIn("device.deterministic", default["train"]["no_digest_because"])
        self.assertIn("no parameters digest: another run", default["printed"])
        for result, order, launches in ((default, "any order", "blocking"), (self.gpu, "a fixed order", "")):
            for device in result["world"]["devices"]:
                self.assertIn(order, device["sums"])
                self.assertEqual(device.get("nccl asked for", ""), launches)

    def test_the_peak_is_the_schedules(self):
        for result in (self.gpu, self.events):
            self.assertEqual(result["memory"]["peak_bytes"], self.cpu["memory"]["peak_bytes"])

    def test_state_in_host_memory_changes_no_bit_and_is_told(self):
        for offload in ("optimizer", "all"):
            settings = (f"fsdp.cpu_offload={offload}", "device.deterministic=true")
            mine = run(self.root / offload, "device.backend=cuda", *settings)
            reference = run(self.root / f"cpu-{offload}", *settings[:1])
            self.assertEqual(mine["train"]["params_digest"], self.gpu["train"]["params_digest"])
            self.assertEqual(mine["host_memory"], reference["host_memory"])
            self.assertEqual(mine["memory"]["peak_bytes"], reference["memory"]["peak_bytes"])
            for device in mine["world"]["devices"]:
                self.assertRegex(device["pinned host memory"], "^[0-9.]+ [KM]iB")
                self.assertRegex(device["host updates"], "^by (one thread|up to [0-9]+ threads)$")
        self.assertNotIn("pinned host memory", self.gpu["world"]["devices"][0])

    def test_the_result_says_what_it_ran_on(self):
        self.assertEqual(self.gpu["world"]["backend"], "cuda")
        for result, timer in ((self.gpu, "CUPTI"), (self.events, "CUDA events")):
            for device in result["world"]["devices"]:
                self.assertIn("Imagined GPU", device["GPU"])
                self.assertRegex(device["GPU UUID"], r"^GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae0\d$")
                self.assertTrue(device["timer"].startswith(timer), device["timer"])
        self.assertIn("Imagined GPU", self.gpu["printed"])

    def test_the_traces_are_valid_and_have_the_kernels(self):
        for name in ("trace.json", "trace/rank_0.json.gz", "trace/rank_1.json.gz"):
            done = check_trace(self.root / "gpu" / name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with gzip.open(self.root / "gpu" / "trace" / "rank_0.json.gz", "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        kernels = [event for event in events if event.get("cat") == "kernel"]
        launches = {event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"}
        self.assertGreater(len(kernels), 20)
        self.assertTrue({kernel["args"]["correlation"] for kernel in kernels} <= launches)
        self.assertTrue(any(kernel["name"].startswith("nccl") for kernel in kernels))

    def test_clocks_that_differ_keep_the_run_and_are_a_caveat(self):
        told = run(self.root / "behind", "device.backend=cuda", "device.deterministic=true", FSDPBENCH_FAKE_CUPTI="behind")
        self.assertTrue(told["world"]["devices"][0]["timer"].startswith("CUPTI"))
        self.assertIn("the clocks of host and GPU differ: ops and kernels seemed to begin up to ", " | ".join(told["caveats"]))
        self.assertEqual(told["train"]["params_digest"], self.gpu["train"]["params_digest"])
        for name in ("trace.json", "trace/rank_0.json.gz"):
            done = check_trace(self.root / "behind" / name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_cupti_that_records_nothing_leaves_the_ops_to_events(self):
        told = run(self.root / "silent", "device.backend=cuda", "device.deterministic=true", FSDPBENCH_FAKE_CUPTI="silent")
        for device in told["world"]["devices"]:
            self.assertTrue(device["timer"].startswith("CUDA events"), device["timer"])
            self.assertIn("no record of it came", device["no CUPTI"])
        self.assertGreater(told["metrics"]["compute_ms"], 0)
        done = call("run", f"{SOURCE}/profiles/runs/mlp.toml", "--out", str(self.root / "refused"), "--set", "device.backend=cuda",
                    "--set", "device.timer=cupti", "--set", "mesh.ranks=1", FSDPBENCH_FAKE_CUPTI="silent")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no record of it came", done.stderr)

    def test_without_nvml_one_sentence_says_so(self):
        for gpu in self.gpu["gpus"]:
            self.assertIn("libnvidia-ml.so.1", gpu["unknown_because"])
            self.assertNotIn("steps", gpu)
        self.assertNotIn("gpus", self.cpu)

    def test_a_gpu_that_throttles_is_named(self):
        told = run(self.root / "hot", "device.backend=cuda", "device.deterministic=true", LD_LIBRARY_PATH=STAND_IN,
                   FSDPBENCH_FAKE_NVML="2 1.limits=0x40 1.sm_mhz=990 0.xid=74 0.pcie_width=8")
        self.assertEqual(told["train"]["params_digest"], self.gpu["train"]["params_digest"])
        caveats = " | ".join(told["caveats"])
        self.assertIn("the GPU of rank 0 reported Xid 74 (NVLink error)", caveats)
        self.assertIn("the GPU of rank 0 has a PCIe link of 8 lanes where 16 are possible", caveats)
        cool, hot = told["gpus"]
        self.assertEqual([cool["rank"], hot["rank"]], [0, 1])
        self.assertEqual(cool["xids"][0]["code"], 74)
        self.assertEqual(cool["limits"], {"sm_mhz": 1980, "power_w": 700.0, "pcie_width": 16, "pcie_generation": 5, "ecc": True})
        self.assertNotIn("throttled", cool)
        self.assertEqual(len(hot["steps"]["samples"]), 3)
        # Steps here may be shorter than the time between two samples: only of those sampled is anything said.
        seen = [i for i, samples in enumerate(hot["steps"]["samples"]) if samples > 0]
        for i in seen:
            self.assertEqual(hot["steps"]["sm_mhz"][i], 990)
            self.assertEqual(hot["steps"]["held_down_by"][i], "hardware thermal slowdown")
        counted = self.gpu_counters("hot")
        self.assertEqual(self.gpu_counters("gpu"), {})
        if seen:
            self.assertEqual(counted[1, "SM clock"], {"sm_mhz": 990})
            self.assertGreater(counted[1, "GPU power"]["power_w"], 0)
            self.assertGreater(counted[1, "GPU temperature"]["temperature_c"], 0)
            self.assertEqual(hot["throttled"][0]["why"], "hardware thermal slowdown")
            self.assertIn("throttled: the GPU of rank 1 throttled (hardware thermal slowdown)", caveats)
            self.assertIn(caveats.split(" | ")[-1], told["printed"])

    def gpu_counters(self, run_name: str) -> dict:
        """The last value of each counter of a GPU in trace.json, by rank and name."""
        events = json.loads((self.root / run_name / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
        names = ("SM clock", "GPU power", "GPU temperature")
        return {(event["pid"] - 1, event["name"]): event["args"] for event in events if event["name"] in names}

    def test_the_result_has_the_topology(self):
        topologies = f"{SOURCE}/tests/hardware/topologies"
        told = run(self.root / "topology", "device.backend=cuda", LD_LIBRARY_PATH=STAND_IN,
                   HWLOC_XMLFILE=f"{topologies}/two_sockets_four_gpus.xml",
                   FSDPBENCH_FAKE_NVML="4 0.switch_links=18 1.switch_links=18 2.switch_links=18 3.switch_links=18")
        self.assertIn("NV18 to 3 GPUs; ", told["world"]["devices"][0]["topology"])
        self.assertIn("mlx5_0 PIX", told["world"]["devices"][1]["topology"])

    def test_collectives_alone(self):
        written = self.root / "collectives.json"
        done = call("collectives", "--backend", "cuda", "--ranks", "4", "-b", "1K", "-e", "64K", "-f", "4", "-n", "2", "-J",
                    str(written))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        result = json.loads(written.read_text(encoding="utf-8"))
        self.assertEqual([row["size"] for row in result["operations"][0]["results"]], [1024, 4096, 16384, 65536])
        self.assertEqual(result["world"]["backend"], "cuda")

    def test_who_slows_whom_is_a_matrix(self):
        written = self.root / "beside.json"
        done = call("collectives", "--backend", "cuda", "--ranks", "2", "-b", "4K", "-e", "16K", "-f", "4", "-n", "2", "--beside",
                    "--matrix", "16,8x32x16", "--max-ctas", "2,4", "-J", str(written))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(written.read_text(encoding="utf-8"))["beside"]
        seen = [(row["max_ctas"], row["size"], row["shape"]) for row in rows]
        self.assertEqual(seen, [(ctas, size, shape) for ctas in (2, 4) for size in (4096, 16384)
                                for shape in ([16, 16, 16], [8, 32, 16])])
        self.assertIn("at most 4 CTAs", done.stdout)
        for row in rows:
            self.assertEqual(sorted(row["beside_us"]), ["all_gather", "matrix_product", "reduce_scatter"])

    def test_collectives_with_nccls_knobs(self):
        done = call("collectives", "reduce_scatter_perf", "--backend", "cuda", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "2",
                    "-R", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
