#!/usr/bin/python3
"""`explain --hlo` of the programs that tests/peer/xla_programs.py stored, against XLA's own module.

    xla_test.py PROGRAM SOURCE_FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "tests/peer"))

import xla_programs  # noqa: E402


# Each program in keys of the preset. Outside of scan and jax.checkpoint XLA gathers each weight once and keeps it.
ONCE, FOUR, HYBRID = ["fsdp.reshard_after_forward=false"], ["train.accumulate=4"], "fsdp.strategy=hybrid_shard"
KEYS = {
    **dict.fromkeys(["scan", "scan-ckpt", "scan-ckpt-fp32", "scan-dots", "scan-everything", "scan-fp32", "scan-cast-before",
                     "unroll-ckpt", "no-sol", "overlap-4", "scan-overlap-4", "sync-gathers", "double-buffered", "thresholds",
                     "thresholds-none", "thresholds-unroll-ckpt", "shard-map", "shard-map-unpipelined", "pipelined-gather",
                     "pipelined-gather-no-ckpt", "pipelined-both", "pipelined-double-buffered"], []),
    **dict.fromkeys(["unroll", "unroll-fp32", "no-sol-unroll", "thresholds-unroll", "shard-map-unroll"], ONCE),
    "scan-ckpt-two-hosts": ["mesh.ranks=16"], "scan-ckpt-64": ["mesh.ranks=64"], "unroll-ckpt-64": ["mesh.ranks=64"],
    "unroll-two-hosts": ["mesh.ranks=16", *ONCE], "accumulate": FOUR, "accumulate-unroll": ["train.accumulate=2", *ONCE],
    "hsdp": [HYBRID, "mesh.shard=4"], "hsdp-unroll": [HYBRID, "mesh.shard=4", *ONCE],
    "hsdp-two-hosts": [HYBRID, "mesh.shard=8", "mesh.ranks=16"], "hsdp-64": [HYBRID, "mesh.shard=8", "mesh.ranks=64"],
}
BLOCKS_ELEMENTS = 4 * (2 * 4096 * 4096 + 2 * 4096 * 16384)


def predicted(preset, keys):
    """Bytes that a device gathers, reduce-scatters and all-reduces in a step, in parameters (whole tensors)."""
    words = [w for key in ["mesh.ranks=8", *keys] for w in ("--set", key)]
    answer = subprocess.run([PROGRAM, "explain", "mlp", "--set", f"fsdp.preset={preset}", *words, "--format", "json"],
                            capture_output=True, text=True, check=True)
    told = json.loads(answer.stdout)
    plan, sent = told["plan"], told["communication"]
    shard, replicate, bytes_ = plan["shard"], plan["replicate"], plan["parameters"] * 4
    return [round(x, 6) for x in (sent["all_gather"] / bytes_ * shard / (shard - 1),
                                  sent["reduce_scatter"] / bytes_ * shard / (shard - 1),
                                  sent["all_reduce"] / bytes_ / 2 * replicate / max(1, replicate - 1))]


def compiled(counts):
    """Bytes that a stored program sends, as multiples of those of the blocks."""
    size = 4 if counts["case"].get("dtype") == "float32" else 2
    large = [c for c in counts["collectives"] if max(c["in"], c["out"]) > 256]
    total = lambda kind, key: sum(c["times"] * c[key] for c in large if c["kind"] == kind) / (BLOCKS_ELEMENTS * size)
    return [round(x, 6) for x in (total("all-gather", "out"), total("reduce-scatter", "in"), total("all-reduce", "in"))]


class StoredPrograms(unittest.TestCase):
    def test_each_is_read_as_the_compiler_has_it(self) -> None:
        stored = sorted((SOURCE / "tests/peer/recorded").glob("xla-programs-*.tar.xz"))
        self.assertEqual(len(stored), 6)
        for archive in stored:
            self.assertEqual(xla_programs.check(archive, PROGRAM), 0, archive.name)

    def test_the_presets_send_what_the_compiler_sends(self) -> None:
        with tarfile.open(SOURCE / "tests/peer/recorded/xla-programs-0.10.2.tar.xz") as stored:
            for name, keys in KEYS.items():
                counts = json.load(stored.extractfile(f"{name}.json"))
                preset = "xla-pipelined" if name.startswith("pipelined") else "xla"
                self.assertEqual(predicted(preset, keys), compiled(counts), name)

    def test_the_presets_rules_are_the_compilers(self) -> None:
        """Counted over the programs of KEYS that have XLA's defaults."""
        changed = {name for name in KEYS if name.startswith(("no-sol", "overlap", "scan-overlap", "sync", "thresholds",
                                                             "pipelined", "double", "shard-map"))}
        late = loops = exposed = 0
        with tempfile.TemporaryDirectory() as folder, \
                tarfile.open(SOURCE / "tests/peer/recorded/xla-programs-0.10.2.tar.xz") as stored:
            for name in sorted(set(KEYS) - changed):
                stored.extract(f"{name}.hlo.txt", folder)
                told = json.loads(subprocess.run([PROGRAM, "explain", "--hlo", f"{folder}/{name}.hlo.txt", "--format", "json"],
                                                 capture_output=True, check=True).stdout)
                for line in told["order"]:
                    words = [w.strip("+-!") for w in line.split(": ", 1)[1].split() if w[0] in "+-"]
                    self.assertEqual(words[::2], words[1::2], f"{name}: one is outstanding")
                    body = line.split(": ", 1)[1].split()
                    if line.startswith("loop") and len(body) > 1 and not body[0].startswith("loop"):
                        loops += 1
                        exposed += body[0].startswith("+AG") and body[1].startswith("-AG")
                reductions = [c for c in told["collectives"] if c["kind"] == "reduce_scatter"]
                self.assertFalse([c for c in reductions if c["pipelined"]], f"{name}: reduced in the iteration itself")
                # Unrolled, they wait until most of backward is over: gathers come first.
                kinds = [c["kind"] for c in told["collectives"] if c["depth"] == 0 and max(c["bytes_in"], c["bytes_out"]) > 256]
                late += "reduce_scatter" in kinds and "all_gather" not in kinds[kinds.index("reduce_scatter"):]
        self.assertEqual((loops, exposed, late), (27, 22, 6))

    def test_notes_begin_with_what_is_on_the_compute_stream(self) -> None:
        told = json.loads(subprocess.run([PROGRAM, "trace", "explain", SOURCE / "tests/foreign/synchronous.xplane.pb", "--json"],
                                         capture_output=True, check=True).stdout)
        self.assertIn("that computes: 2.150 of the 16.280 ms", told["notes"][0])

    def test_cases_that_people_reported_are_explained_in_thirty_lines(self) -> None:
        for words, said in ((["simulate", "--hlo", SOURCE / "tests/peer/recorded/xla-texts/llama.hlo.txt.gz", "--cluster", "dgx-h100"],
                             "A2A3, RS1<3>: on the compute stream"),
                            (["explain", "--hlo", SOURCE / "tests/foreign/synchronous.xplane.pb"],
                             "2.150 of the 16.280 ms a step that it is busy")):
            told = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout
            self.assertLessEqual(len(told.splitlines()), 30)
            self.assertIn(said, told)

    def test_the_recorder_has_as_many_programs_as_are_stored(self) -> None:
        self.assertGreaterEqual(len(xla_programs.programs()), 40)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
