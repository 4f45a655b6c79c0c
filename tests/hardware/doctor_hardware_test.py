#!/usr/bin/python3
"""`doctor` on imagined hosts: a topology of hwloc's and the stand-in of NVIDIA's management library.

    doctor_hardware_test.py PROGRAM TOPOLOGIES STAND_IN_FOLDER
"""

import json
import os
import subprocess
import sys
import unittest

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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
