#!/usr/bin/python3
"""The commands of README.md, docs/tutorials and other pages, as they are printed there, and what they print.

    pages_test.py PROGRAM SOURCE_FOLDER [unittest arguments]

A page's fenced blocks that are called `console` are run in order, in one folder. A line `$ fsdpbench …` is a command;
the lines after it must be among what it prints, in this order. `…` stands for anything, and a line of it alone for any
lines. In a block `console measured` the clock is the machine's, so any number of the same sign will do, but for those
that name a rank. In a block `console` the clock is computed, and numbers are as printed. A PASS that is measured may be
INCONCLUSIVE where other programs run, and where a machine never keeps up with a measured page, its test is skipped and
says so. Blocks called `diff` must still apply to the source.
"""

import os
import re
import shlex
import subprocess

import program
from program import Program

PAGES = ("README.md", "docs/watch.md", "docs/experts.md", "docs/expect.md", "docs/prefetch-depth.md", "docs/what-if.md",
         "docs/gpu-status.md", "docs/explain.md", "docs/trace-explain.md", "docs/tutorials/see-overlap.md",
         "docs/tutorials/tune-fsdp2.md", "docs/tutorials/accept-a-cluster.md", "docs/tutorials/fsdp-in-jax.md",
         "docs/tutorials/add-a-prefetch-policy.md")
# Codes that are answers: what `accept` found, and what it and `gate` say of a machine that other programs use meanwhile.
ENDS = {"accept": (0, 10, 11), "gate": (0, 7, 11), "watch": (0, 5, 10, 11)}
TRIES = 3  # of a page whose clock is the machine's: it may have been busy
UNRATED = "the run is not rated"  # of one whose machine had too much else to do; its figures are explained by nobody
# A measured number may be another one of its sign; which rank, step or layer it is of must be as printed.
MEASURED = re.compile(r"\b(?:rank|step|layer|block|device|node)s? \d+\b|(?P<number>(?P<sign>-?)\d+(?:\.\d+)?)|.",
                      re.DOTALL)
SIGNED = {"": r"(?<![-\d.])\d+(?:\.\d+)?", "-": r"-\d+(?:\.\d+)?"}


def blocks(text: str, language: str) -> list[tuple[str, str]]:
    """Fenced blocks of a page: what follows the language, and the content."""
    found = re.findall(rf"^```{language}\b *(.*?)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [(words, content) for words, content in found]


def commands(content: str) -> list[tuple[str, list[str]]]:
    """Each command of a block, with the lines that it must print."""
    found: list[tuple[str, list[str]]] = []
    for line in content.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0][:-1] + line, [])
        else:
            found[-1][1].append(line)
    return found


def pattern(line: str, measured: bool) -> re.Pattern[str]:
    """A printed line: spaces of tables may be other ones, as columns are as wide as their widest entry."""
    def plain(text: str) -> str:
        if not measured:
            return re.escape(text)
        return MEASURED.sub(lambda m: SIGNED[m["sign"]] if m["number"] else re.escape(m[0]), text)
    between = [r"[-\s]+".join(plain(word) for word in re.split(r"\s*-{2,}\s*|\s{2,}", part)) for part in line.strip().split("…")]
    said = ".*".join(between)
    return re.compile(re.sub("^PASS:", "(?:PASS|INCONCLUSIVE):", said) if measured else said)


class Pages(Program):
    said: dict[str, str] = {}  # by commands that leave no files for later ones: two pages may print the same

    def run_block(self, content: str, measured: bool) -> None:
        for command, expected in commands(content):
            words = shlex.split(command)
            self.assertEqual(words[0], "fsdpbench", command)
            printed = self.said.get(command)
            if printed is None:
                done = subprocess.run([program.PROGRAM, *words[1:]], capture_output=True, text=True, cwd=self.folder,
                                      timeout=program.PATIENCE_S)
                self.assertIn(done.returncode, ENDS.get(words[1], (0,)), done.stdout + done.stderr)
                printed = done.stdout
            left = printed.splitlines()
            for line in expected:
                if line.strip() in ("", "…"):
                    continue
                wanted = pattern(line, measured)
                place = next((i for i, said in enumerate(left) if wanted.fullmatch(said.strip())), None)
                self.assertIsNotNone(place, f"{command}\ndoes not print (or not after the lines before it)\n{line}\n"
                                            f"but\n{printed}")
                left = left[place + 1:]
            if "--out" not in words and "runs/" not in command:  # neither writes files nor reads those of its page
                self.said[command] = printed

    def setUp(self) -> None:
        super().setUp()
        program.use_package_of_source(self)
        self.root = self.folder

    def page(self, name: str) -> None:
        text = (program.SOURCE / name).read_text(encoding="utf-8")
        consoles = blocks(text, "console")
        measured = any(words == "measured" for words, _ in consoles)
        for number in range(TRIES if measured else 1):
            self.folder = self.root / str(number)
            self.folder.mkdir()
            (self.folder / "tests").symlink_to(program.SOURCE / "tests")  # what some pages read, as from the source folder
            try:
                for words, content in consoles:
                    self.run_block(content, words == "measured")
                break
            except AssertionError as why:
                if not measured:
                    raise
                if number == TRIES - 1:
                    if UNRATED in str(why):  # which is what the program must say of such a machine
                        self.skipTest(f"{name}: in {TRIES} runs this machine did not keep up with what it emulates")
                    raise
        for _, content in blocks(text, "diff"):
            self.still_applies(content)

    def still_applies(self, diff: str) -> None:
        """Each hunk's old lines are in their file."""
        for file, hunks in re.findall(r"^\+\+\+ b/(\S+)\n(.*?)(?=^--- |\Z)", diff, flags=re.MULTILINE | re.DOTALL):
            source = (program.SOURCE / file).read_text(encoding="utf-8")
            for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
                old = "".join(f"{line[1:]}\n" for line in hunk.splitlines() if not line.startswith("+"))
                self.assertIn(old, source, f"{file}: the page's change does not apply any more")

    def python(self, code: str) -> str:
        return subprocess.run(["/usr/bin/python3", "-B", "-c", code], capture_output=True, text=True, cwd=self.folder,
                              check=True, timeout=program.PATIENCE_S,
                              env={**os.environ, "FSDPBENCH_PROGRAM": str(program.PROGRAM),
                                   "PYTHONPATH": str(program.SOURCE / "analysis")}).stdout

    def test_python_prints_what_install_says(self) -> None:
        page = (program.SOURCE / "docs/install.md").read_text(encoding="utf-8")
        code = re.search(r"^    python -c '(.*)'$", page, flags=re.MULTILINE)[1]
        self.assertIn(f"\n    {self.python(code)}", page)

    def test_results_in_python_have_the_values_of_the_page(self) -> None:
        """A line `expression  # value` or `expression  # value: meaning`."""
        page = (program.SOURCE / "docs/python.md").read_text(encoding="utf-8")
        block = blocks(page, "python")[0][1]
        shown = re.findall(r"^(run\.\S+) +# (-?[\d.]+(?=:)|\".*\")", block, flags=re.MULTILINE)
        self.assertEqual(len(shown), 3)
        code = "\n".join(line for line in block.splitlines() if line.startswith(("import", "run = ")))
        printed = self.python(code + "".join(f"\nprint({expression})" for expression, _ in shown)).splitlines()
        for (expression, wanted), said in zip(shown, printed):
            digits = len(wanted.partition(".")[2])
            self.assertEqual(f"{float(said):.{digits}f}" if wanted[0] != '"' else f'"{said}"', wanted, expression)

    def test_the_script_of_the_tutorial_is_the_exported_one(self) -> None:
        name = "docs/tutorials/tune-fsdp2.md"
        self.page(name)
        shown = blocks((program.SOURCE / name).read_text(encoding="utf-8"), "python")[-1][1]
        self.assertIn(shown, (self.folder / "runs/tuned/pytorch_fsdp2.py").read_text(encoding="utf-8"))

    def test_a_reader_of_readme_and_tutorials_needs_one_folder(self) -> None:
        """No command writes where one of an earlier page has written, which would be refused."""
        written: list[str] = []
        for page in (program.SOURCE / "README.md", *sorted((program.SOURCE / "docs/tutorials").glob("*.md"))):
            for _, content in blocks(page.read_text(encoding="utf-8"), "console"):
                for command, _ in commands(content):
                    written += re.findall(r" --out (\S+)", command)
        self.assertGreater(len(written), 10)
        self.assertCountEqual(written, set(written))

    def test_every_page_with_a_console_is_run(self) -> None:
        found = {str(page.relative_to(program.SOURCE)) for folder in (program.SOURCE / "docs", program.SOURCE)
                 for page in (folder.rglob("*.md") if folder.name == "docs" else folder.glob("*.md"))
                 if blocks(page.read_text(encoding="utf-8"), "console")}
        self.assertEqual(found - set(PAGES), set())


def add(page: str) -> None:
    name = "test_" + re.sub(r"\W", "_", page.removesuffix(".md").lower())
    setattr(Pages, name, lambda self: self.page(page))


for _page in PAGES:
    add(_page)

if __name__ == "__main__":
    program.main()
