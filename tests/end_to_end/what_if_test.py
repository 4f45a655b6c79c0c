#!/usr/bin/python3
"""what-if against the truth: a run on a computed clock, replayed under a change, must be the run of the changed
configuration on that clock, to the nanosecond.

    what_if_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import what_if_campaign
from program import sealed

PROGRAM = ""
SOURCE = Path()
OK, BAD_INPUT = 0, 2

# 1 GB/s: a byte takes a nanosecond, so no time is rounded.
BASE = ["emulate.compute_tflops=0.02", "emulate.link_gb_per_s=1", "emulate.link_latency_us=0", "model.layers=3",
        "train.steps=3", "train.warmup=1", "train.seq_len=16", "train.batch_per_rank=1", "mesh.ranks=4"]


def sets(keys: list[str]) -> list[str]:
    return [argument for key in keys for argument in ("--set", key)]


class WhatIf(unittest.TestCase):
    folder = Path()  # of all tests
    simulated: dict[tuple[str, ...], tuple[str, dict]] = {}
    count = 0

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)

    def setUp(self) -> None:
        self.profile = str(SOURCE / "profiles/runs/quickstart.toml")

    def call(self, *arguments: str, code: int = OK) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=self.folder, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def simulate(self, *keys: str, command: str = "simulate") -> tuple[str, dict]:
        """A simulation that there is already is the same one; a run is another."""
        if command == "simulate" and keys in self.simulated:
            return self.simulated[keys]
        out = self.out("run")
        self.call(command, self.profile, *sets([*BASE, *keys]), "--out", out, "-q")
        made = out, json.loads((self.folder / out / "result.json").read_text())
        if command == "simulate":
            self.simulated[keys] = made
        return made

    def out(self, name: str) -> str:
        WhatIf.count += 1
        return f"{name}{self.count}"

    def what_if(self, run: str, *arguments: str) -> dict:
        out = self.out("answer")
        self.call("what-if", run, *arguments, "--out", out, "-q")
        return json.loads((self.folder / out / "what_if.json").read_text())

    def same(self, replayed: dict, result: dict, within_ns: float = 0, bounds: tuple[str, ...] = ("ci_low", "ci_high")
             ) -> None:
        """To the nanosecond: milliseconds of doubles, with room for their own rounding."""
        metrics = result["metrics"]
        for name in ("compute_ms", "comm_ms", "exposed_comm_ms", "idle_ms"):
            self.assertAlmostEqual(replayed[name], metrics[name], delta=(within_ns + 0.01) * 1e-6, msg=name)
        for bound in ("median", *bounds):
            self.assertAlmostEqual(replayed["step_ms"][bound], metrics["step_ms"][bound],
                                   delta=(within_ns + 0.01) * 1e-6, msg=bound)
        self.assertEqual(replayed["peak_bytes"], result["memory"]["peak_bytes"]["total"])

    def test_memory_on_a_cluster_is_what_pytorchs_allocator_reserves(self) -> None:
        on = ["simulate.cluster=dgx-h100", "emulate.compute_tflops=none", "emulate.link_gb_per_s=none", "model.width=1024",
              "model.ffn_width=4096", "train.seq_len=1024", "fsdp.preset=fsdp2", "fsdp.param_dtype=bf16"]
        run, was = self.simulate(*on)
        for key in ("fsdp.reshard_after_forward=false", "train.accumulate=2"):
            with self.subTest(key):
                _, truth = self.simulate(*on, key)
                answer = self.what_if(run, "--set", key)
                for of, result in (("measured", was), ("replayed", was), ("what_if", truth)):
                    reserved = result["memory"]["caching_allocator"]["peak_reserved_bytes"]
                    self.assertEqual(answer[of]["peak_bytes"], reserved, of)
                self.assertGreater(answer["what_if"]["peak_bytes"], answer["replayed"]["peak_bytes"])
        self.assertIn("reserved by PyTorch's allocator", self.call("what-if", run).stdout)

    def predicts(self, before: list[str], arguments: list[str], after: list[str], within_ns: float = 0) -> dict:
        run, was = self.simulate(*before)
        _, truth = self.simulate(*before, *after)
        answer = self.what_if(run, *arguments)
        self.same(answer["replayed"], was, within_ns)
        in_doubt = answer["doubt"]["reach"] > 0  # nobody measured some of the ops, so the truth is only known to be inside
        self.same(answer["what_if"], truth, within_ns, () if in_doubt else ("ci_low", "ci_high"))
        step, true_ms = answer["what_if"]["step_ms"], truth["metrics"]["step_ms"]["median"]
        self.assertLessEqual(step["ci_low"], true_ms + (within_ns + 0.01) * 1e-6)
        self.assertGreaterEqual(step["ci_high"], true_ms - (within_ns + 0.01) * 1e-6)
        return answer

    def test_a_faster_link(self) -> None:
        answer = self.predicts([], ["--link-scale", "2"], ["emulate.link_gb_per_s=2"])
        self.assertLess(answer["what_if"]["step_ms"]["median"], answer["replayed"]["step_ms"]["median"])
        self.assertAlmostEqual(answer["links"][0]["ns_per_byte"], 1, places=9)
        self.assertEqual(answer["links"][0]["hop_us"], 0)
        self.predicts([], ["--set", "emulate.link_gb_per_s=0.5"], ["emulate.link_gb_per_s=0.5"])

    def test_latency_is_no_matter_of_bandwidth(self) -> None:
        latency = ["emulate.link_latency_us=100"]
        self.predicts(latency, ["--link-scale", "2"], ["emulate.link_gb_per_s=2"])
        self.predicts(latency, ["--set", "emulate.link_latency_us=5"], ["emulate.link_latency_us=5"])

    def test_prefetch_and_limits(self) -> None:
        for key in ("fsdp.backward_prefetch=none", "fsdp.backward_prefetch=2", "fsdp.forward_prefetch=none",
                    "fsdp.all_gather_limit=strict:1", "fsdp.all_gather_limit=fsdp1_queue:2",
                    "fsdp.all_gather_limit=unlimited", "inject.host_sync_after_layer=1"):
            with self.subTest(key):
                self.predicts([], ["--set", key], [key])
        self.predicts([key], ["--link-scale", "0.5"], ["emulate.link_gb_per_s=0.5"])

    def test_strategies_of_other_messages(self) -> None:
        answer = self.predicts([], ["--set", "fsdp.strategy=shard_grad_op"], ["fsdp.strategy=shard_grad_op"])
        self.assertEqual(answer["op_times"]["borrowed"], 0)
        self.assertEqual(answer["reach"], "measured")
        self.assertEqual(answer["ops"]["extrapolated"], 0)
        self.predicts([], ["--set", "fsdp.layout=flat"], ["fsdp.layout=flat"])
        for keys in (["fsdp.strategy=no_shard"], ["fsdp.wrap=blocks:2"], ["fsdp.param_dtype=bf16"],
                     ["fsdp.strategy=hybrid_shard", "mesh.shard=2"], ["train.accumulate=2"],
                     ["fsdp.activation_checkpointing=true"]):
            with self.subTest(keys):
                answer = self.predicts([], sets(keys), keys, within_ns=30)
                times = answer["op_times"]
                self.assertGreater(times["scaled"] + times["fitted"] + times["borrowed"], 0)
                self.assertNotEqual(answer["reach"], "measured")
                self.assertEqual(answer["ops"]["measured"], times["measured"])

    def test_a_preset_replaces_what_the_own_preset_of_the_run_set(self) -> None:
        """config.toml of a run names every key: none of them may keep the preset of the question from its work."""
        accumulates, by_engine = ["train.accumulate=2"], "fsdp.preset=nanotron"
        run, _ = self.simulate(*accumulates)
        _, truth = self.simulate(*accumulates, by_engine)
        modes = [self.what_if(run, "--set", by_engine)["keys"], truth["config"]["train"]["accumulate_mode"]]
        self.assertIn({"key": "train.accumulate_mode", "was": "reduce_each", "is": modes[1]}, modes[0])
        preset = "fsdp.preset=deepspeed-z2"
        run, _ = self.simulate()
        _, truth = self.simulate(preset, "fsdp.strategy=shard_grad_op", "fsdp.forward_prefetch=none",
                                 "fsdp.backward_prefetch=none")
        answer = self.what_if(run, "--set", preset)
        self.assertNotEqual(answer["reach"], "measured")
        self.assertEqual(answer["what_if"]["peak_bytes"], truth["memory"]["peak_bytes"]["total"])
        self.assertAlmostEqual(answer["what_if"]["step_ms"]["median"], truth["metrics"]["step_ms"]["median"], delta=1e-3)
        # A key that the run set otherwise than its preset was somebody's choice, and stays.
        run, _ = self.simulate("fsdp.all_gather_limit=strict:1")
        done = self.call("what-if", run, "--set", "fsdp.preset=simplefsdp")
        self.assertIn('leaves these alone, because the profile sets them explicitly: fsdp.all_gather_limit', done.stderr)

    def test_two_communicators_share_the_link(self) -> None:
        keys = ["fsdp.separate_reduce_scatter_comm=true", "emulate.link_gb_per_s=0.1"]
        self.predicts(keys, ["--set", "fsdp.separate_reduce_scatter_comm=false"],
                      ["fsdp.separate_reduce_scatter_comm=false"], within_ns=100)
        self.predicts(keys[1:], ["--set", keys[0]], keys[:1], within_ns=100)
        self.predicts(keys, ["--link-scale", "2"], ["emulate.link_gb_per_s=0.2"], within_ns=100)

    def test_without_the_straggler(self) -> None:
        slow = ["inject.slow_rank=2", "inject.slow_rank_factor=1.5"]
        answer = self.predicts(slow, ["--without-straggler"], ["inject.slow_rank=-1"])
        self.assertEqual(answer["slowest_rank"]["rank"], 2)
        self.assertAlmostEqual(answer["slowest_rank"]["compute_ratio"], 1.5, places=4)
        self.predicts(slow, ["--set", "inject.slow_rank=-1"], ["inject.slow_rank=-1"], within_ns=100)
        self.predicts([], sets(slow), slow)
        link = ["inject.slow_link_rank=1", "inject.slow_link_factor=2"]
        self.predicts([], sets(link), link)

    def test_faster_computation(self) -> None:
        self.predicts([], ["--compute-scale", "2"], ["emulate.compute_tflops=0.04"], within_ns=100)
        self.predicts([], ["--set", "emulate.compute_tflops=0.04"], ["emulate.compute_tflops=0.04"], within_ns=100)

    def test_the_host_is_found_out(self) -> None:
        host = ["simulate.host_issue_us=40", "simulate.launch_us=7", "simulate.wake_us=3"]
        self.predicts(host, ["--set", "fsdp.backward_prefetch=none"], ["fsdp.backward_prefetch=none"])
        delay = ["inject.delay_lane=all_gather", "inject.delay_us=500", "inject.delay_rank=1"]
        self.predicts(delay, ["--link-scale", "2"], ["emulate.link_gb_per_s=2"])
        self.predicts(delay, ["--set", "inject.delay_us=0"], ["inject.delay_us=0"])

    def test_each_step_keeps_its_own_luck(self) -> None:
        run, was = self.simulate("simulate.jitter_pct=5", "train.steps=8")
        answer = self.what_if(run, "--link-scale", "2")
        self.same(answer["replayed"], was)
        self.assertEqual(answer["what_if"]["step_ms"]["n"], 8)
        steps = answer["what_if"]["step_ms"]
        self.assertLess(steps["ci_low"], steps["ci_high"])
        self.assertLess(answer["change"]["ci_high"], 0)

    def test_a_real_run(self) -> None:
        run, was = self.simulate("emulate.compute_tflops=none", "emulate.link_gb_per_s=none", "mesh.ranks=2", command="run")
        done = self.call("what-if", run, "--link-scale", "2", "--without-straggler")
        for words in ("measured", "replayed", "what-if", "exposed communication", "peak memory", "the slowest rank is "):
            self.assertIn(words, done.stdout)
        answer = self.what_if(run)
        self.assertEqual(answer["measured"]["step_ms"]["median"], was["metrics"]["step_ms"]["median"])
        self.assertEqual(answer["what_if"]["steps_ms"], answer["replayed"]["steps_ms"])
        self.assertEqual(answer["replayed"]["peak_bytes"], answer["measured"]["peak_bytes"])
        # Also a run that is asked about itself is another run than the next one like it, and one shows not how much.
        self.assertIsNone(answer["doubt"]["between_runs"])
        for words in ("(no interval)", "an unknown part because runs differ", "compare measures both"):
            self.assertIn(words, done.stdout)
        self.assertIn("(no interval)", self.call("tune", "--from", run, "--evaluations", "30", "--out", "tuned", "-q").stdout)

    def test_answers_from_a_disturbed_run_say_so(self) -> None:
        run, was = self.simulate("emulate.compute_tflops=none", "emulate.link_gb_per_s=none", "mesh.ranks=2",
                                 command="run")
        sentence = f"{run} was measured on a busy machine (other programs used 37 % of the CPU)"
        for share, says in ((0.37, True), (0.04, False)):
            (self.folder / run / "result.json").write_text(sealed(was | {"others_share": share}))
            printed = [self.call(*command, "-q").stdout for command in (
                ("what-if", run, "--link-scale", "2", "--out", f"answer-{share}"),
                ("tune", "--from", run, "--evaluations", "30", "--out", f"tuned-{share}"))]
            for text in printed:
                self.assertEqual(sentence in text, says, text)
                self.assertEqual("busy" in text, says, text)
            answer, tuned = (json.loads((self.folder / f"{name}-{share}" / file).read_text())
                             for name, file in (("answer", "what_if.json"), ("tuned", "tune.json")))
            for document in (answer, tuned):
                self.assertEqual("37 % of the CPU" in document.get("disturbed_because", ""), says)

    def test_intervals_hold_what_the_changed_run_measures(self) -> None:
        """A sample of what_if_campaign.py, in which the luck of the changed run is another."""
        campaign = what_if_campaign.Campaign(PROGRAM, SOURCE, self.folder, "computed")
        answered = campaign.of_base(what_if_campaign.BASES[0], what_if_campaign.QUESTIONS[::3], what_if_campaign.FIXED[1:2])
        self.assertGreater(len(answered), 5)
        self.assertEqual([a.line() for a in answered if not a.inside], [])

    def test_a_run_that_was_simulated_is_simulated_again(self) -> None:
        """Its op times do not tell what computation loses beside other collectives, what another group's links take, or
        that two communicators share a network card."""
        on = ["emulate.compute_tflops=none", "emulate.link_gb_per_s=none", "model.width=4096", "model.heads=32",
              "model.kv_heads=32", "model.ffn_width=14336", "train.seq_len=2048", "train.steps=2", "fsdp.param_dtype=bf16"]
        without, pre = ["fsdp.backward_prefetch=none"], ["fsdp.backward_prefetch=pre"]
        fast, slow = [*on, "simulate.cluster=dgx-h100"], [*on, "simulate.cluster=gcp-a2", "mesh.ranks=16"]
        hybrid = ["fsdp.strategy=hybrid_shard", "mesh.shard=4"]
        for cluster, before, after in ((fast, without, pre), (fast, pre, without),
                                       (slow, hybrid, ["fsdp.strategy=full_shard", "mesh.shard=16", "mesh.replicate=1"]),
                                       (slow, ["simulate.jitter_pct=3"], ["fsdp.separate_reduce_scatter_comm=true"])):
            run, was = self.simulate(*cluster, *before)
            kept = [key for key in before if key.split("=")[0] not in [key.split("=")[0] for key in after]]
            _, truth = self.simulate(*cluster, *kept, *after)
            answer = self.what_if(run, *sets(after))
            for of, result in (("replayed", was), ("what_if", truth)):
                self.same(answer[of], {**result, "memory": {"peak_bytes": {"total": result["memory"]["caching_allocator"][
                    "peak_reserved_bytes"]}}}, bounds=())
            change = answer["change"]
            self.assertLess(change["ci_low"], change["median"])
            self.assertGreater(change["ci_high"], change["median"])
            self.assertIn("published rates", answer["machine"])
            self.assertIn("simulated again", self.call("what-if", run, *sets(after)).stdout)
        faster = self.what_if(run, "--link-scale", "2")
        self.assertLess(faster["change"]["ci_high"], -0.3, "links are all that this step waits for")
        self.assertGreater(faster["change"]["ci_low"], -0.7)
        self.assertIn("--set inject.slow_rank=-1", self.error("what-if", run, "--without-straggler"))

    def test_a_cluster_that_has_changed_since_is_said_to(self) -> None:
        cluster = self.folder / "own.toml"
        text = (SOURCE / "profiles/clusters/gcp-a2.toml").read_text()
        cluster.write_text(text)
        run, _ = self.simulate(f"simulate.cluster={cluster}", "emulate.compute_tflops=none", "emulate.link_gb_per_s=none")
        self.assertNotIn("has changed", self.call("what-if", run).stdout)
        cluster.write_text(text.replace("framework_factor = 1.18", "framework_factor = 2.36"))
        self.assertIn("this program has changed", self.call("what-if", run).stdout)
        tuned = self.call("tune", "--from", run, "--evaluations", "50", "--out", "tuned-changed")
        self.assertRegex(tuned.stderr, r"a step of run\d+ took [\d.]+ ms, and takes [\d.]+ ms as its configuration, cluster")

    def test_on_gpus_computation_that_newly_runs_beside_collectives_is_slower(self) -> None:
        """No model says by how much: the interval is wider, and to that side."""
        on = ["simulate.cluster=dgx-h100", "emulate.compute_tflops=none", "emulate.link_gb_per_s=none", "model.width=4096",
              "model.heads=32", "model.kv_heads=32", "model.ffn_width=14336", "train.seq_len=2048", "train.steps=1",
              "fsdp.param_dtype=bf16", "fsdp.forward_prefetch=none"]
        without, pre = ["fsdp.backward_prefetch=none"], ["fsdp.backward_prefetch=pre"]
        run, was = self.simulate(*on, *without)
        _, truth = self.simulate(*on, *pre)
        folder = self.folder / shutil.copytree(self.folder / run, self.folder / self.out("gpus"))
        result = json.loads((folder / "result.json").read_text())
        result["world"]["backend"] = "cuda"
        (folder / "result.json").write_text(sealed(result))
        config = (folder / "config.toml").read_text()
        (folder / "config.toml").write_text(config.replace('cluster = "dgx-h100"', 'cluster = ""')
                                            .replace('backend = "virtual"', 'backend = "cuda"'))
        answer = self.what_if(str(folder), *sets(pre))
        true = truth["metrics"]["step_ms"]["median"] / was["metrics"]["step_ms"]["median"] - 1
        change = answer["change"]
        self.assertGreater(answer["doubt"]["beside"], 0.002)
        self.assertLess(change["median"], true)
        self.assertGreater(change["ci_high"], true)
        self.assertIn("longer still, because computation runs beside other", self.call("what-if", str(folder), *sets(pre)).stdout)
        # tune knows it, too, whose interval goes as far to both sides.
        self.call("tune", "--from", str(folder), "--out", "tuned-gpus", "-q")
        tuned = json.loads((self.folder / "tuned-gpus/tune.json").read_text())
        self.assertGreater(tuned["gain_high"] - tuned["gain_low"], answer["doubt"]["beside"])

    def error(self, *arguments: str) -> str:
        done = self.call(*arguments, code=BAD_INPUT)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_what_a_replay_cannot_know_is_refused(self) -> None:
        run, _ = self.simulate()
        for key in ("model.layers=4", "mesh.ranks=2", "simulate.cluster=dgx-h100", "emulate.link_gb_per_s=none",
                    "train.optimizer=sgd"):
            with self.subTest(key):
                self.assertIn(key.split("=")[0], self.error("what-if", run, "--set", key))
        self.assertIn("--link-scale 0 ", self.error("what-if", run, "--link-scale", "0"))
        self.assertIn("fsdp.backward_prefetch", self.error("what-if", run, "--set", "fsdp.backward_prefech=none"))
        self.assertIn("no such file or folder", self.error("what-if", "nowhere"))
        alone, _ = self.simulate("mesh.ranks=1")
        self.assertIn("one rank", self.error("what-if", alone, "--without-straggler"))

    def test_an_answer_never_takes_the_place_of_what_it_is_from(self) -> None:
        on = ["simulate.cluster=dgx-h100", "emulate.compute_tflops=none", "emulate.link_gb_per_s=none"]
        run, _ = self.simulate(*on, "simulate.seed=3")  # which nobody else asks
        for command in (["what-if", run], ["tune", "--from", run], ["tune", run], ["expect", run], ["compare", run, run],
                        ["trace", "explain", f"{run}/trace"], ["trace", "diff", run, f"{run}/trace"], ["gate", run, "--against", run]):
            for out in (run, f"{run}/."):
                with self.subTest(command):
                    self.assertIn("would be lost", self.error(*command, "--out", out, "--overwrite"))
        self.call("simulate", f"{run}/config.toml", "--out", run, "--overwrite", "-q")  # is the same run
        self.call("what-if", run)

    def test_damaged_results_are_said_to_be(self) -> None:
        run, _ = self.simulate("simulate.seed=2")  # which nobody else asks
        trace = self.folder / run / "trace/rank_1.json.gz"
        whole = trace.read_bytes()
        text = gzip.decompress(whole).decode()
        for damage in (whole[:len(whole) // 2], b"{}", gzip.compress(text.replace('"op":3,', '"op":4,').encode()),
                       gzip.compress(text.replace('"ts":', '"tz":').encode()),
                       (self.folder / run / "trace/rank_0.json.gz").read_bytes()):
            trace.write_bytes(damage)
            self.assertIn("rank_1.json.gz", self.error("what-if", run))
        trace.unlink()
        self.assertIn("rank_1.json.gz: is missing", self.error("what-if", run))
        trace.write_bytes(whole)
        config = self.folder / run / "config.toml"
        config.write_text(config.read_text().replace("layers = 3", "layers = 2"))
        self.assertIn("do not belong together", self.error("what-if", run))
        config.unlink()
        self.assertIn("config.toml: is missing", self.error("what-if", run))


if __name__ == "__main__":
    PROGRAM, SOURCE = sys.argv[1], Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
