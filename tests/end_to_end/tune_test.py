#!/usr/bin/python3
"""tune: its answer is a profile that runs, in the predicted step and to the byte in the predicted memory.

    tune_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import csv
import json
import signal
import unittest

import program
from program import BASE, INTERRUPTED, sets

FEW = ["--evaluations", "150", "-q"]
# Three of the structures' axes are enough here.
SMALL = ["--fix", "fsdp.preset", "--fix", "fsdp.reshard_after_forward", "--fix", "fsdp.activation_checkpointing"]


class Tune(program.Program):
    def setUp(self) -> None:
        super().setUp()
        self.profile = self.write("base.toml", BASE)

    def tune(self, *arguments: str, out: str = "tuned", code: int = program.OK) -> dict:
        self.call("tune", *arguments, *FEW, "--out", out, code=code)
        return json.loads((self.folder / out / "tune.json").read_text())

    def result(self, folder: str) -> dict:
        return json.loads((self.folder / folder / "result.json").read_text())

    def test_the_answer_runs_as_predicted(self) -> None:
        answer = self.tune(self.profile)
        proposed = answer["in_force"] if answer["keep"] else answer["best"]
        self.call("simulate", "tuned/tuned.toml", "--out", "simulated", "-q")
        simulated = self.result("simulated")
        self.assertAlmostEqual(simulated["metrics"]["step_ms"]["median"], proposed["step_ms"], delta=1e-6)
        self.call("run", "tuned/tuned.toml", "--out", "ran", "-q")
        memory = self.result("ran")["memory"]
        self.assertEqual(memory["peak_bytes"]["total"], proposed["live_bytes"])

    def test_what_is_in_force_is_among_the_points(self) -> None:
        answer = self.tune(self.profile)
        self.assertEqual(answer["in_force"]["settings"], {})
        self.assertLessEqual(answer["best"]["step_ms"], answer["in_force"]["step_ms"])
        with open(self.folder / "tuned/points.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(answer["points"]))
        self.assertAlmostEqual(float(rows[0]["step_ms"]), answer["in_force"]["step_ms"], places=5)
        self.assertIn("fsdp.wrap", rows[0])
        policies = answer["policies"]
        self.assertEqual(policies["walked"] + policies["same"] >= len(rows), True)

    def test_one_seed_one_answer(self) -> None:
        first, again = (self.tune(self.profile, "--seed", "3", "--threads", threads, out=threads) for threads in "12")
        first.pop("seconds"), again.pop("seconds")
        self.assertEqual(first, again)

    def test_from_traces_it_answers_with_what_to_change(self) -> None:
        run = ["--set", "fsdp.backward_prefetch=none", "--set", "mesh.ranks=4", "--set", "train.steps=3", *sets(
            "device.backend=virtual", "emulate.compute_tflops=0.02", "emulate.link_gb_per_s=0.5", "simulate.host_issue_us=5")]
        self.call("run", self.profile, *run, "--out", "run", "-q")
        answer = self.tune("--from", "run/trace", "--fix", "fsdp.strategy")
        self.assertEqual(answer["traced"]["program"], "fsdpbench")
        self.assertLess(abs(answer["traced"]["miss"]), 0.03)
        self.assertGreater(answer["gain"], 0.01)
        keys = [change["key"] for change in answer["traced"]["changes"]]
        self.assertTrue(keys)
        for key in ("fsdp.preset", "train.batch_per_rank", "fsdp.activation_checkpointing"):
            self.assertNotIn(key, keys)
        self.assertEqual(answer["in_force"]["step_ms"] > answer["best"]["step_ms"], True)
        for name in ("recognised.toml", "calibration.toml", "tuned.toml"):
            self.assertTrue((self.folder / "tuned" / name).exists(), name)
        self.call("simulate", "tuned/tuned.toml", "--out", "again", "-q")
        again = self.result("again")["metrics"]["step_ms"]["median"]
        self.assertAlmostEqual(again / answer["best"]["step_ms"], 1, delta=0.05)

    def test_from_traces_of_gpus_memory_is_that_of_a_made_up_job(self) -> None:
        self.call("simulate", "quickstart", "--cluster", "dgx-h100", "--out", "run", "-q")
        said = self.call("tune", "--from", "run/trace", "--memory", "70GiB", *FEW, "--out", "tuned").stdout
        self.assertIn("--memory was compared with that of a made-up job.", said)
        self.assertNotIn("was compared", self.call("tune", "--from", "run/trace", *FEW, "--out", "free").stdout)
        answer = json.loads((self.folder / "tuned/tune.json").read_text())
        self.assertGreaterEqual(answer["in_force"]["margin_bytes"], 1 << 30)  # half of a context and a communicator
        with open(self.folder / "tuned/points.csv", newline="", encoding="utf-8") as points:
            self.assertEqual({row["memory"] for row in csv.DictReader(points)} - {"at least"}, {"made up"})

    def test_what_no_trace_tells_is_not_proposed(self) -> None:
        """A trace does not tell that the head has the embedding's weight, which must then be in the root."""
        self.call("simulate", self.profile, *sets("model.tied_head=true"), "--out", "tied", "-q")
        self.tune("--from", "tied/trace", "--export", "pytorch-fsdp2")
        with open(self.folder / "tuned/points.csv", newline="", encoding="utf-8") as points:
            self.assertEqual({row["fsdp.head_unit"] for row in csv.DictReader(points)}, {"fsdp.head_unit=false"})
        for name in ("tuned.toml", "recognised.toml", "pytorch_fsdp2.py"):
            text = (self.folder / "tuned" / name).read_text()
            self.assertIn("are made up, and with them tokens/s and memory, its total and its differences", text, name)
            self.assertNotIn("data loader", text, name)

    def test_traces_of_pytorch_are_answered_in_its_words(self) -> None:
        recorded = next((program.SOURCE / "tests/peer/recorded").glob("traces-*"))
        traces = sorted(map(str, (recorded / "fsdp1-no-backward-prefetch").glob("rank_*")))
        answer = self.tune("--from", *traces, "--least-gain", "0", out="fsdp1")
        self.assertEqual(answer["traced"]["system"], "pytorch-fsdp1")
        self.assertTrue(any(path.name.startswith("pytorch_fsdp1") for path in (self.folder / "fsdp1").iterdir()))
        for change in answer["traced"]["changes"]:
            self.assertFalse(change["words"].startswith("it has no word"), change)

    def test_what_cannot_be_tuned_from_its_trace(self) -> None:
        recorded = next((program.SOURCE / "tests/peer/recorded").glob("traces-*"))
        for name, words in (("ddp", "only sharded training"), ("alone", "only sharded training")):
            message = self.error("tune", "--from", str(recorded / name))
            self.assertIn("cannot be tuned from its trace", message)
            self.assertIn(words, message)
        message = self.error("tune", "--from", str(recorded / "fsdp2/rank_0.json.gz"), "-o", "one")
        self.assertIn("The job has 2 ranks; files were given for 1: one file per rank is needed.", message)
        self.assertFalse((self.folder / "one").exists())
        # Two steps accuse nobody, so that settings are tried.
        self.assertNotIn("holds the others up", self.call("tune", "--from", str(recorded / "fsdp2"), *FEW, "-o", "two").stdout)
        self.assertIn("model, mesh.ranks and mesh.tensor",
                      self.error("tune", "--from", str(recorded / "fsdp1-no-backward-prefetch"), "--set", "mesh.ranks=8",
                                 "-o", "other"))

    def test_nothing_beyond_the_budget_is_proposed(self) -> None:
        free = self.tune(self.profile, out="free")
        least = min(point[1] for point in free["points"])
        answer = self.tune(self.profile, "--memory", f"{least}B", out="tight")
        self.assertLessEqual(answer["best"]["predicted_bytes"], least)
        for point in answer["points"]:
            self.assertEqual(point[2], point[1] <= least)

    def test_another_machine_on_the_computed_clock(self) -> None:
        keys = sets("emulate.compute_tflops=none", "emulate.link_gb_per_s=none")
        answer = self.tune(self.profile, *keys, "--cluster", "dgx-h100", "--memory", "80GiB")
        self.assertEqual(answer["basis"], "published rates")
        self.assertGreater(answer["best"]["margin_bytes"], 0)
        self.assertGreater(answer["best"]["predicted_bytes"], answer["best"]["reserved_bytes"])

    def test_on_a_cluster_the_gpu_is_the_budget(self) -> None:
        job = ("llama3-70b", "--cluster", "dgx-h100")
        answer = self.tune(*job, "--ranks", "32", out="gpu")
        self.assertEqual(answer["budget"]["bytes"], 80 << 30)
        for step_ms, bytes_, fits in answer["points"]:
            self.assertFalse(fits and bytes_ > 80 << 30, step_ms)
        self.assertIn("The 80.00 GiB of the cluster's GPU (--memory says otherwise): nothing fits",
                      self.error("tune", *job, "--ranks", "16", "-o", "small", *FEW))
        self.assertIn("fits only with retries in the 40.00 GiB of its GPU",
                      self.call("expect", "llama3-8b", "--cluster", "roce-a100-40gb", "--ranks", "4").stdout)
        self.assertGreater(self.tune(*job, "--ranks", "16", "--memory", "200GiB", out="more")["best"]["predicted_bytes"], 80 << 30)

    def test_on_a_cluster_memory_is_that_under_pytorchs_allocator(self) -> None:
        """A training of 30B that ran on 80 GB."""
        job = ("quickstart", *sets("model.preset=mpt-30b", "mesh.ranks=8", "fsdp.preset=fsdp1", "fsdp.param_dtype=bf16",
                                   "fsdp.activation_checkpointing=true", "train.batch_per_rank=3",
                                   "train.seq_len=2048"), "--cluster", "dgx-h100")
        self.call("simulate", *job, "--out", "whole", "-q")
        self.assertTrue(self.result("whole")["memory"]["fits"])
        few = (*job, *sets("model.layers=4"))
        answer = self.tune(*few, "--memory", "80GiB", out="fsdp1")
        self.call("simulate", *few, "--out", "simulated", "-q")
        memory = self.result("simulated")["memory"]
        self.assertEqual(answer["in_force"]["reserved_bytes"], memory["caching_allocator"]["peak_reserved_bytes"])
        self.assertTrue(answer["in_force"]["fits"])

    def test_few_evaluations_find_the_one_change_that_fits_and_helps(self) -> None:
        answer = self.tune("llama3-8b-emulated", "--cluster", "dgx-h100", "--set", "fsdp.backward_prefetch=none",
                           "--memory", "40GiB")
        self.assertFalse(answer["keep"])
        self.assertGreater(answer["gain"], 0.1)
        with open(self.folder / "tuned/points.csv", newline="", encoding="utf-8") as points:
            current, *tried = csv.DictReader(points)
        prefetch = {**current, "fsdp.backward_prefetch": "fsdp.backward_prefetch=pre"}
        self.assertTrue(any(all(row[key] == prefetch[key] for key in prefetch if "." in key) for row in tried))

    def test_a_split_of_experts_takes_what_simulate_says(self) -> None:
        job = ("llama4-scout", *sets("mesh.ranks=8", "model.layers=2", "train.seq_len=1024"), "--cluster", "dgx-h100")
        answer = self.tune(*job)
        settings = answer["best"]["settings"]
        self.assertRegex(settings["mesh.expert"], "mesh.expert=[248]$")
        self.call("simulate", "tuned/tuned.toml", "--out", "simulated", "-q")
        step_ms = self.result("simulated")["metrics"]["step_ms"]["median"]
        self.assertAlmostEqual(step_ms, answer["best"]["step_ms"], delta=1e-6)

    def test_from_a_finished_run(self) -> None:
        self.call("simulate", self.profile, *sets("fsdp.backward_prefetch=none"), "--out", "was", "-q")
        answer = self.tune("--from", "was")
        self.assertAlmostEqual(answer["in_force"]["step_ms"], self.result("was")["metrics"]["step_ms"]["median"],
                               delta=1e-5)
        # All its steps took the same, so the answer is in doubt only for ops that the run did not have.
        low, high = answer["gain_low"] or answer["gain"], answer["gain_high"] or answer["gain"]
        self.assertLessEqual(low, answer["gain"])
        self.assertGreaterEqual(high, answer["gain"])
        kept = self.tune("--from", "was", "--fix", "fsdp.wrap", "--fix", "fsdp.strategy", "--fix", "fsdp.head_unit",
                         "--fix", "fsdp.layout", "--fix", "fsdp.activation_checkpointing", "--fix",
                         "fsdp.reshard_after_forward", "--fix", "train.accumulate", "--fix", "train.batch_per_rank",
                         out="kept")
        self.assertIsNone(kept["gain_low"])
        self.assertLessEqual(answer["best"]["step_ms"], answer["in_force"]["step_ms"])
        self.assertIn("--from was: was another training",
                      self.error("tune", "--from", "was", "--set", "model.layers=3"))

    def test_from_a_simulation_of_a_cluster(self) -> None:
        """Its machine is asked, not its op times: groups that newly cross nodes, and what runs beside collectives."""
        keys = sets("emulate.compute_tflops=none", "emulate.link_gb_per_s=none", "simulate.cluster=gcp-a2",
                    "mesh.ranks=16", "fsdp.strategy=hybrid_shard", "mesh.shard=4", "model.width=1024")
        self.call("simulate", self.profile, *keys, "--out", "hybrid", "-q")
        answer = self.tune("--from", "hybrid")
        self.assertEqual(answer["basis"], "the machine of hybrid: published rates")
        self.assertLess(answer["gain_low"], answer["gain"])
        self.assertGreater(answer["gain_high"], answer["gain"])
        self.call("simulate", "tuned/tuned.toml", "--out", "tuned-hybrid", "-q")
        for of, run in (("in_force", "hybrid"), ("best", "tuned-hybrid")):
            simulated = self.result(run)
            self.assertAlmostEqual(answer[of]["step_ms"], simulated["metrics"]["step_ms"]["median"], delta=1e-5)
            self.assertEqual(answer[of]["reserved_bytes"], simulated["memory"]["caching_allocator"]["peak_reserved_bytes"])
        # Nor do its causes and knobs rest on them.
        for knob in self.result("hybrid")["knobs"]:
            self.call("simulate", "hybrid/config.toml", *sets(knob["set"]), "--out", "turned", "-q", "--overwrite")
            step_ms = self.result("turned")["metrics"]["step_ms"]["median"]
            self.assertAlmostEqual(knob["step_ms"], step_ms, delta=1e-4, msg=knob["set"])

    def test_verified_answers_need_what_was_predicted(self) -> None:
        answer = self.tune(self.profile, *SMALL, "--verify", "2", "--trials", "3", "--memory", "1GiB",
                           "--memory-kind", "live")
        verified = answer["verified"]
        for policy in [verified["in_force"], verified["control"], *verified["proposals"]]:
            self.assertEqual(policy["live_bytes"], policy["predicted_live_bytes"])
            self.assertLessEqual(policy["live_bytes"], 1 << 30)
            self.assertGreaterEqual(len(policy["trials_ms"]), 3)
        self.assertEqual(len(verified["proposals"]), 2)
        self.assertIn("ratio", verified["control"])
        # The last round has fewer policies than the first.
        self.assertGreater(len(verified["in_force"]["trials_ms"]),
                           min(len(p["trials_ms"]) for p in verified["proposals"]))
        self.call("simulate", "tuned/tuned.toml", *sets("simulate.calibration=tuned/calibration.toml"), "--out", "s",
                  "-q")

    def test_the_answer_in_other_words(self) -> None:
        self.tune(self.profile, "--export", "pytorch-fsdp2")
        with open(self.folder / "tuned/points.csv", newline="", encoding="utf-8") as points:
            limits = {row["fsdp.all_gather_limit"] for row in csv.DictReader(points)}
        self.assertEqual(limits, {"fsdp.all_gather_limit=fsdp2_event"})  # FSDP2 has no other
        self.call("export", "tuned/tuned.toml", "--to", "pytorch-fsdp2", "--out", "exported")
        for file in (self.folder / "exported").iterdir():
            self.assertEqual(file.read_text(), (self.folder / "tuned" / file.name).read_text())

    def test_bad_questions(self) -> None:
        for words, arguments in {
            "nothing fits. The least process memory found is": ["--memory", "1KiB"],
            "unknown key 'fsdp.warp'; the nearest valid key is 'fsdp.wrap'": ["--fix", "fsdp.warp"],
            "contradict each other": ["--fix", "fsdp.wrap=block", "--fix", "fsdp.wrap=model"],
            "is no size": ["--memory", "much"],
            "expected live, reserved, process": ["--memory-kind", "virtual"],
            "expected step, memory, tokens_per_s": ["--objective", "speed"],
            "pytorch-fsdp2": ["--export", "pytorch-fsdp3"],
            "has nowhere to": ["--set", "device.backend=virtual", "--verify", "2"],
            "too few": ["--verify", "2", "--trials", "2"],
            "nothing says how fast": ["--set", "emulate.compute_tflops=none"],
            "fsdp.param_dtype = fp7 is not valid": ["--allow-dtypes", "fp7"],
        }.items():
            with self.subTest(words):
                self.assertIn(words, self.error("tune", self.profile, *arguments, *FEW))
        self.assertIn("tune needs a PROFILE", self.error("tune"))

    def test_the_best_is_of_what_was_tried(self) -> None:
        tried = [self.call("tune", self.profile, "--least-gain", "90", "--evaluations", n, "--out", f"n{n}", "-q").stdout
                 for n in ("1", "30")]
        self.assertIn("Keep what you have: nothing else was tried.", tried[0])
        self.assertNotIn("each of these changes the best", tried[0])
        self.assertRegex(tried[1], "Keep what you have: of the [0-9]+ policies tried, the best would take")
        self.assertIn("alone, each of these changes the best step time by less than 90 %: ", tried[1])

    def test_ctrl_c_gives_the_best_so_far(self) -> None:
        process = self.start("tune", str(program.SOURCE / "profiles/runs/llama3-8b-emulated.toml"), "--out", "stopped",
                             "--evaluations", "100000000")
        assert process.stderr is not None
        while "best" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=program.PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertIn("interrupted: this is the best so far", out)
        answer = json.loads((self.folder / "stopped/tune.json").read_text())
        self.assertTrue(answer["interrupted"])
        self.assertGreater(answer["policies"]["left"], 0)


if __name__ == "__main__":
    program.main()
