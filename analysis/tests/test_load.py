"""Reading: what files say comes out, what they do not say stays absent, and broken files are named with a remedy."""

from __future__ import annotations

import gzip
import json
import os
import unittest

from support import DATA, FolderTest

from fsdpbench.analysis.numbers import complete
from fsdpbench.analysis.pair_page import compare_page
from fsdpbench.analysis.run_page import caveats_of, run_page
from fsdpbench.analysis.schema import read_json, read_record, read_run, setting
from fsdpbench.analysis.sweep_view import load_sweep, measured, rated, varying
from fsdpbench.analysis.trace import find_trace, load_trace
from fsdpbench.analysis.world import machine, world_rows
from fsdpbench.fields import ReportError


class NoFiles(FolderTest):
    def test_a_pipe_is_refused_and_not_waited_for(self) -> None:
        for name in ("result.json", "trace.json.gz"):
            os.mkfifo(self.folder / name)
            with self.assertRaisesRegex(ReportError, f"cannot read .*{name}: it is a folder, a pipe or a device"):
                read_json(self.folder / name)
        with self.assertRaisesRegex(ReportError, "is a folder"):
            read_json(self.folder)


class Good(FolderTest):
    def test_result(self) -> None:
        result = read_run(DATA / "run/result.json")
        self.assertAlmostEqual(result.metrics.step_ms.median, 100.38, places=1)
        self.assertTrue(complete(result.metrics))
        self.assertEqual(result.causes[0].cause, "late_prefetch")
        self.assertEqual(setting(result.config, "fsdp.backward_prefetch"), "none")
        self.assertIsNone(setting(result.config, "fsdp.no_such_key"))

    def test_a_file_may_have_less(self) -> None:
        def strip(value):
            for key in ("causes", "exposed_intervals", "collectives", "steps", "causes_small_ms"):
                value.pop(key)
            value["metrics"] = {}
            value["memory"] = {}
        result = read_run(self.copy("run", strip) / "result.json")
        self.assertIsNone(result.metrics.step_ms)
        self.assertIsNone(result.metrics.compute_ms)
        self.assertEqual(result.causes, [])
        self.assertIsNone(result.memory.timeline)

    def test_a_run_that_lost_a_rank_is_named_as_such(self) -> None:
        def lose(value):
            value["failure"] = {"rank": 2, "died": True, "message": "rank 2 was killed"}
        with self.assertRaisesRegex(ReportError, r"did not finish \(rank 2 was killed\)"):
            read_run(self.copy("run", lose) / "result.json")

    def test_whether_it_is_rated(self) -> None:
        def unrated(value):
            for node in (value, *value.get("cells", [])[:1]):
                node["rated"], node["not_rated_because"] = False, "this machine is slow"
        run = read_run(self.copy("run", unrated) / "result.json")
        self.assertEqual((rated(run), caveats_of(run)), (False, ["not rated: this machine is slow"]))
        first, second = load_sweep(self.copy("sweep", unrated) / "sweep.json").cells[:2]
        self.assertEqual((rated(first), rated(second)), (False, True))
        def said(value):
            value["rated"], value["caveats"] = False, ["not rated: so slow", "noisy: very"]
        run = read_run(self.copy("run", said, "said") / "result.json")
        self.assertEqual(caveats_of(run), ["not rated: so slow", "noisy: very"])
        self.assertEqual(caveats_of(read_run(DATA / "run/result.json")), [])

    def test_comparison(self) -> None:
        comparison = read_record(self.comparison() / "compare.json", "compare")
        self.assertEqual([(k.key, k.a, k.b) for k in comparison.differing_keys], [("fsdp.backward_prefetch", "none", "pre")])
        self.assertTrue(comparison.interleaved)
        self.assertEqual([len(trial.steps_ms) for trial in comparison.b.trials], [1, 1, 1])

    def test_sweep(self) -> None:
        sweep = load_sweep(DATA / "sweep/sweep.json")
        self.assertEqual([len(a.values) for a in varying(sweep)], [4, 5, 2])
        self.assertEqual(sum(not measured(c) for c in sweep.cells), 1)

    def test_kernels_of_a_gpu_are_not_drawn_over_their_ops(self) -> None:
        folder = self.copy("run")
        value = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
        ops = [event for event in value["traceEvents"] if event.get("ph") == "X" and event.get("cat") == "computation"]
        value["traceEvents"] += [op | {"cat": "activity", "name": "some_kernel"} for op in ops]
        (folder / "trace.json").write_text(json.dumps(value), encoding="utf-8")
        self.assertEqual(load_trace(folder / "trace.json").ranks, load_trace(DATA / "run/trace.json").ranks)

    def test_devices_of_ranks_that_say_the_same_share_a_row(self) -> None:
        gpu = {"GPU": "NVIDIA H200 (sm_90), 132 multiprocessors", "timer": "CUDA events"}
        world = {"cpu": "AMD EPYC", "devices": [{"rank": 0} | gpu, {"rank": 1} | gpu, {"rank": 2, "GPU": "NVIDIA A100"}]}
        rows = dict(world_rows(world))
        self.assertEqual(rows["device of rank 0, 1"], "GPU NVIDIA H200 (sm_90), 132 multiprocessors, timer CUDA events")
        self.assertEqual(rows["device of rank 2"], "GPU NVIDIA A100")
        self.assertNotIn("devices", rows)
        self.assertEqual(machine(world), "NVIDIA H200 (sm_90)")
        self.assertEqual(machine({"cpu": "AMD EPYC", "devices": [{"rank": 0, "host": "a"}]}), "AMD EPYC")

    def test_trace(self) -> None:
        trace = load_trace(DATA / "run/trace.json")
        self.assertEqual([r.rank for r in trace.ranks], [0, 3])
        self.assertEqual(trace.representative_step(), 5)
        self.assertIn("compute", [lane.name for lane in trace.ranks[0].lanes])

    def test_compressed_trace(self) -> None:
        packed = self.folder / "trace.json.gz"
        packed.write_bytes(gzip.compress((DATA / "run/trace.json").read_bytes()))
        self.assertEqual(find_trace(self.folder), packed)
        self.assertEqual(len(load_trace(packed).ranks), 2)


class Bad(FolderTest):
    def error(self, text: bytes, name: str = "result.json") -> str:
        path = self.folder / name
        path.write_bytes(text)
        load = {"result.json": run_page, "sweep.json": load_sweep, "compare.json": compare_page}.get(name, load_trace)
        with self.assertRaises(ReportError) as caught:
            load(path)
        message = str(caught.exception)
        self.assertIn(str(path), message)
        return message

    def test_every_truncation_is_an_error(self) -> None:
        text = (DATA / "run/result.json").read_bytes()
        for end in range(0, len(text) - 1, 997):
            self.assertIn("truncated or damaged", self.error(text[:end]))

    def test_truncated_gzip(self) -> None:
        packed = gzip.compress((DATA / "run/trace.json").read_bytes())
        self.assertIn("cannot read", self.error(packed[: len(packed) // 2], "trace.json.gz"))
        self.assertIn("cannot read", self.error(b"no gzip at all", "trace.json.gz"))

    def test_messages(self) -> None:
        for text, expected in (
                (b"\xff\xfe", "not UTF-8"),
                (b"[]", "a JSON object is expected"),
                (b"{}", "no schema_version"),
                (b'{"schema_version": 999}', "has schema_version 999; this package reads 3"),
                (b'{"schema_version": true}', "reads 3"),
                (b'{"schema_version": [1]}', "reads 3"),
                (b'{"schema_version": 3, "metrics": {"step_ms": {"median": "fast"}}}',
                 'metrics.step_ms.median is "fast"; a number'),
                (b'{"schema_version": 3, "metrics": {"step_ms": {}}}', "metrics.step_ms.median is missing"),
                (b'{"schema_version": 3, "metrics": {"compute_ms": NaN}}', "no valid JSON"),
                (b'{"schema_version": 3, "metrics": {"compute_ms": 1e999}}', "a finite number"),
                (b'{"schema_version": 3, "metrics": []}', "metrics is a list; an object"),
                (b'{"schema_version": 3, "config": {}, "causes": {"a": 1}}', "causes is an object; a list"),
                (b'{"schema_version": 3, "metrics": {}, "rated": 1}', "rated is 1; true or false"),
                (b'{"schema_version": 3, "metrics": {}, "caveats": "slow"}', 'caveats is "slow"; a list'),
                (b'{"schema_version": 3, "metrics": {}, "caveats": [[]]}', "caveats[0] is a list; a text"),
                (b'{"schema_version": 3, "config": {}, "memory": {"timeline": {"time_ms": [1, 2], "optimizer": [1]}}}',
                 "they belong together"),
                (b"[" * 100000, "no valid JSON")):
            with self.subTest(expected):
                self.assertIn(expected, self.error(text))

    def test_trace_messages(self) -> None:
        self.assertIn("no complete events", self.error(b'{"schemaVersion": 1, "traceEvents": []}', "trace.json"))
        self.assertIn("numeric ts", self.error(
            b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": "now"}]}', "trace.json"))

    def test_sweep_messages(self) -> None:
        self.assertIn("cells[0].id is missing", self.error(b'{"schema_version": 3, "cells": [{}]}', "sweep.json"))

    def test_a_cell_lies_on_its_axes(self) -> None:
        def astray(value):
            value["cells"][3]["axes"]["emulate.link_gb_per_s"] = -3
        with self.assertRaisesRegex(ReportError, r"cells\[3\].axes.emulate.link_gb_per_s is -3; one of the values"):
            load_sweep(self.copy("sweep", astray) / "sweep.json")

    def test_files_of_another_kind(self) -> None:
        run, sweep = (DATA / "run/result.json").read_bytes(), (DATA / "sweep/sweep.json").read_bytes()
        compared = run.replace(b'"schema_version": 3', b'"schema_version": 1')  # a comparison's own
        for text, name, missing in ((sweep, "result.json", "has no metrics and no config and no failure"),
                                    (run, "sweep.json", "has no cells"), (compared, "compare.json", "has no a")):
            with self.subTest(name):
                self.assertIn(f"{missing}: it is no {name} of fsdpbench, or a damaged one", self.error(text, name))

    def test_missing_file(self) -> None:
        with self.assertRaisesRegex(ReportError, "cannot read .*nothing.json: No such file"):
            read_run(self.folder / "nothing.json")


if __name__ == "__main__":
    unittest.main()
