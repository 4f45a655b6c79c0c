#!/usr/bin/python3
"""`export`: what is printed, what is written, what is said when it cannot be.

    export_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import ast
import json
import re

import program
from program import CANNOT_WRITE, Program, sets

NAMES = ["pytorch-fsdp2", "pytorch-fsdp1", "deepspeed", "megatron-fsdp", "torchtitan", "accelerate", "hf-trainer",
         "maxtext"]


class Export(Program):
    def test_without_to_says_what_there_is(self) -> None:
        text = self.call("export", "quickstart").stdout
        for name in NAMES:
            self.assertRegex(text, rf"(?m)^{name} ")
        self.assertIn("no word", text)
        for name in NAMES:
            self.assertIn(f"  {name} ", self.call("export", "--help").stdout)

    def test_the_table_of_the_docs_is_what_is_printed(self) -> None:
        text = (program.SOURCE / "docs/export.md").read_text()
        call, shown = re.search(r"\$ fsdpbench (export llama3-8b-emulated --set(?:.|\\\n)*?)\n\n((?: {4}.*\n)+)", text).groups()
        printed = self.call(*call.replace("\\\n", " ").split()).stdout.split("\n\n")[0]
        now = "".join(f"    {line}".rstrip() + "\n" for line in printed.splitlines())
        self.assertEqual(shown, now, f"docs/export.md shows another table; now it is:\n{now}")

    def test_a_script_can_be_redirected(self) -> None:
        done = self.call("export", "quickstart", "--to", "pytorch-fsdp2", *sets("fsdp.forward_prefetch=2"))
        functions = [node.name for node in ast.parse(done.stdout).body if isinstance(node, ast.FunctionDef)]
        self.assertEqual(functions[-3:], ["apply_fsdp", "make_optimizer", "train_step"])

    def test_what_is_lost_is_a_warning_and_in_the_file(self) -> None:
        done = self.call("export", "quickstart", "--to", "deepspeed", *sets("fsdp.gathers_ascend=true"))
        self.assertRegex(done.stderr, "warning: deepspeed has no word for fsdp.gathers_ascend = true: ")
        notes = json.loads(done.stdout)["_comment"]
        self.assertTrue(any(note.startswith("  fsdp.gathers_ascend = true: ") for note in notes), notes)

    def test_keys_says_what_becomes_of_each(self) -> None:
        text = self.call("export", "quickstart", "--to", "torchtitan", "--keys", *sets("fsdp.wrap=blocks:2")).stdout
        self.assertRegex(text, r'fsdp\.wrap +"blocks:2" +no word +each block is a unit')
        self.assertNotIn("local_batch_size = ", text)

    def test_files_are_written_once(self) -> None:
        done = self.call("export", "quickstart", "--to", "accelerate,maxtext", "--out", "a/b", "-q")
        written = [line.rsplit("/", 1)[1] for line in done.stdout.splitlines()]
        self.assertEqual(sorted(written), ["accelerate.yaml", "maxtext.yml", "xla_flags.sh"])
        before = (self.folder / "a/b/maxtext.yml").read_text()
        change = sets("train.batch_per_rank=3")
        said = self.error("export", "quickstart", "--to", "maxtext,deepspeed", "--out", "a/b", "-q", *change)
        self.assertIn("a/b/maxtext.yml is there already", said)
        self.assertEqual(sorted(path.name for path in (self.folder / "a/b").iterdir()), sorted(written))
        self.call("export", "quickstart", "--to", "maxtext", "--out", "a/b", "-q", "--overwrite", *change)
        self.assertNotEqual((self.folder / "a/b/maxtext.yml").read_text(), before)

    def test_a_folder_that_cannot_be_made(self) -> None:
        self.write("file", "")
        self.assertIn("file/a", self.error("export", "quickstart", "--to", "maxtext", "--out", "file/a",
                                           code=CANNOT_WRITE))

    def test_bad_input(self) -> None:
        said = self.error("export", "quickstart", "--to", "pytorch-fsdp3")
        self.assertRegex(said, "no export 'pytorch-fsdp3'; the nearest is 'pytorch-fsdp[12]'; known are pytorch-fsdp2, ")
        self.assertIn("no export ''", self.error("export", "quickstart", "--to", "maxtext,"))
        self.assertIn("--out needs --to", self.error("export", "quickstart", "--out", "a"))
        self.assertIn("--keys needs --to", self.error("export", "quickstart", "--keys"))
        self.assertIn("fsdp.wrap", self.error("export", "quickstart", "--to", "all", *sets("fsdp.wrap=7")))


if __name__ == "__main__":
    program.main()
