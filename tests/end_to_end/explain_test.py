#!/usr/bin/python3
"""`explain`: schedules, memory and communication before a run, causes after it.

    explain_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
from collections import Counter

import program
from program import TINY, Program, sealed, sets

THREADS = [*TINY, "mesh.ranks=2"]


class Explain(Program):
    def test_from_a_result_ranks_the_causes_with_advice(self) -> None:
        self.call("run", self.profile, *sets(*THREADS, "fsdp.forward_prefetch=none"), "--out", "out", "-q")
        # The figures of this machine depend on its load; these are read instead.
        path = self.folder / "out/result.json"
        result = json.loads(path.read_text())
        cause = {"cause": "late_prefetch", "unit": "blocks.1", "ms": 3.0, "share_pct": 30.0,
                 "advice": 'fsdp.forward_prefetch is "none"; "implicit" issues the gather earlier'}
        path.write_text(sealed(result | {"rated": True, "causes": [cause], "causes_small_ms": 0.0}))
        done = self.call("explain", "--from", "out/result.json")
        self.assertIn("late_prefetch", done.stdout)
        self.assertIn('fsdp.forward_prefetch is "none"', done.stdout)
        self.assertEqual(self.call("explain", "--from", "out").stdout, done.stdout, "a folder means its result")
        self.assertIn("is a trace; expected", self.error("explain", "--from", "out/trace.json"))
        self.assertIn("so --set has no effect", self.error("explain", "--from", "out", *sets("mesh.ranks=2")))
        self.write("broken.json", "{\"schema_version\": 1")
        self.assertIn("broken.json", self.error("explain", "--from", "broken.json"))
        self.assertIn("nowhere.json", self.error("explain", "--from", "nowhere.json"))
        self.write("future.json", "{\"schema_version\": 99}")
        self.assertIn("schema_version is 99", self.error("explain", "--from", "future.json"))
        self.assertIn("PROFILE", self.error("explain"))

    def line(self, form: str, *keys: str) -> str:
        return self.call("explain", self.profile, *sets(*keys), "--format", form).stdout.strip()

    def test_collectives(self) -> None:
        steady = "AGR AG0 AG1 AG2 AG3 | AG3* AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR"
        self.assertEqual(self.line("collectives"), steady)
        self.assertEqual(self.line("collectives", "fsdp.preset=fsdp1"), steady)
        self.assertEqual(self.line("collectives", "fsdp.strategy=shard_grad_op"),
                         "AGR AG0 AG1 AG2 AG3 | RS3 RS2 RS1 RS0 RSR")
        self.assertEqual(self.line("collectives", "fsdp.strategy=no_shard"), "| AR3 AR2 AR1 AR0 ARR")

    def test_json_and_table(self) -> None:
        self.assertIsInstance(json.loads(self.line("json")), dict)
        self.assertIn("Peak of the pool, exact", self.line("table"))

    def exchanges(self, *settings: str) -> dict[str, int]:
        """Kinds of the ops on the lane of ranks that split layers, with how many there are."""
        lines = (line.split() for line in self.call("explain", self.profile, *settings, "--schedule").stdout.splitlines())
        return Counter(line[3] for line in lines if len(line) > 3 and line[2] == "tensor")

    def test_ranks_that_split_layers(self) -> None:
        split = sets("mesh.ranks=8", "mesh.tensor=2")
        text = self.call("explain", self.profile, *split).stdout
        self.assertIn("4 shards x 1 replicas x 2 that split layers", text)
        groups = text[text.index("Groups: "):]
        self.assertRegex(groups, r"shard +2 +4 +0 to 6 by 2")
        self.assertRegex(groups, r"tensor +4 +2 +0 to 1")
        told = json.loads(self.call("explain", self.profile, *split, "--format", "json").stdout)
        self.assertEqual({k: told["plan"][k] for k in ("ranks", "shard", "replicate", "tensor")},
                         {"ranks": 8, "shard": 4, "replicate": 1, "tensor": 2})
        self.assertEqual(self.exchanges(*split), {"tensor_all_reduce": 1 + 4 * 4 + 1, "tensor_all_gather": 1})
        tokens = [*split, *sets("mesh.sequence_parallel=true")]
        self.assertIn("x 2 that split layers and tokens", self.call("explain", self.profile, *tokens).stdout)
        less = json.loads(self.call("explain", self.profile, *tokens, "--format", "json").stdout)
        self.assertEqual(self.exchanges(*tokens), {"tensor_all_gather": 4 * 6 + 4, "tensor_reduce_scatter": 4 * 4 + 2,
                                                   "tensor_all_reduce": 4 + 1})
        self.assertLess(less["memory"]["peak_bytes"]["activations"], told["memory"]["peak_bytes"]["activations"])
        self.assertIn("mesh.tensor = 2", self.error("accept", "cpu", *split))

    def test_views(self) -> None:
        self.assertIn("optimizer 0", self.call("explain", "--schedule", self.profile).stdout)
        self.assertIn("--schedule", self.error("explain", self.profile, "--schedule", "--format", "collectives"))


if __name__ == "__main__":
    program.main()
