#!/usr/bin/python3
"""`doctor` and binding on imagined hosts: a topology of hwloc's and the stand-in of NVIDIA's management library.

    doctor_hardware_test.py PROGRAM TOPOLOGIES STAND_IN_FOLDER
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, TOPOLOGIES, STAND_IN = sys.argv[1:4]
TWO_SOCKETS = f"{TOPOLOGIES}/two_sockets_four_gpus.xml"


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *arguments], env=os.environ | environment, capture_output=True, text=True, timeout=300,
                          check=False)


def doctor(**environment: str) -> dict:
    done = call("doctor", "--json", **environment)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class DoctorTest(unittest.TestCase):
    def test_a_host_with_gpus(self):
        told = doctor(HWLOC_XMLFILE=TWO_SOCKETS, LD_LIBRARY_PATH=STAND_IN,
                      FSDPBENCH_FAKE_NVML="4 0.switch_links=18 1.switch_links=18 2.switch_links=18 3.switch_links=18")
        self.assertEqual(told["gpus"], ["Imagined GPU, 8.00 GiB"] * 4)
        self.assertTrue(told["cuda_driver"].startswith("580.95.05"), told["cuda_driver"])

    def test_a_host_without_gpus(self):
        told = doctor(HWLOC_SYNTHETIC="node:2 core:2 pu:1")
        self.assertEqual(told["numa_nodes"], 2)


class BindingTest(unittest.TestCase):
    def run_bound(self, folder: str, binding: str) -> dict:
        done = call("run", "mlp", "--set", "mesh.ranks=2", "--set", "train.steps=2", "--set", "train.warmup=1", "--set",
                    f"device.bind={binding}", "--out", f"{folder}/{binding}", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(Path(folder, binding, "result.json").read_text(encoding="utf-8"))

    def test_the_result_says_where_ranks_ran_and_the_numbers_are_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            free = self.run_bound(folder, "none")
            bound = self.run_bound(folder, "cores")
        self.assertNotIn("bound", free["world"]["devices"][0])
        for device in bound["world"]["devices"]:
            self.assertTrue(device["bound"].startswith("processors "), device)
        self.assertEqual(bound["config"]["device"]["bind"], "cores")
        self.assertEqual(free["train"]["params_digest"], bound["train"]["params_digest"])

    def test_gpus_cannot_be_bound_to_a_share_of_cores(self):
        done = call("run", "mlp", "--set", "device.backend=cuda", "--set", "device.bind=cores", "--set",
                    "emulate.link_gb_per_s=none", "--set", "emulate.link_latency_us=0")
        self.assertEqual(done.returncode, 2)
        self.assertIn('device.bind = "cores" needs device.backend = "cpu"', done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
