"""import fsdpbench as fb: calls of the program, on the computed clock but for one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

import support

import fsdpbench as fb
from fsdpbench import fields

STORED = Path(__file__).resolve().parents[2] / "tests/golden/results.tar.gz"
MACHINE = {"simulate.cluster": "dgx-h100", "train.steps": 3}
TINY = {"model.layers": 2, "model.width": 32, "model.ffn_width": 64, "train.seq_len": 16, "train.batch_per_rank": 1,
        "train.steps": 2, "train.warmup": 1, "mesh.ranks": 2, "emulate.link_gb_per_s": None, "emulate.link_latency_us": 0}


class Api(support.FolderTest):
    def simulate(self, **arguments: object) -> fb.Run:
        return fb.simulate("quickstart", **{"cluster": "dgx-h100", "ranks": 4, **arguments})


class OfARun(Api):
    def test_its_numbers_are_those_of_the_file(self) -> None:
        run = self.simulate(set={"fsdp.backward_prefetch": "none"}, out=self.folder / "out")
        written = json.loads((self.folder / "out/result.json").read_text())
        self.assertEqual(run.data, written)
        metrics = written["metrics"]
        self.assertEqual(run.step_ms, metrics["step_ms"]["median"])
        for name in ("compute_ms", "comm_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms", "overlap_pct", "tokens_per_s"):
            self.assertEqual(getattr(run, name), metrics[name], name)
        self.assertEqual(run.peak_memory_bytes, written["memory"]["peak_bytes"]["total"])
        self.assertEqual([(cause.cause, cause.ms) for cause in run.causes],
                         sorted(((cause["cause"], cause["ms"]) for cause in written["causes"]), key=lambda c: -c[1]))
        self.assertEqual(run.setting("fsdp.backward_prefetch"), "none")
        self.assertEqual(run.prediction.data if run.prediction else None, written.get("prediction"))
        self.assertEqual(run.result.metrics.data, metrics)
        self.assertTrue(run.complete)
        self.assertIn("step time", run.text)
        self.assertTrue(any("simulate.cluster defines" in note for note in run.notes), run.notes)
        self.assertFalse(any(note.startswith("step ") for note in run.notes), run.notes)

    def test_in_a_rank_of_a_job_the_program_is_no_rank(self) -> None:
        alone = self.simulate(set={"train.steps": 3})
        for rank in ({"RANK": "0", "WORLD_SIZE": "2"}, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}):
            with mock.patch.dict(os.environ, rank):
                self.assertEqual(self.simulate(set={"train.steps": 3}).step_ms, alone.step_ms)

    def test_files_are_kept_in_out_and_else_go_with_the_result(self) -> None:
        run = self.simulate()
        folder = run.folder
        self.assertTrue((folder / "result.json").is_file())
        del run
        self.assertFalse(folder.exists())
        self.simulate(out=self.folder / "out")
        for path in (self.folder / "out", self.folder / "out/result.json"):
            self.assertEqual(fb.load(path).folder, self.folder / "out")
        with self.assertRaises(fb.ProgramError):
            self.simulate(out=self.folder / "out")
        self.simulate(out=self.folder / "out", overwrite=True)

    def test_a_result_is_a_profile(self) -> None:
        run = self.simulate(set={"fsdp.strategy": "shard_grad_op"})
        again = fb.simulate(run)
        self.assertEqual((again.step_ms, again.setting("fsdp.strategy")), (run.step_ms, "shard_grad_op"))

    def test_a_real_one(self) -> None:
        run = fb.run("quickstart", set=TINY)
        self.assertGreater(run.step_ms, 0)
        self.assertEqual(run.setting("emulate.link_gb_per_s"), None)

    def test_figures(self) -> None:
        run = self.simulate()
        self.assertIn("timeline", run.figures)
        picture = run.figure("timeline")
        for name, begin in (("t.svg", b"<?xml"), ("t.png", b"\x89PNG")):
            self.assertTrue(picture.save(self.folder / name).read_bytes().startswith(begin), name)
        with self.assertRaisesRegex(ValueError, "as .svg or .png"):
            picture.save(self.folder / "t.gif")
        with self.assertRaisesRegex(ValueError, "There is no figure 'timline'; this result has breakdown, "):
            run.figure("timline")
        html = run._repr_html_()
        self.assertIn('<img src="data:image/svg+xml;base64,', html)
        self.assertIn("A step takes", html)
        with mock.patch("fsdpbench.analysis.report.write_report") as write:  # test_page draws pages
            run.report(self.folder / "page")
        write.assert_called_once_with([run.folder], self.folder / "page")


class Timelines(Api):
    def drawn(self, picture: fb.Picture) -> "set[str]":
        """The texts in its axes and legend."""
        legend = [text for one in picture.figure.legends for text in one.get_texts()]
        ticks = [label for axes in picture.figure.axes for label in axes.get_yticklabels()]
        return {text.get_text() for text in [*legend, *ticks, *(text for axes in picture.figure.axes for text in axes.texts)]}

    def test_lanes_waits_and_causes_of_a_run(self) -> None:
        run = self.simulate(set={"fsdp.backward_prefetch": "none", "emulate.compute_tflops": 0.06, "train.steps": 3}, cluster=None)
        texts = self.drawn(run.timeline())
        self.assertLessEqual({"all-gather", "compute waits", "rank 0 (slowest)   host", "rank 3   host"}, texts)
        self.assertTrue(any(text.endswith(run.causes[0].cause.replace("_", " ")) for text in texts), (run.causes[0].cause, texts))
        self.assertIn("<img", run.timeline()._repr_html_())

    def test_ranks_and_step_are_chosen(self) -> None:
        run = self.simulate(set={"train.steps": 3})
        self.assertFalse(any(text.startswith("rank 1") for text in self.drawn(run.timeline(ranks=1))))
        steps = [self.step_of(run.timeline(step=step)) for step in (2, 3)]
        self.assertEqual(steps, ["Step 2", "Step 3"])
        with self.assertRaisesRegex(ValueError, "There is no timeline: .* has no step 99; it has "):
            run.timeline(step=99)
        with self.assertRaisesRegex(ValueError, "ranks is 0"):
            run.timeline(ranks=0)

    def step_of(self, picture: fb.Picture) -> str:
        return picture.caption.split(",")[0]

    def test_an_explanation_has_that_of_its_result(self) -> None:
        run = self.simulate(set={"train.steps": 3})
        told = fb.explain(run)
        self.assertIs(told.run, run)
        self.assertEqual(told.timeline().caption, run.timeline().caption)
        self.assertIn("<img", told._repr_html_())
        self.assertIn("Why computation was not running", told._repr_html_())

    def test_an_explanation_of_a_profile_has_that_of_its_simulation(self) -> None:
        settings = {"mesh.ranks": 2, "train.steps": 3, "fsdp.backward_prefetch": "none", "emulate.compute_tflops": 0.06,
                    "emulate.link_gb_per_s": 0.05, "emulate.link_latency_us": 7}
        told = fb.explain("quickstart", set=settings)
        self.assertNotIn("<img", told._repr_html_())
        for key, value in settings.items():
            self.assertEqual(told.run.setting(key), value, key)
        self.assertIn("rank 1   host", self.drawn(told.timeline()))
        with self.assertRaisesRegex(fb.ProgramError, "name a machine"):  # nothing says how fast it computes
            fb.explain("quickstart").timeline()

    def test_of_somebody_elses_job(self) -> None:
        with tarfile.open(STORED) as stored:
            stored.extractall(self.folder)
        with self.assertRaisesRegex(ValueError, "There is no timeline: there is no trace.json beside explain.json"):
            fb.load(self.folder / "results/explain").timeline()
        with self.assertRaisesRegex(ValueError, "There is no timeline of "):
            fb.Explanation({}, "", lambda: fb.load(self.folder / "results/gate")).timeline()


class OfStoredFiles(Api):
    """Of every kind of result."""

    def setUp(self) -> None:
        super().setUp()
        with tarfile.open(STORED) as stored:
            stored.extractall(self.folder)

    def test_each_kind_is_loaded_with_its_type(self) -> None:
        for name, kind in (("run", fb.Run), ("sweep", fb.Sweep), ("compare", fb.Comparison), ("gate", fb.Gate),
                           ("accept", fb.Acceptance), ("explain", fb.TraceExplanation)):
            result = fb.load(self.folder / "results" / name)
            self.assertIs(type(result), kind)
            self.assertEqual(type(result.result).__name__, fields.FILES[result._KIND][1])
            self.assertIn("<h3>", result._repr_html_())

    def test_fields_have_types(self) -> None:
        job = fb.load(self.folder / "results/explain").result
        self.assertEqual(job.step.exposed_comm_ms, job.data["step"]["exposed_comm_ms"])
        self.assertGreater(job.ranks[0].steps[0].compute_ms, 0)
        compared = fb.load(self.folder / "results/compare").result
        self.assertEqual((compared.verdict, compared.a.trials[0].metrics.step_ms.n), ("slower", 5))
        accepted = fb.load(self.folder / "results/accept").result
        values = [judgement.value for judgement in accepted.judgements if judgement.value]
        self.assertEqual(values[0].data.keys(), {"median", "ci_low", "ci_high", "n"})

    def test_every_value_of_every_file_has_a_field_of_its_type(self) -> None:
        kinds = {"number": (int, float, type(None)), "whole number": int, "text": str, "true or false": bool}
        def check(record: fb.Record, place: str) -> None:
            known = {one.name: name for name, one in record.fields().items()}
            for key in record.data.keys() - {"schema_version", "digest", "kind"}:
                self.assertIn(key, known, place)
            for name, one in record.fields().items():
                look(getattr(record, name), one.type, f"{place}.{name}")
        def look(value: object, kind: str, place: str) -> None:
            if isinstance(value, fb.Record):
                check(value, place)
            elif kind.startswith(("list of ", "map of ")):
                for one in value.values() if isinstance(value, dict) else value:
                    look(one, kind.split(" of ", 1)[1], place)
            elif value is not None and kind in kinds:
                self.assertIsInstance(value, kinds[kind], place)
        for name in ("run", "sweep", "compare", "gate", "accept"):
            check(fb.load(self.folder / "results" / name).result, name)


class OfOthers(Api):
    def test_sweep(self) -> None:
        axes = {"fsdp.backward_prefetch": ["pre", "none"], "fsdp.reshard_after_backward": [True, False]}
        sweep = fb.sweep(base="quickstart", axes=axes, trials=1, set={**MACHINE, "device.backend": "virtual"})
        rows = sweep.rows()
        self.assertEqual([(row["fsdp.backward_prefetch"], row["fsdp.reshard_after_backward"]) for row in rows],
                         [(a, b) for a in ("pre", "none") for b in (True, False)])
        self.assertEqual([row["step_ms"] for row in rows], [cell.metrics.step_ms.median for cell in sweep.cells])
        with mock.patch.dict(sys.modules, {"pandas": None}), self.assertRaisesRegex(ImportError, "pip install pandas"):
            sweep.frame()
        frames = mock.Mock()
        with mock.patch.dict(sys.modules, {"pandas": frames}):
            sweep.frame()
        frames.DataFrame.assert_called_once_with(rows)
        with self.assertRaises(TypeError):
            fb.sweep(base="quickstart")

    def test_tune(self) -> None:
        tuning = fb.tune("quickstart", cluster="dgx-h100", set={"mesh.ranks": 4}, evaluations=50, fix=["fsdp.preset"])
        self.assertLessEqual(tuning.best["step_ms"], tuning.in_force["step_ms"])
        self.assertNotIn("fsdp.preset", tuning.settings)
        again = fb.simulate(tuning.profile, cluster="dgx-h100")
        self.assertAlmostEqual(again.step_ms, tuning.best["step_ms"], delta=0.01 * again.step_ms)
        for key, value in tuning.settings.items():
            self.assertEqual(str(again.setting(key)).lower(), value, key)
        walked = [row["step_ms"] for row in tuning.rows()]
        self.assertIn(round(tuning.in_force["step_ms"], 6), walked)
        self.assertIn("policies", tuning.figures)
        self.assertEqual((tuning.result.gain, tuning.result.best.step_ms), (tuning.data["gain"], tuning.best["step_ms"]))

    def test_expect(self) -> None:
        machine = {"simulate.cluster": "dgx-h100", "emulate.compute_tflops": "none", "emulate.link_gb_per_s": "none"}
        plain = fb.expect("quickstart", set=machine)
        self.assertIsNone(plain.as_expected)
        slow = fb.expect("quickstart", set=machine, measured=0.5 * plain.tokens_per_s_rank)
        self.assertFalse(slow.as_expected)
        outside = next(reason for reason in slow.reasons if reason["what"] == "outside")
        self.assertAlmostEqual(outside["value"], plain.step_ms, places=3)
        self.assertEqual(fb.expect("quickstart", set=machine, measured=f"{plain.step_ms} ms").as_expected, True)
        with self.assertRaisesRegex(fb.ProgramError, "--measured fast is not valid"):
            fb.expect("quickstart", set=machine, measured="fast")

    def test_explain_and_what_if(self) -> None:
        told = fb.explain("quickstart", set={"mesh.ranks": 8})
        self.assertEqual(told["plan"]["ranks"], 8)
        self.assertIn("8 ranks", told.text)
        run = self.simulate(set={"fsdp.backward_prefetch": "none"})
        self.assertIn("Why computation was not running", fb.explain(run).text)
        other = fb.what_if(run, set={"fsdp.backward_prefetch": "pre"})
        self.assertLessEqual(other.step_ms, run.step_ms)
        self.assertAlmostEqual(other.change_pct, 100 * (other.step_ms / run.step_ms - 1), places=6)
        self.assertEqual(100 * other.result.change.median, other.change_pct)


class Calls(Api):
    def test_an_error_is_the_programs_sentence(self) -> None:
        with self.assertRaises(fb.ProgramError) as raised:
            self.simulate(set={"fsdp.strategi": 1})
        self.assertEqual(str(raised.exception), "--set fsdp.strategi=1: unknown key 'fsdp.strategi'; the nearest valid key is "
                                                "'fsdp.strategy'.")
        self.assertEqual(raised.exception.exit_code, 2)
        self.assertEqual(raised.exception.command[1], "simulate")

    def test_there_is_no_program(self) -> None:
        with mock.patch.dict(os.environ, FSDPBENCH_PROGRAM="/nowhere/fsdpbench"), self.assertRaises(FileNotFoundError):
            self.simulate()

    def test_progress_goes_to_a_function(self) -> None:
        lines: "list[str]" = []
        self.simulate(progress=lines.append)
        self.assertTrue(any(line.startswith("step ") for line in lines), lines)

    def test_importing_is_cheap(self) -> None:
        loaded = subprocess.run([sys.executable, "-c", "import sys, fsdpbench; print(*sys.modules)"], capture_output=True,
                                text=True, check=True, cwd=support.DATA.parent.parent).stdout.split()
        self.assertEqual({"matplotlib", "numpy", "json", "subprocess"} & set(loaded), set())
        self.assertIn("simulate", dir(fb))
        with self.assertRaises(AttributeError):
            fb.simulat  # noqa: B018

    def test_ctrl_c_ends_the_program_and_keeps_what_there_is(self) -> None:
        script = textwrap.dedent(f"""
            import sys, fsdpbench as fb
            try:
                fb.run("quickstart", set={{**{TINY!r}, "train.steps": 20000}}, out="long",
                       progress=lambda line: print(line, flush=True))
            except KeyboardInterrupt:
                print("interrupted", fb.load("long").complete, flush=True)
            """)
        environment = {**os.environ, "PYTHONPATH": str(support.DATA.parent.parent)}
        with subprocess.Popen([sys.executable, "-c", script], cwd=self.folder, stdout=subprocess.PIPE, text=True,
                              env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("step "):
                    break
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
        self.assertEqual(process.returncode, 0, rest)
        self.assertEqual(rest.splitlines()[-1], "interrupted False")


if __name__ == "__main__":
    unittest.main()
