"""Runs fsdpbench under an NVTX tool and reads what the tool was told.

    nvtx_test.py FSDPBENCH INJECTION SOURCE_FOLDER
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter, defaultdict
from pathlib import Path

RANKS, WARMUP, STEPS = 2, 1, 2
CATEGORIES = {1: "host", 2: "compute", 3: "all_gather", 4: "reduce_scatter", 5: "all_reduce", 6: "copy", 7: "tensor",
              8: "host_to_device", 9: "device_to_host", 10: "host_compute"}
SCHEMA = 0x66736470


class Nvtx(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        cls.run_program({"NVTX_INJECTION64_PATH": INJECTION, "FSDPBENCH_NVTX_LOG": str(cls.folder / "log")})
        cls.lines = [line.split("\t") for line in (cls.folder / "log").read_text().splitlines()]

    @classmethod
    def tearDownClass(cls) -> None:
        cls.temporary.cleanup()

    @classmethod
    def run_program(cls, environment: dict[str, str]) -> None:
        keys = {"model.layers": 3, "model.width": 32, "model.ffn_width": 64, "train.seq_len": 16,
                "train.batch_per_rank": 1, "mesh.ranks": RANKS, "train.warmup": WARMUP, "train.steps": STEPS}
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        subprocess.run([PROGRAM, "run", str(SOURCE / "profiles/runs/fsdp1.toml"), *sets, "--out",
                        str(cls.folder / "out"), "--overwrite", "-q"],
                       check=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, timeout=200)

    def of(self, kind: str) -> list[list[str]]:
        return [line[1:] for line in self.lines if line[0] == kind]

    def test_domain_categories_and_schema(self) -> None:
        self.assertEqual(self.of("domain"), [["fsdpbench"]])
        self.assertEqual({int(number): name for _, number, name in self.of("category")}, CATEGORIES)
        self.assertEqual(self.of("schema"), [["fsdpbench", str(SCHEMA), "24", "unit", "step", "bytes"]])

    def test_ranges_nest_on_their_threads(self) -> None:
        depth = defaultdict(int)
        for line in self.lines:
            if line[0] == "push":
                depth[line[2]] += 1
            elif line[0] == "pop":
                depth[line[2]] -= 1
                self.assertGreaterEqual(depth[line[2]], 0)
        self.assertEqual(set(depth.values()), {0})

    def test_every_op_of_every_step_has_its_range(self) -> None:
        """Measured steps: as many ranges of each name as the traces have ops of that name."""
        trace = json.loads((self.folder / "out/trace.json").read_text())
        expected = Counter()
        for event in trace["traceEvents"]:
            if event["ph"] != "X" or event["cat"] not in ("issue", "host"):
                continue
            expected[(event["name"], event["args"]["step"])] += 1
        pushed = Counter((line[3], int(line[7])) for line in self.of("push") if int(line[7]) >= WARMUP)
        self.assertEqual(pushed, expected)
        self.assertTrue(any("all_gather" in name for name, _ in pushed))
        self.assertTrue(any("host_wait" in name for name, _ in pushed))

    def test_payload_and_category_agree_with_the_trace(self) -> None:
        for _, _, category, name, schema, size, unit, step, size_of in self.of("push"):
            self.assertEqual((int(schema), int(size)), (SCHEMA, 24))
            self.assertLess(int(step), WARMUP + STEPS)
            if name.startswith("all_gather "):
                self.assertEqual(int(category), 3)
                self.assertGreater(int(size_of), 0)
                self.assertGreaterEqual(int(unit), 0)
            if name.startswith(("forward", "backward", "optimizer")):
                self.assertEqual(int(category), 2)
            if name.startswith(("host_wait", "reshard")):
                self.assertEqual(int(category), 1)

    def test_a_tool_that_is_not_there_does_no_harm(self) -> None:
        self.run_program({"NVTX_INJECTION64_PATH": "/nowhere/tool.so"})


if __name__ == "__main__":
    PROGRAM, INJECTION, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), Path(sys.argv[3])
    unittest.main(argv=sys.argv[:1])
