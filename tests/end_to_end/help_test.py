#!/usr/bin/python3
"""`doctor`, `--help`, `--version`.

    help_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json

import program
from program import BAD_INPUT, Program


class Doctor(Program):
    def test_json(self) -> None:
        machine = json.loads(self.call("doctor", "--json").stdout)
        self.assertGreaterEqual(machine["threads"], 1)
        self.assertGreater(machine["memory_bytes"], machine["available_bytes"])
        self.assertTrue(machine["cuda_toolkit"])
        self.assertTrue(machine["mpi"])
        self.assertTrue(machine["nvtx"])
        names = {rate["name"] for rate in machine["rates"]}
        self.assertEqual(names, {"gemm_fp32", "gemm_bf16", "memcpy", "timer_late"})
        self.assertTrue(all(rate["value"] > 0 for rate in machine["rates"]))

    def test_text(self) -> None:
        text = self.call("doctor").stdout
        for words in ("processor", "memory", "CUDA driver", "CUDA toolkit", "MPI", "NVTX", "gemm_bf16", "memcpy"):
            self.assertIn(words, text)


class Help(Program):
    def test_help_and_version(self) -> None:
        self.assertIn("Examples", self.call("--help").stdout)
        self.assertIn("trace.json", self.call("run", "--help").stdout)
        self.assertRegex(self.call("--version").stdout, r"^fsdpbench \d+\.\d+\.\d+ \(")

    def test_colours_only_on_terminals(self) -> None:
        self.assertNotIn("\033", self.call("rum", code=BAD_INPUT).stderr)


if __name__ == "__main__":
    program.main()
