#!/usr/bin/python3
"""`run` as its user meets it: the files it writes, what it prints, what it refuses.

    run_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import os
import subprocess

import program
from program import CANNOT_WRITE, DIVERGED, OK, TINY, Program, sets

THREADS = [*TINY, "mesh.ranks=2"]


class Run(Program):
    def result(self, *keys: str, out: str = "out") -> dict:
        self.call("run", self.profile, *sets(*THREADS, *keys), "--out", out, "-q")
        return json.loads((self.folder / out / "result.json").read_text())

    def test_writes_three_files_and_prints_the_table(self) -> None:
        done = self.call("run", self.profile, *sets(*THREADS), "--out", "out")
        for words in ("step time", "tokens/s", "loss", "compute", "communication", "exposed communication", "overlap",
                      "idle", "peak memory", "out/trace.json"):
            self.assertIn(words, done.stdout)
        self.assertIn("step", done.stderr)
        self.assertNotIn("\r", done.stderr + done.stdout)
        self.assertNotIn("\033", done.stderr + done.stdout)
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()),
                         ["config.toml", "result.json", "trace", "trace.json"])

    def test_result_has_the_promised_fields(self) -> None:
        result = self.result()
        self.assertGreaterEqual(result["schema_version"], 1)
        self.assertEqual(result["config"]["mesh"]["ranks"], 2)
        self.assertEqual(set(result["metrics"]["step_ms"]), {"median", "ci_low", "ci_high", "interval", "min", "max", "n"})
        self.assertEqual(result["metrics"]["step_ms"]["n"], 3)
        for name in ("compute_ms", "comm_ms", "exposed_comm_ms", "idle_ms", "overlap_pct", "tokens_per_s"):
            self.assertIsInstance(result["metrics"][name], (int, float), name)
        self.assertEqual(set(result["memory"]["peak_bytes"]),
                         {"total", "parameter_shards", "unsharded_parameters", "gradients", "optimizer", "activations",
                          "communication_buffers"})
        self.assertEqual(set(result["comm"]["wire_bytes_per_rank"]), {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"})
        self.assertEqual(len(result["train"]["loss"]), 4)
        self.assertTrue(result["train"]["params_digest"])
        self.assertTrue(result["world"]["git_revision"])

    def test_trace_is_a_chrome_trace(self) -> None:
        self.result()
        trace = json.loads((self.folder / "out/trace.json").read_text())
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        self.assertGreater(len(events), 50)
        self.assertTrue(all("ph" in event for event in events))

    def test_the_timeline_of_many_ranks_is_limited_and_says_so(self) -> None:
        keys = ["mesh.ranks=4", "trace.ranks=2", "emulate.compute_tflops=0.01", "emulate.link_gb_per_s=1",
                "inject.slow_rank=2", "inject.slow_rank_factor=20"]
        done = self.call("run", self.profile, *sets(*THREADS, *keys), "--out", "out")
        self.assertIn("shows ranks 0, ", done.stdout)
        trace = json.loads((self.folder / "out/trace.json").read_text())
        self.assertEqual((trace["ranks_of_run"], len(trace["ranks_shown"])), (4, 2))
        self.assertEqual({event["pid"] - 1 for event in trace["traceEvents"]}, set(trace["ranks_shown"]))
        self.assertEqual(len(list((self.folder / "out/trace").iterdir())), 4)
        self.check_traces("out/trace.json")
        self.result(*keys, "trace.ranks=0", out="all")
        self.assertNotIn("ranks_shown", json.loads((self.folder / "all/trace.json").read_text()))

    def test_traces_pass_their_check(self) -> None:
        self.result()
        self.check_traces("out/trace.json", "out/trace/rank_0.json.gz", "out/trace/rank_1.json.gz")

    def test_the_resolved_configuration_repeats_the_run(self) -> None:
        first = self.result()
        self.call("run", "out/config.toml", "--out", "again", "-q")
        again = json.loads((self.folder / "again/result.json").read_text())
        self.assertEqual(again["config"], first["config"])
        self.assertEqual(again["train"]["params_digest"], first["train"]["params_digest"])
        self.assertEqual((self.folder / "again/config.toml").read_text(), (self.folder / "out/config.toml").read_text())

    def test_emulated_compute_has_no_loss_and_no_digest(self) -> None:
        result = self.result("emulate.compute_tflops=0.01", "emulate.link_gb_per_s=1")
        self.assertNotIn("loss", result["train"])
        self.assertNotIn("params_digest", result["train"])
        self.assertTrue(result["world"]["emulated_compute"])

    def test_training_that_diverges_is_said_and_has_no_digest(self) -> None:
        for rate, steps, out in (("1e30", 3, "soon"), ("1e38", 1, "at the end")):
            done = self.call("run", self.profile, *sets(*THREADS, f"train.learning_rate={rate}", f"train.steps={steps}",
                                                        "train.warmup=0"), "--out", out, code=DIVERGED)
            self.assertTrue(done.stdout.startswith("diverged: "), done.stdout)
            self.assertIn("no parameters digest: ", done.stdout)
            self.assertIn("error: training diverged: ", done.stderr)
            self.assertNotIn("nan", done.stdout + done.stderr)
            result = json.loads((self.folder / out / "result.json").read_text())
            self.assertTrue(result["complete"])
            self.assertTrue(result["caveats"][0].endswith(result["diverged_because"]))
            self.assertNotIn("params_digest", result["train"])
            self.assertIn("NaN", result["train"]["no_digest_because"])
            self.assertIsNotNone(result["train"]["loss"][0])
        self.assertEqual(len(result["train"]["loss"]), 1)
        message = self.error("compare", "soon", "at the end", code=DIVERGED)
        self.assertIn("soon/result.json: training diverged: the loss is NaN at step ", message)

    def test_a_run_that_is_only_timed_says_why_it_has_no_digest(self) -> None:
        done = self.call("run", self.profile, *sets(*THREADS, "train.params_digest=false"), "--out", "timed")
        self.assertIn("no parameters digest: train.params_digest = false", done.stdout)
        train = json.loads((self.folder / "timed/result.json").read_text())["train"]
        self.assertNotIn("params_digest", train)
        self.assertIn("train.params_digest = false", train["no_digest_because"])

    def test_default_result_folder(self) -> None:
        done = self.call("run", self.profile, *sets(*THREADS))
        folders = list((self.folder / "runs").iterdir())
        self.assertEqual(len(folders), 1)
        self.assertTrue(folders[0].name.startswith("quickstart-"))
        self.assertIn(f"runs/{folders[0].name}/result.json", done.stdout)

    def test_a_model_without_kernels_is_refused_by_what_trains_and_explained(self) -> None:
        gpt = ["quickstart", "--set", "model.preset=openai-gpt2"]
        for command in (["run", *gpt], ["compare", *gpt]):
            said = self.error(*command)
            self.assertIn('There are no kernels for model.feed_forward = "plain"', said)
            self.assertIn("`fsdpbench simulate`", said)
        self.assertIn("openai-gpt2: 124 M parameters", self.call("explain", *gpt).stdout)

    def test_a_mixture_of_experts_is_only_simulated(self) -> None:
        mixture = [*THREADS, "model.experts=4", "model.active_experts=2", "emulate.compute_tflops=none"]
        for split in ([], ["mesh.expert=2"]):
            said = self.error("run", self.profile, *sets(*mixture, *split))
            self.assertIn("There are no kernels for model.experts = 4", said)
            self.assertIn("`fsdpbench simulate`", said)

    def test_a_run_that_fails_leaves_no_folder(self) -> None:
        self.error("run", self.profile, *sets(*THREADS, "device.backend=cuda", "emulate.compute_tflops=none"), "--out",
                   "deep/out", code=self.cuda_code())
        self.assertFalse((self.folder / "deep").exists())

    def cuda_code(self) -> int:
        """The message for a backend that the program or the machine does not have."""
        done = subprocess.run([program.PROGRAM, "run", self.profile, *sets(*THREADS, "device.backend=cuda")],
                              capture_output=True, cwd=self.folder, timeout=program.PATIENCE_S)
        if done.returncode == OK:
            self.skipTest("there is a GPU")
        self.assertFalse((self.folder / "runs").exists())
        return done.returncode

    def test_an_old_result_is_not_lost(self) -> None:
        first = self.result()
        message = self.error("run", self.profile, *sets(*THREADS, "mesh.ranks=3"), "--out", "out")
        self.assertIn("--overwrite", message)
        self.assertEqual(json.loads((self.folder / "out/result.json").read_text()), first)
        self.call("run", self.profile, *sets(*THREADS, "mesh.ranks=1"), "--out", "out", "--overwrite", "-q")
        self.assertEqual([p.name for p in (self.folder / "out/trace").iterdir()], ["rank_0.json.gz"])

    def test_traces_that_cannot_be_written_do_not_lose_the_numbers(self) -> None:
        (self.folder / "out/trace.json/in the way").mkdir(parents=True)
        done = self.call("run", self.profile, *sets(*THREADS), "--out", "out", code=CANNOT_WRITE)
        self.assertIn("step time", done.stdout)
        self.assertIn("trace.json", done.stderr)
        self.assertEqual(json.loads((self.folder / "out/result.json").read_text())["metrics"]["step_ms"]["n"], 3)

    def test_a_path_that_is_no_utf8_does_not_lose_the_run(self) -> None:
        folder = os.fsencode(self.folder)
        with open(os.path.join(folder, b"text-\xff.txt"), "w", encoding="utf-8") as file:
            file.write("to be or not to be, that is the question. " * 50)
        command = [program.PROGRAM, "run", self.profile, *sets(*THREADS), "--set", b"data.path=text-\xff.txt", "--out",
                   "out"]
        done = subprocess.run(command, capture_output=True, cwd=self.folder, timeout=program.PATIENCE_S)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(json.loads((self.folder / "out/result.json").read_text())["config"]["data"]["path"],
                         "text-\ufffd.txt")

    def test_any_text_can_be_trained_on(self) -> None:
        path = self.write("text.txt", "to be or not to be, that is the question. " * 50)
        self.result(f"data.path={path}")


if __name__ == "__main__":
    program.main()
