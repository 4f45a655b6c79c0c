#!/usr/bin/python3
"""check_links.py finds dead files and headings in a small tree, and nothing in a clean one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_links import anchors, check  # noqa: E402

CLEAN = {
    "README.md": "# A\n\nSee [b](docs/b.md), [there](docs/b.md#who-is-let-in), [here](#a), [folder](docs/),\n"
                 "[web](https://example.org/x#y) and ![picture](docs/p.png).\n\n    [no](link.md)\n",
    "docs/b.md": "# B\n\n## Who is `let` in?\n\nBack: [a](../README.md). `[no](link.md)`\n\n```\n[no](link.md)\n# no\n```\n",
    "docs/p.png": "",
    "Makefile": "build: deps  ## x\ncheck-site:\n",
    "docs/m.md": "`make build` and\n\n    make check-site CASES=1\n",
    "build/c.md": "[made](nowhere.md)",
}


class CheckLinks(unittest.TestCase):
    def problems(self, files: "dict[str, str]") -> "list[str]":
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**CLEAN, **files}.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return check(Path(folder))

    def test_clean(self) -> None:
        self.assertEqual(self.problems({}), [])

    def test_dead(self) -> None:
        for link, problem in (("docs/c.md", "leads to no file"), ("docs/b.md#c", "leads to no heading"),
                              ("#c", "leads to no heading"), ("docs/#c", "leads to no heading"),
                              ("docs/b.md#no", "leads to no heading")):
            with self.subTest(link):
                self.assertEqual(self.problems({"d.md": f"# D\n\nA [link]({link}).\n"}), [f"d.md: {link} {problem}"])

    def test_targets_of_make(self) -> None:
        for text in ("Do `make site`.\n", "    make site\n", "```console\n$ make site\n```\n"):
            self.assertEqual(self.problems({"d.md": text}), ["d.md: make site is no target of Makefile"])

    def test_anchors(self) -> None:
        self.assertEqual(anchors("# Two words\n## Two words\n### [a](b.md) & `c_d`, é\n"),
                         {"two-words", "two-words-1", "a--c_d-é"})


if __name__ == "__main__":
    unittest.main()
