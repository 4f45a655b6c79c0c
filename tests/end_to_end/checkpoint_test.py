#!/usr/bin/python3
"""A training that is saved, killed, damaged, and goes on.

    checkpoint_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import program
from program import CANNOT_WRITE, INTERRUPTED, PATIENCE_S, SLOW, TINY, Program, sets

SAVING = ["checkpoint.folder=saved", "checkpoint.every=2"]
ALL = 8  # steps, the warm-up included


class Checkpoints(Program):
    def train(self, out: str, *keys: str, steps: int = ALL, more: tuple[str, ...] = ()) -> dict:
        self.call("run", self.profile, *sets(*TINY, f"train.steps={steps - 1}", *keys), *more, "--out", out, "-q")
        return json.loads((self.folder / out / "result.json").read_text())

    def checkpoints(self) -> list[Path]:
        """The complete ones, the newest last."""
        return sorted(path.parent for path in (self.folder / "saved").glob("step-*/manifest.json"))

    def test_it_goes_on_to_the_same_parameters(self) -> None:
        whole = self.train("whole")["train"]
        first = self.train("first", *SAVING, steps=5)
        self.assertEqual([saved["steps"] for saved in first["checkpoints"]], [2, 4, 5])
        self.assertEqual([path.name for path in self.checkpoints()], ["step-000000004", "step-000000005"])
        rest = self.train("rest", more=("--resume", "saved"))["train"]
        self.assertEqual(rest["params_digest"], whole["params_digest"])
        self.assertEqual(rest["began_after_step"], 5)
        self.assertEqual(rest["loss"], whole["loss"][5:])
        table = self.call("run", self.profile, *sets(*TINY, f"train.steps={ALL}", *SAVING), "--resume", "saved", "--out",
                          "table").stdout
        self.assertRegex(table, r"checkpoints +3 ")
        self.assertRegex(table, r"checkpoint +\S+/saved/step-000000009  \(go on: --resume \S+/saved\)")

    def test_the_same_command_begins_goes_on_and_ends(self) -> None:
        command = ("run", self.profile, *sets(*TINY, f"train.steps={ALL - 1}", *SAVING), "--resume", "saved")
        begun = self.call(*command, "--out", "a")
        self.assertIn("saved: no checkpoint yet; the training begins", begun.stderr)
        shutil.rmtree(self.checkpoints()[-1])
        self.assertIn("going on after step 6", self.call(*command, "--out", "b").stderr)
        finished = self.call(*command, "--out", "c")  # as a scheduler does that starts it once more
        self.assertIn("this training has done all of its 8 steps; nothing is left to do", finished.stdout)
        self.assertFalse((self.folder / "c").exists())
        self.assertIn("this training has done 8 steps", self.error(*command, "--set", "train.steps=3", "--out", "c"))
        self.assertRegex(self.error(*command, "--set", "train.steps=9", "--set", "model.ffn_width=32", "--out", "c"),
                         r"step-000000008: was saved with model.ffn_width = \d+, and this run has 32; expected")

    def test_a_folder_is_of_one_training(self) -> None:
        """Nothing of it is lost to one that begins there, to an empty variable, or to one that runs at the same time."""
        self.train("first", *SAVING, steps=4)
        before = [path.name for path in self.checkpoints()]
        anew = ("run", self.profile, *sets(*TINY, "train.steps=3", *SAVING), "--out", "again")
        self.assertRegex(self.error(*anew), r"step-000000004: a training has been saved there, .*expected --resume \S+/saved to go on")
        self.assertIn("--resume is empty; expected a checkpoint", self.error(*anew, "--resume", ""))
        self.assertEqual([path.name for path in self.checkpoints()], before)
        self.assertFalse((self.folder / "again").exists())
        locked = os.open(self.folder / "saved", os.O_RDONLY)
        fcntl.flock(locked, fcntl.LOCK_EX)
        error = self.error(*anew, "--resume", "saved", code=CANNOT_WRITE)
        os.close(locked)
        self.assertIn("saved is in use: another training is being saved there", error)
        self.assertEqual([path.name for path in self.checkpoints()], before)
        manifest = self.checkpoints()[-1] / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"samples": 16', '"samples": 17'))
        self.assertIn("is not as it was saved", self.error(*anew, "--resume", "saved"))

    def test_an_interrupted_run_saves_what_it_has_done(self) -> None:
        process = self.start("run", self.profile, *sets(*TINY, *SLOW, "train.steps=1000", "checkpoint.folder=saved"),
                             "--out", "out")
        for line in process.stderr:
            if line.startswith("step") and int(line.split()[1].split("/")[0]) >= 2:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED)
        done = json.loads((self.folder / "out/result.json").read_text())["train"]["steps_done"]
        self.assertEqual([path.name for path in self.checkpoints()], [f"step-{done:09}"])

    def test_what_is_damaged_is_named(self) -> None:
        self.train("first", *SAVING, steps=4)
        newest = self.checkpoints()[-1]
        shard = newest / "rank-00001.bin"
        good = shard.read_bytes()
        again = ("run", self.profile, *sets(*TINY, f"train.steps={ALL}"), "--resume", "saved", "--out", "again")
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        self.assertRegex(self.error(*again), r"rank-00001.bin: is damaged: its bytes are not those")
        shard.write_bytes(good[:100])
        self.assertRegex(self.error(*again), r"rank-00001.bin: has 100 bytes and was saved with \d+")
        shard.unlink()
        self.assertRegex(self.error(*again), r"rank-00001.bin: is missing")
        shard.write_bytes(good)
        self.assertRegex(self.error(*again, "--ranks", "2"), "was saved with mesh.ranks = 4, and this run has 2; expected")
        self.assertIn("there is no complete checkpoint", self.error(*again[:-4], "--resume", "nowhere", "--out", "again"))
        (newest / "manifest.json").unlink()  # the one before it is complete
        self.assertIn("going on after step 2", self.call(*again).stderr)

    def test_where_nothing_can_be_written_nothing_is_promised(self) -> None:
        self.write("saved", "a file where the folder should be")
        error = self.error("run", self.profile, *sets(*TINY, *SAVING), "--out", "out", code=CANNOT_WRITE)
        self.assertIn("saved: cannot make the folder", error)

    def test_where_nothing_is_computed_nothing_is_saved(self) -> None:
        emulated = ["emulate.link_gb_per_s=1", "emulate.compute_tflops=0.01"]
        for backend in ("cpu", "virtual"):
            keys = sets(*TINY, *SAVING, *emulated, f"device.backend={backend}")
            done = self.call("run", self.profile, *keys, "--out", backend)
            self.assertIn("[checkpoint] has no effect", done.stderr)
        self.assertFalse((self.folder / "saved").exists())

    def test_ranks_that_are_processes(self) -> None:
        digest = self.train("threads", "mesh.ranks=2", steps=6)["train"]["params_digest"]
        port = program.free_port()
        for steps, out in ((3, "first"), (6, "rest")):
            keys = sets(*TINY, f"train.steps={steps - 1}", *SAVING)
            ranks = [subprocess.Popen([program.PROGRAM, "run", self.profile, *keys, "--resume", "saved", "--out", out],
                                      env=program.environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2,
                                                              MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
                                      cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for rank in range(2)]
            said = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        result = json.loads((self.folder / "rest/result.json").read_text())
        self.assertEqual(result["train"]["params_digest"], digest)
        self.assertEqual([saved["steps"] for saved in result["checkpoints"]], [4, 6])


if __name__ == "__main__":
    program.main()
