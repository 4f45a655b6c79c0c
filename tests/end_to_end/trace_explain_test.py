#!/usr/bin/python3
"""`trace explain` and `tune --from`: what they say of this program's own traces, whose truth is known, and of those
that PyTorch's profiler wrote (tests/peer/recorded).

    trace_explain_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import gzip
import json

import program
from program import BAD_INPUT, Program, sets

# On the computed clock; a host that takes a while, so that launches have an order in time.
RUN = ["device.backend=virtual", "mesh.ranks=4", "model.layers=4", "train.steps=3", "train.warmup=2",
       "emulate.compute_tflops=0.02", "emulate.link_gb_per_s=0.5", "emulate.link_latency_us=5",
       "simulate.host_issue_us=5"]


class TraceExplain(Program):
    def simulate(self, out: str, *more: str) -> dict:
        self.call("run", self.profile, *sets(*RUN, *more), "--out", out, "-q")
        return json.loads((self.folder / out / "result.json").read_text())

    def test_roofs_of_a_cluster(self) -> None:
        """A gather of 1 GB beside products."""
        def event(category: str, name: str, tid: int, ts: float, dur: float, **args) -> dict:
            return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}

        shapes = {"Input Dims": [[10000], [10000, 10000], [10000, 10000], [], []],
                  "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]}
        trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
                 "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "pg_config": [
                     {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))}]},
                 "baseTimeNanoseconds": 1_000_000_000, "traceEvents": [
            event("user_annotation", "ProfilerStep#4", 11, 0, 20000),
            event("cpu_op", "record_param_comms", 11, 10, 30, **{
                "External id": 5, "Collective name": "_allgather_base", "In msg nelems": 62_500_000, "Out msg nelems": 500_000_000,
                "Group size": 8, "dtype": "BFloat16", "Process Group Name": "0", "Seq": 17}),
            event("cuda_runtime", "cudaLaunchKernelExC", 11, 20, 5, correlation=102),
            event("cpu_op", "aten::linear", 11, 60, 40),
            event("cpu_op", "aten::addmm", 11, 70, 20, **shapes), event("cuda_runtime", "cudaLaunchKernel", 11, 80, 5, correlation=103),
            event("cpu_op", "aten::mm", 11, 110, 20), event("cuda_runtime", "cudaLaunchKernel", 11, 115, 5, correlation=104),
            event("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24, 150, 5000, device=0, stream=24,
                  correlation=102, **{"External id": 5}),
            event("kernel", "nvjet_hsh_128x128", 7, 200, 4000, device=0, stream=7, correlation=103),
            event("kernel", "nvjet_hsh_128x128", 7, 6000, 1000, device=0, stream=7, correlation=104)]}
        (self.folder / "rank_0.json").write_text(json.dumps(trace))

        def gather(*words: str) -> dict:
            return json.loads(self.call("trace", "explain", "rank_0.json", "--json", *words).stdout)["collectives"][0]

        known = gather("--cluster", "dgx-h100")
        self.assertAlmostEqual(known["busbw_gb_per_s"], 1e9 * 7 / 8 / 5e-3 / 1e9)
        self.assertAlmostEqual(known["link_share_pct"], 100 * known["busbw_gb_per_s"] / known["link_gb_per_s"])
        self.assertNotIn("link_gb_per_s", gather())
        self.assertIn("dgx-h100", self.call("trace", "explain", "rank_0.json", "--cluster", "nowhere", code=BAD_INPUT).stderr)

    def test_the_numbers_of_our_own_run(self) -> None:
        result = self.simulate("out")
        answer = json.loads(self.call("trace", "explain", "out/trace", "--json").stdout)
        self.assertEqual(answer["recognition"]["name"], "fsdpbench")
        self.assertTrue(answer["recognition"]["schedule"]["exact"])
        self.assertEqual(answer["recognition"]["schedule"]["preset"], "fsdp2")
        metrics = result["metrics"]
        for ours, theirs in (("mean_ms", "step_ms"), ("compute_ms", "compute_ms"),
                             ("exposed_comm_ms", "exposed_comm_ms"), ("idle_ms", "idle_ms")):
            value = metrics[theirs]["median"] if isinstance(metrics[theirs], dict) else metrics[theirs]
            self.assertAlmostEqual(answer["step"][ours], value, delta=0.002 + 0.001 * value, msg=theirs)
        self.assertAlmostEqual(answer["ranks"][0]["overlap_pct"], metrics["overlap_pct"], delta=0.1)
        step = answer["step"]
        stalled = step["exposed_comm_ms"] + step["exposed_copy_ms"] + step["idle_ms"]
        self.assertAlmostEqual(sum(step["causes_ms"].values()), stalled, places=6)

    def test_kernels_by_kind_add_up_and_ranks_arrive_apart(self) -> None:
        self.simulate("slow", "inject.slow_rank=1", "inject.slow_rank_factor=1.5")
        recorded = next((program.SOURCE / "tests/peer/recorded").glob("traces-*"))
        for traces in ("slow/trace", str(recorded / "fsdp2")):
            with self.subTest(traces):
                answer = json.loads(self.call("trace", "explain", traces, "--json").stdout)
                kernels = answer["kernels"]
                self.assertGreater(kernels["total_ms"], 0)
                self.assertAlmostEqual(sum(k["total_ms"] for k in kernels["by_kind"]), kernels["total_ms"], places=6)
                self.assertAlmostEqual(sum(k["share_pct"] for k in kernels["by_kind"]), 100, places=6)
                self.assertTrue({"communication", "optimizer"} <= {k["kind"] for k in kernels["by_kind"]}, kernels)
                self.assertLessEqual(sum(k["total_ms"] for k in kernels["top"]), kernels["total_ms"] + 1e-6)
                text = self.call("trace", "explain", traces).stdout
                for title in ("Kernels by kind", "Kernels that take most"):
                    self.assertIn(title, text)

    def test_a_knob_that_the_run_lacks_is_found(self) -> None:
        self.simulate("none", "fsdp.backward_prefetch=none")
        answer = json.loads(self.call("trace", "explain", "none/trace", "--json").stdout)
        schedule = answer["recognition"]["schedule"]
        self.assertTrue(schedule["exact"], schedule)
        self.assertEqual(schedule["fsdp"]["backward_prefetch"], "none")
        self.assertTrue(any(knob["set"].startswith("fsdp.backward_prefetch=") for knob in answer["knobs"]),
                        answer["knobs"])
        # Keys are the words of this program: the first thing that is said is what to set.
        headline = " ".join(self.call("trace", "explain", "none/trace").stdout.split("\n\n")[0].split())
        self.assertRegex(headline, r"What to change: set fsdp\.\w+=\S+: [\d.]+ [mu]?s less a step")

    def test_knobs_hold_what_another_simulation_gains(self) -> None:
        """A trace does not tell what computation loses beside collectives, nor that two communicators share a card."""
        told = 0
        for cluster, keys in (("dgx-h100", ["fsdp.backward_prefetch=none"]), ("gcp-a2", [])):
            sets = [argument for key in (f"simulate.cluster={cluster}", "mesh.ranks=8", "model.layers=3", *keys)
                    for argument in ("--set", key)]
            self.call("simulate", "llama3-8b", *sets, "--out", cluster, "-q")
            answer = json.loads(self.call("trace", "explain", f"{cluster}/trace", "--json").stdout)
            step_ms = json.loads((self.folder / cluster / "result.json").read_text())["metrics"]["step_ms"]["median"]
            for knob in answer["knobs"]:
                self.call("simulate", f"{cluster}/config.toml", "--set", knob["set"], "--out", "turned", "-q", "--overwrite")
                turned = json.loads((self.folder / "turned/result.json").read_text())["metrics"]["step_ms"]["median"]
                self.assertLessEqual(knob["ci_low"], step_ms - turned + 1e-3, (cluster, knob["set"]))
                self.assertGreaterEqual(knob["ci_high"], step_ms - turned - 1e-3, (cluster, knob["set"]))
                told += 1
        self.assertGreater(told, 5)

    def test_a_run_and_its_traces_have_the_same_causes(self) -> None:
        """The answers of `explain --from` for a result and of `trace explain` for the traces beside it."""
        for name, keys in (("default", ()), ("hybrid", ("fsdp.strategy=hybrid_shard", "mesh.replicate=2")), ("late", ("fsdp.forward_prefetch=none", "fsdp.backward_prefetch=none")),
                           ("sync", ("inject.host_sync_after_layer=1",)),
                           ("slow", ("inject.slow_rank=1", "inject.slow_rank_factor=1.5")),
                           ("limit", ("fsdp.preset=fsdp1", "fsdp.backward_prefetch=pre", "emulate.link_gb_per_s=0.2"))):
            with self.subTest(name):
                ours = {c["cause"]: c for c in self.simulate(name, *keys)["causes"]}
                answer = json.loads(self.call("trace", "explain", f"{name}/trace", "--json").stdout)
                theirs = {c["cause"]: c for c in answer["causes"]}
                step = answer["step"]["mean_ms"]
                for cause in ours.keys() | theirs.keys():
                    mine, other = (causes.get(cause, {}).get("ms", 0) for causes in (ours, theirs))
                    self.assertAlmostEqual(mine, other, delta=max(0.02 * step, 0.1 * mine), msg=cause)
                self.assertEqual(next(iter(ours)), next(iter(theirs)), (ours, theirs))

    def test_the_last_reduction_may_begin_a_little_late(self) -> None:
        """On a real machine the root's reduction begins some time after that of the first unit has ended, and the
        optimizer takes some time: both reductions still have nothing beside them."""
        ours = {c["cause"]: c["ms"] for c in self.simulate("run", "emulate.link_gb_per_s=0.1", "emulate.compute_tflops=0.06",
                                                                "fsdp.backward_prefetch=none")["causes"]}
        for file in sorted((self.folder / "run/trace").glob("*.json.gz")):
            trace = json.loads(gzip.decompress(file.read_bytes()))
            for event in trace["traceEvents"]:
                if event.get("ph") == "X" and event["name"].endswith("(reduce_scatter R)"):
                    event["ts"] += 20
                    event["dur"] -= 20
                elif event.get("ph") == "X" and event["name"].startswith("optimizer "):
                    event["dur"] = 0.001
            file.write_bytes(gzip.compress(json.dumps(trace).encode()))
        answer = json.loads(self.call("trace", "explain", "run/trace", "--json").stdout)
        theirs = {c["cause"]: c["ms"] for c in answer["causes"]}
        self.assertAlmostEqual(theirs["step_boundary"], ours["step_boundary"], delta=0.5)

    def test_a_profile_repeats_the_run(self) -> None:
        result = self.simulate("out")
        self.call("tune", "--from", "out/trace", "--evaluations", "10", "--out", "tuned", "-q")
        self.call("simulate", "tuned/recognised.toml", "--out", "again", "-q")
        again = json.loads((self.folder / "again/result.json").read_text())
        took, takes = (one["metrics"]["step_ms"]["median"] for one in (result, again))
        self.assertAlmostEqual(takes / took, 1, delta=0.03)

    def test_traces_of_pytorch(self) -> None:
        recorded = next((program.SOURCE / "tests/peer/recorded").glob("traces-*"))
        text = self.call("trace", "explain", *map(str, sorted((recorded / "fsdp2").glob("rank_*"))), "--out", "e",
                         FSDPBENCH_PYTHON="/nowhere/python").stdout  # which draws no page
        self.assertIn("PyTorch FSDP2", text)
        self.assertTrue((self.folder / "e/explain.json").exists())
        self.assertIn("e holds", self.error("trace", "explain", str(recorded / "fsdp2"), "--out", "e"))
        text = self.call("trace", "explain", *map(str, sorted((recorded / "ddp").glob("rank_*")))).stdout
        self.assertIn("DistributedDataParallel", text)
        self.assertNotIn("fsdp.", text)
        self.assertIn("only sharded training", self.error("tune", "--from", str(recorded / "ddp")))

    def test_the_folder_has_a_timeline_and_a_page(self) -> None:
        self.simulate("run", "fsdp.backward_prefetch=none")
        recorded = next((program.SOURCE / "tests/peer/recorded").glob("traces-*"))
        for name, traces in (("ours", "run/trace"), ("fsdp1", str(recorded / "fsdp1")), ("ddp", str(recorded / "ddp"))):
            # Drawing takes a while: once is enough.
            more = {} if name == "fsdp1" else {"FSDPBENCH_PYTHON": "/nowhere/python"}
            done = self.call("trace", "explain", traces, "--out", name, **more)
            if "no page" not in done.stderr:  # there is a Python that draws it
                page = (self.folder / name / "report/report.html").read_text()
                self.assertIn("PyTorch FSDP1", page)
                self.assertIn("One step, lane by lane", page)
            self.check_traces(f"{name}/trace.json")
            answer = json.loads((self.folder / name / "explain.json").read_text())
            events = json.loads((self.folder / name / "trace.json").read_text())["traceEvents"]
            for rank in answer["ranks"]:
                spans = [e for e in events if e.get("cat") == "exposed" and e["pid"] == rank["rank"] + 1]
                stalled = sum(sum(step["causes_ms"].values()) for step in rank["steps"])
                self.assertAlmostEqual(sum(e["dur"] for e in spans) / 1000, stalled, places=5, msg=name)

    def test_without_the_python_package_all_but_the_page_is_written(self) -> None:
        self.simulate("run")
        done = self.call("trace", "explain", "run/trace", "--out", "e", FSDPBENCH_PYTHON="/nowhere/python")
        self.assertIn("no page: /nowhere/python does not have the package fsdpbench, ", done.stderr)
        self.assertEqual({p.name for p in (self.folder / "e").iterdir()}, {"explain.json", "trace.json"})

    def test_what_is_no_trace(self) -> None:
        self.write("no.json", "{}")
        self.assertIn("no.json", self.error("trace", "explain", "no.json"))
        self.assertIn("nowhere", self.error("trace", "explain", "nowhere"))
        self.call("trace", "explain", code=BAD_INPUT)


if __name__ == "__main__":
    program.main()
