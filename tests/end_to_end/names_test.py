#!/usr/bin/python3
"""Profiles, sweeps and results by their names, from any folder.

    names_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import program
from program import TINY, Program, sets

THREADS = [*TINY, "mesh.ranks=2"]


class Names(Program):
    """Profiles by name, from a folder that has none."""

    def test_run_quickstart_from_any_folder(self) -> None:
        self.call("run", "quickstart", *sets(*THREADS), "-q")
        folders = [folder.name for folder in (self.folder / "runs").iterdir()]
        self.assertEqual(len(folders), 1)
        self.assertRegex(folders[0], r"^quickstart-\d{8}-\d{6}$")

    def test_paths_as_documents_write_them(self) -> None:
        for name in ("quickstart.toml", "profiles/runs/quickstart.toml"):
            self.call("explain", name, "--format", "collectives")

    def test_a_result_folder_is_its_configuration(self) -> None:
        self.call("run", "quickstart", *sets(*THREADS), "--out", "first", "-q")
        self.call("run", "first", "-q")
        self.assertEqual([folder.name[:6] for folder in (self.folder / "runs").iterdir()], ["first-"])
        self.assertIn("first", self.error("run", "first/result.json"))

    def test_a_sweep_by_name(self) -> None:
        message = self.error("sweep", "strategy-rank")
        self.assertIn("the nearest is 'strategy-ranks'", message)
        self.assertIn("profiles/sweeps", message)

    def test_kinds_of_files_are_told_apart(self) -> None:
        profiles = program.SOURCE / "profiles"
        sweep, model = (str(profiles / file) for file in ("sweeps/strategy-ranks.toml", "models/llama3-8b.toml"))
        self.assertIn(f"is a sweep file, and a run profile is expected; `fsdpbench sweep {sweep}`", self.error("run", sweep))
        self.assertIn("`fsdpbench sweep strategy-ranks`", self.error("run", "strategy-ranks"))
        self.assertIn("`fsdpbench run quickstart`", self.error("sweep", "quickstart"))
        self.assertIn("is a run profile, and a sweep file is expected", self.error("sweep", self.profile))
        self.assertIn("is a model, and a sweep is expected", self.error("sweep", "llama3-8b"))
        self.assertEqual(self.call("explain", model).stdout, self.call("explain", "llama3-8b").stdout)


if __name__ == "__main__":
    program.main()
