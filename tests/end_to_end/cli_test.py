#!/usr/bin/python3
"""The program as its user meets it: results, messages, exit codes, Ctrl-C.

    cli_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
SOURCE = Path()

# Small enough that a step takes milliseconds, also under a sanitizer.
TINY = ["model.layers=2", "model.width=32", "model.ffn_width=64", "train.seq_len=16", "train.batch_per_rank=1",
        "train.steps=3", "train.warmup=1", "mesh.ranks=2", "emulate.link_gb_per_s=none", "emulate.link_latency_us=0"]
OK, BAD_INPUT, NO_RESOURCES, CANNOT_WRITE, SLOWER, DIVERGED, INTERRUPTED = 0, 2, 3, 4, 7, 8, 130


def sets(*keys: str) -> list[str]:
    return [argument for key in keys for argument in ("--set", key)]


class Cli(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.profile = str(SOURCE / "profiles/runs/quickstart.toml")

    def call(self, *arguments: str, code: int = OK) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=self.folder, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def error(self, *arguments: str, code: int = BAD_INPUT) -> str:
        """The one line on standard error; nothing on standard output."""
        done = self.call(*arguments, code=code)
        self.assertEqual(done.stdout, "")
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0].removeprefix("error: ")


class Run(Cli):
    def result(self, *keys: str, out: str = "out") -> dict:
        self.call("run", self.profile, *sets(*TINY, *keys), "--out", out, "-q")
        return json.loads((self.folder / out / "result.json").read_text())

    def test_writes_three_files_and_prints_the_table(self) -> None:
        done = self.call("run", self.profile, *sets(*TINY), "--out", "out")
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
        self.assertEqual(set(result["comm"]["wire_bytes_per_rank"]), {"all_gather", "reduce_scatter", "all_reduce"})
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
        done = self.call("run", self.profile, *sets(*TINY, *keys), "--out", "out")
        self.assertIn("shows ranks 0, ", done.stdout)
        trace = json.loads((self.folder / "out/trace.json").read_text())
        self.assertEqual((trace["ranks_of_run"], len(trace["ranks_shown"])), (4, 2))
        self.assertEqual({event["pid"] - 1 for event in trace["traceEvents"]}, set(trace["ranks_shown"]))
        self.assertEqual(len(list((self.folder / "out/trace").iterdir())), 4)
        self.call("trace", "check", "out/trace.json")
        self.result(*keys, "trace.ranks=0", out="all")
        self.assertNotIn("ranks_shown", json.loads((self.folder / "all/trace.json").read_text()))

    def test_traces_pass_their_check(self) -> None:
        self.result()
        files = ["out/trace.json", "out/trace/rank_0.json.gz", "out/trace/rank_1.json.gz"]
        done = self.call("trace", "check", *files)
        self.assertEqual(done.stdout.count(": ok, "), len(files))

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
            done = self.call("run", self.profile, *sets(*TINY, f"train.learning_rate={rate}", f"train.steps={steps}",
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

    def test_default_result_folder(self) -> None:
        done = self.call("run", self.profile, *sets(*TINY))
        folders = list((self.folder / "runs").iterdir())
        self.assertEqual(len(folders), 1)
        self.assertTrue(folders[0].name.startswith("quickstart-"))
        self.assertIn(f"runs/{folders[0].name}/result.json", done.stdout)

    def documented(self) -> set[str]:
        """The dotted keys in the first column of the table in docs/run.md; a short one repeats the table before it."""
        text = (SOURCE / "docs/run.md").read_text(encoding="utf-8").split("## result.json")[1]
        keys = set()
        for line in text.splitlines():
            if not line.startswith("| `"):
                continue
            table = ""
            for name in re.findall(r"`([\w.]+)`", line.split("|")[1]):
                table = name.rpartition(".")[0] or table
                keys.add(name if "." in name or not table else f"{table}.{name}")
        return keys

    def test_the_page_names_every_key_and_no_other(self) -> None:
        settings = ["train.steps=8"]
        results = [self.result(*settings, out="computed"),
                   self.result(*settings, "emulate.compute_tflops=0.01", "emulate.link_gb_per_s=1", out="emulated")]
        parts = {"metrics", "memory", "steps", "comm", "train"}
        there = set()
        for result in results:
            for key, value in result.items():
                there |= {f"{key}.{name}" for name in value} if key in parts else {key}
        documented = self.documented()
        self.assertEqual(there - documented, set(), "not in docs/run.md")
        # What these runs cannot have: a lost rank, clocks of several processes. What they have on busy machines: caveats.
        rare = {"failure", "world.launch", "world.devices", "world.clock", "caveats", "not_rated_because",
                "diverged_because", "train.no_digest_because"}
        self.assertEqual(documented - there - rare, set(), "in docs/run.md only")
        world = next(line for line in (SOURCE / "docs/run.md").read_text().splitlines() if line.startswith("| `world` |"))
        names = set(re.findall(r"`(\w+)`", world)) - {"world", "sanitize"}
        self.assertEqual(names | {"launch", "devices"}, set(results[0]["world"]) - {"sanitize"})

    def test_a_model_without_kernels_is_refused_by_what_trains_and_explained(self) -> None:
        gpt = ["quickstart", "--set", "model.preset=openai-gpt2"]
        for command in (["run", *gpt], ["compare", *gpt]):
            said = self.error(*command)
            self.assertIn('There are no kernels for model.feed_forward = "plain"', said)
            self.assertIn("`fsdpbench simulate`", said)
        self.assertIn("openai-gpt2: 124 M parameters", self.call("explain", *gpt).stdout)

    def test_a_run_that_fails_leaves_no_folder(self) -> None:
        self.error("run", self.profile, *sets(*TINY, "device.backend=cuda", "emulate.compute_tflops=none"), "--out",
                   "deep/out", code=self.cuda_code())
        self.assertFalse((self.folder / "deep").exists())

    def cuda_code(self) -> int:
        """What this program says to a backend that it or the machine does not have."""
        done = subprocess.run([PROGRAM, "run", self.profile, *sets(*TINY, "device.backend=cuda")], capture_output=True,
                              cwd=self.folder, timeout=120)
        if done.returncode == OK:
            self.skipTest("there is a GPU")
        self.assertFalse((self.folder / "runs").exists())
        return done.returncode

    def test_an_old_result_is_not_lost(self) -> None:
        first = self.result()
        message = self.error("run", self.profile, *sets(*TINY, "mesh.ranks=3"), "--out", "out")
        self.assertIn("--overwrite", message)
        self.assertEqual(json.loads((self.folder / "out/result.json").read_text()), first)
        self.call("run", self.profile, *sets(*TINY, "mesh.ranks=1"), "--out", "out", "--overwrite", "-q")
        self.assertEqual([p.name for p in (self.folder / "out/trace").iterdir()], ["rank_0.json.gz"])

    def test_traces_that_cannot_be_written_do_not_lose_the_numbers(self) -> None:
        (self.folder / "out/trace.json/in the way").mkdir(parents=True)
        done = self.call("run", self.profile, *sets(*TINY), "--out", "out", code=CANNOT_WRITE)
        self.assertIn("step time", done.stdout)
        self.assertIn("trace.json", done.stderr)
        self.assertEqual(json.loads((self.folder / "out/result.json").read_text())["metrics"]["step_ms"]["n"], 3)

    def test_a_path_that_is_no_utf8_does_not_lose_the_run(self) -> None:
        folder = os.fsencode(self.folder)
        with open(os.path.join(folder, b"text-\xff.txt"), "w", encoding="utf-8") as file:
            file.write("to be or not to be, that is the question. " * 50)
        command = [PROGRAM, "run", self.profile, *sets(*TINY), "--set", b"data.path=text-\xff.txt", "--out", "out"]
        done = subprocess.run(command, capture_output=True, cwd=self.folder, timeout=120)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(json.loads((self.folder / "out/result.json").read_text())["config"]["data"]["path"],
                         "text-\ufffd.txt")

    def test_any_text_can_be_trained_on(self) -> None:
        path = self.write("text.txt", "to be or not to be, that is the question. " * 50)
        self.result(f"data.path={path}")

    def interrupt(self, number: int) -> None:
        process = subprocess.Popen([PROGRAM, "run", self.profile, *sets(*TINY, "train.steps=100000"), "--out", "out"],
                                   stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if line.startswith("step") and int(re.findall(r"\d+", line)[0]) >= 2:  # one of them was measured
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, INTERRUPTED, out + err)
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertFalse(result["complete"])
        self.assertGreater(result["train"]["steps_done"], 0)
        self.assertIn("interrupted: stopping after this step", err)

    def test_a_slow_step_is_cut_short(self) -> None:
        keys = ["model.layers=2", "train.steps=50", "train.warmup=1", "emulate.compute_tflops=0.0004"]
        process = subprocess.Popen([PROGRAM, "run", self.profile, *sets(*keys), "--out", "out"], cwd=self.folder,
                                   stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        steps = 0
        for line in process.stderr:
            if line.startswith("step"):
                steps = int(re.findall(r"\d+", line)[0])
            if steps >= 2:  # one of them measured; the next takes seconds
                break
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, INTERRUPTED, out + err)
        self.assertIn(f"interrupted after {steps} of 51 steps", err)
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertEqual((result["complete"], result["train"]["steps_done"]), (False, steps))
        self.assertEqual(result["metrics"]["step_ms"]["n"], steps - 1)
        for trace in (self.folder / "out/trace").iterdir():
            self.call("trace", "check", str(trace))

    def test_what_has_nothing_to_keep_ends_at_once(self) -> None:
        huge = self.folder / "huge.json"
        huge.write_text('{"traceEvents":[' + '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1},' * 2_000_000 + "{}]}")
        for command in (["trace", "check", str(huge)], ["doctor"]):
            process = subprocess.Popen([PROGRAM, *command], cwd=self.folder, stderr=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.await_handlers(process.pid)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=100)
            self.assertEqual((process.returncode, out, err), (INTERRUPTED, "", "\ninterrupted\n"))

    def await_handlers(self, pid: int) -> None:
        """Until the program catches SIGTERM."""
        caught = 0
        while not caught >> (signal.SIGTERM - 1) & 1:
            caught = int(re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1], 16)

    def test_ctrl_c_keeps_a_marked_partial_result(self) -> None:
        self.interrupt(signal.SIGINT)

    def test_sigterm_does_the_same(self) -> None:
        self.interrupt(signal.SIGTERM)

    def test_a_connection_that_goes_away_does_the_same(self) -> None:
        self.interrupt(signal.SIGHUP)

    def test_standard_output_that_is_full_loses_no_result(self) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "run", self.profile, *sets(*TINY), "--out", "out"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("standard output could not be written: No space left on device", done.stderr)
        self.assertTrue(json.loads((self.folder / "out/result.json").read_text())["complete"])

    def test_nobody_reading_loses_no_result(self) -> None:
        process = subprocess.Popen([PROGRAM, "run", self.profile, *sets(*TINY), "--out", "out"], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=100), 4)
        self.assertTrue(json.loads((self.folder / "out/result.json").read_text())["complete"])


class Names(Cli):
    """Profiles by name, from a folder that has none."""

    def test_run_quickstart_from_any_folder(self) -> None:
        self.call("run", "quickstart", *sets(*TINY), "-q")
        folders = [folder.name for folder in (self.folder / "runs").iterdir()]
        self.assertEqual(len(folders), 1)
        self.assertRegex(folders[0], r"^quickstart-\d{8}-\d{6}$")

    def test_paths_as_documents_write_them(self) -> None:
        for name in ("quickstart.toml", "profiles/runs/quickstart.toml"):
            self.call("explain", name, "--format", "collectives")

    def test_a_result_folder_is_its_configuration(self) -> None:
        self.call("run", "quickstart", *sets(*TINY), "--out", "first", "-q")
        self.call("run", "first", "-q")
        self.assertEqual([folder.name[:6] for folder in (self.folder / "runs").iterdir()], ["first-"])
        self.assertIn("first", self.error("run", "first/result.json"))

    def test_a_sweep_by_name(self) -> None:
        message = self.error("sweep", "strategy-rank")
        self.assertIn("the nearest is 'strategy-ranks'", message)
        self.assertIn("profiles/sweeps", message)

    def test_kinds_of_files_are_told_apart(self) -> None:
        sweep, model = (str(SOURCE / "profiles" / file) for file in ("sweeps/strategy-ranks.toml", "models/llama3-8b.toml"))
        self.assertIn(f"is a sweep file, and a run profile is expected; `fsdpbench sweep {sweep}`", self.error("run", sweep))
        self.assertIn("`fsdpbench sweep strategy-ranks`", self.error("run", "strategy-ranks"))
        self.assertIn("`fsdpbench run quickstart`", self.error("sweep", "quickstart"))
        self.assertIn("is a run profile, and a sweep file is expected", self.error("sweep", self.profile))
        self.assertIn("is a model file", self.error("explain", model))
        self.assertIn("--set model.preset=llama3-8b", self.error("run", "llama3-8b"))


class BadInput(Cli):
    def test_missing_profile(self) -> None:
        self.assertIn("nowhere.toml: there is no such file", self.error("run", "nowhere.toml"))

    def test_unknown_key_with_the_nearest(self) -> None:
        profile = self.write("p.toml", "[mesh]\nranks = 2\nshrad = 2\n")
        message = self.error("run", profile)
        self.assertIn("p.toml:3", message)
        self.assertIn("'mesh.shard'", message)

    def test_wrong_type_and_range(self) -> None:
        self.assertIn("expected an integer", self.error("run", self.profile, *sets("mesh.ranks=four")))
        self.assertIn("expected an integer", self.error("explain", self.profile, *sets("train.accumulate=0")))

    def test_impossible_mesh(self) -> None:
        message = self.error("run", self.profile, *sets("fsdp.strategy=hybrid_shard", "mesh.ranks=8", "mesh.shard=3"))
        self.assertIn("mesh.shard = 3 does not divide mesh.ranks = 8", message)

    def test_unknown_model(self) -> None:
        self.assertIn("known are", self.error("run", self.profile, *sets("model.preset=llama4")))

    def test_missing_empty_and_short_data(self) -> None:
        self.assertIn("data.path", self.error("run", self.profile, *sets("data.path=nowhere")))
        self.assertIn("no text", self.error("run", self.profile, *sets(f"data.path={self.write('empty', '')}")))
        short = self.write("short", "a few bytes")
        self.assertIn("too few", self.error("run", self.profile, *sets(f"data.path={short}")))

    def test_output_that_cannot_be_written(self) -> None:
        file = self.write("file", "")
        for out in (file, file + "/below", "/proc/fsdpbench"):
            self.assertIn(out, self.error("run", self.profile, *sets(*TINY), "--out", out, code=CANNOT_WRITE))

    def test_memory_that_will_not_suffice_is_said_before_the_run(self) -> None:
        message = self.error("run", self.profile, *sets("model.preset=llama3-405b", "train.seq_len=4096"), "--out",
                             "out", code=NO_RESOURCES)
        self.assertIn("available", message)

    def test_files_that_may_not_become_large_enough_are_said_before_the_run(self) -> None:
        limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        done = subprocess.run([PROGRAM, "run", self.profile, *sets(*TINY, "train.steps=500"), "--out", "out"],
                              capture_output=True, text=True, cwd=self.folder, timeout=120, preexec_fn=limited)
        self.assertEqual(done.returncode, NO_RESOURCES, done.stderr)
        self.assertIn("(`ulimit -f`) is 97.66 KiB", done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertFalse((self.folder / "out").exists())

    def test_what_is_repeated_is_cleaned_and_cut(self) -> None:
        long = self.write("long.toml", '[fsdp]\nstrategy = "' + "x" * 20_000_000 + '"\n')
        self.assertLess(len(self.error("run", long)), 2200)
        message = self.error("run", self.profile, *sets("data.path=\x1b[2J\nerror: forged"))
        self.assertIn("\\x1b[2J\\x0aerror: forged", message)
        done = subprocess.run([PROGRAM, "run", self.profile], capture_output=True, cwd=self.folder, timeout=60,
                              env={"RANK": "\x1b[2J" + "9" * 100_000, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"})
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertNotIn(b"\x1b", done.stderr)
        self.assertLess(len(done.stderr), 2300)
        name = "\x1b]0;title\x07" * 1000
        trace = self.write("t.json", json.dumps({"traceEvents": [
            {"ph": "X", "name": name, "cat": name, "pid": 1, "tid": 1, "ts": 1, "dur": -1},
            {"ph": "M", "name": name, "pid": name, "tid": 1}]}))
        done = self.call("trace", "check", trace, code=BAD_INPUT)
        self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_trace_check_says_what_and_where(self) -> None:
        broken = self.write("broken.json", '{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":-1}]}')
        done = self.call("trace", "check", broken, code=BAD_INPUT)
        self.assertIn("broken.json: event 0: duration: ", done.stdout)
        name = "n" * 100_000
        event = f'{{"ph":"X","{name}":1,"{name}":2,"name":"a","pid":1,"tid":1,"ts":1,"dur":-1}}'
        many = self.call("trace", "check", self.write("many.json", '{"traceEvents":[' + ",".join([event] * 7) + "]}"),
                         code=BAD_INPUT).stdout
        self.assertIn("many.json: and 4 more: 2 structure, 2 duration", many)
        self.assertIn("many.json: 14 findings in 7 events", many)
        self.assertEqual(len(many.splitlines()), 12)
        self.assertLess(max(map(len, many.splitlines())), 600)
        self.assertIn("line 1", self.call("trace", "check", self.write("cut.json", '{"traceEvents":['), code=BAD_INPUT).stdout)
        self.assertIn("nowhere.json", self.error("trace", "check", "nowhere.json"))
        self.assertIn("fsdpbench trace --help", self.error("trace"))

    def test_command_line(self) -> None:
        self.assertIn("nearest is 'run'", self.error("rum"))
        self.assertIn("PROFILE", self.error("run"))
        self.assertIn("key=value", self.error("run", self.profile, *sets("mesh.ranks")))
        self.assertIn("xml", self.error("explain", self.profile, "--format", "xml"))


class Explain(Cli):
    def test_from_a_result_ranks_the_causes_with_advice(self) -> None:
        self.call("run", self.profile, *sets(*TINY, "fsdp.forward_prefetch=none"), "--out", "out", "-q")
        # What this machine found depends on its load; what is read is this.
        path = self.folder / "out/result.json"
        result = json.loads(path.read_text())
        cause = {"cause": "late_prefetch", "unit": "blocks.1", "ms": 3.0, "share_pct": 30.0,
                 "advice": 'fsdp.forward_prefetch is "none"; "implicit" issues the gather earlier'}
        path.write_text(json.dumps(result | {"rated": True, "causes": [cause], "causes_small_ms": 0.0}))
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

    def test_issue(self) -> None:
        self.assertTrue(self.line("issue").startswith("UR U0 S0 U1 S1 U2 S2 U3 S3"))

    def test_json_and_table(self) -> None:
        self.assertIsInstance(json.loads(self.line("json")), dict)
        self.assertIn("memory", self.line("table").lower())

    def test_other_ways_to_spread_the_training(self) -> None:
        text = self.call("explain", self.profile, "--compare-parallelism").stdout
        for words in ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3", "hybrid", "tensor", "pipeline (1F1B)", "bubble"):
            self.assertIn(words, text)
        rows = json.loads(self.call("explain", self.profile, "--compare-parallelism", "--format", "json").stdout)
        wire = {row["name"]: row["wire_bytes"] for row in rows["parallelism"]}
        whole = json.loads(self.call("explain", self.profile, "--format", "json").stdout)["communication"]
        self.assertAlmostEqual(wire["data parallel"], whole["data_parallel"])
        self.assertIn("--format issue", self.error("explain", self.profile, "--compare-parallelism", "-f", "issue"))

    def test_views(self) -> None:
        self.assertLess(len(self.line("summary").splitlines()), 24)
        parameters = self.call("explain", self.profile, "--parameters").stdout
        self.assertIn("blocks.0-3.wq", parameters)
        layer = self.call("explain", "--schedule=blocks.2", self.profile).stdout
        self.assertIn("forward blocks.2", layer)
        self.assertNotIn("forward blocks.1", layer)
        self.assertIn("optimizer 0", self.call("explain", "--schedule", self.profile).stdout)
        self.assertIn("nearest name is blocks.2", self.error("explain", self.profile, "--schedule=block.2"))
        self.assertIn("--parameters does not go with --format issue",
                      self.error("explain", self.profile, "--parameters", "--format", "issue"))
        with_rates = self.call("explain", self.profile, "--tflops", "0.001", "--link-gb-per-s", "1").stdout
        self.assertRegex(with_rates, r"Predicted step \d+\.\d+ ms")


class StoredCompare(Cli):
    """Two results are compared as they are."""

    # B computes at half the speed. What a busy machine makes of that is no matter of these tests: the step times that
    # both results hold are replaced by these.
    EMULATED = [*TINY[:-2], "emulate.link_gb_per_s=1", "emulate.compute_tflops=0.001"]
    STEPS_MS = {"a": [10.0, 10.1, 10.2], "b": [20.0, 20.1, 20.2]}

    def setUp(self) -> None:
        super().setUp()
        self.call("run", "quickstart", *sets(*self.EMULATED), "--out", "a", "-q")
        self.call("run", "quickstart", *sets(*self.EMULATED, "emulate.compute_tflops=0.0005"), "--out", "b", "-q")
        for side, steps in self.STEPS_MS.items():
            path = self.folder / side / "result.json"
            result = json.loads(path.read_text())
            result["steps"]["slowest_rank_ms"] = steps
            path.write_text(json.dumps(result))

    def test_differing_keys_and_the_verdict(self) -> None:
        done = self.call("compare", "a", "b", "--out", "out")
        self.assertRegex(done.stdout, r"emulate\.compute_tflops +0\.001 +0\.0005")
        self.assertIn("did not take turns", done.stdout)
        found = json.loads((self.folder / "out/compare.json").read_text())
        self.assertEqual(found["differing_keys"], [{"key": "emulate.compute_tflops", "a": 0.001, "b": 0.0005}])
        self.assertFalse(found["interleaved"])
        self.assertEqual((found["verdict"], round(found["ratio"], 2)), ("slower", 1.99))
        for side, steps in self.STEPS_MS.items():
            self.assertEqual(found[side]["trials"][0]["steps_ms"], steps)

    def test_nothing_runs_and_nothing_is_written_unasked(self) -> None:
        self.call("compare", "a", "b")
        self.assertFalse((self.folder / "runs").exists())

    def test_slower_can_be_a_failure(self) -> None:
        self.call("compare", "a", "b", "--fail-if-slower", code=SLOWER)
        self.call("compare", "b", "a", "--fail-if-slower")
        self.call("compare", "a", "b")

    def test_rerun(self) -> None:
        self.call("compare", "a", "b", "--rerun", "--trials", "3", "--out", "out", "-q")
        found = json.loads((self.folder / "out/compare.json").read_text())
        self.assertTrue(found["interleaved"])
        self.assertEqual(len(found["a"]["trials"]), 3)
        self.assertEqual([key["key"] for key in found["differing_keys"]], ["emulate.compute_tflops"])

    def test_damaged_results_are_said_to_be(self) -> None:
        (self.folder / "b/result.json").write_text('{"schema_version": 1, "metrics": 3}')
        self.assertIn("b/result.json: is damaged", self.error("compare", "a", "b"))
        (self.folder / "b/result.json").write_text('{"schema_version"')
        self.assertIn("b/result.json: is not JSON, or was cut off", self.error("compare", "a", "b"))

    def test_thresholds_that_are_none(self) -> None:
        for threshold in ("nan", "-1", "101"):
            self.assertIn("expected a number from 0 to 100", self.error("compare", "a", "b", f"--threshold={threshold}"))


class Doctor(Cli):
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


class Help(Cli):
    def test_help_and_version(self) -> None:
        self.assertIn("Examples", self.call("--help").stdout)
        self.assertIn("trace.json", self.call("run", "--help").stdout)
        self.assertRegex(self.call("--version").stdout, r"^fsdpbench \d+\.\d+\.\d+ \(")

    def test_colours_only_on_terminals(self) -> None:
        self.assertNotIn("\033", self.call("rum", code=BAD_INPUT).stderr)


if __name__ == "__main__":
    PROGRAM, SOURCE = os.path.abspath(sys.argv[1]), Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
