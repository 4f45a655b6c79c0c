"""Files that an earlier version of the program wrote are drawn, with the names that their fields have today."""

import tarfile
import unittest
from pathlib import Path

from support import FolderTest

from fsdpbench.analysis.load import load_comparison, load_result, load_sweep
from fsdpbench.analysis.report import write_report
from fsdpbench.analysis.schema import check_version, read_json

OLD = Path(__file__).resolve().parents[2] / "tests/golden/results-2.tar.gz"


class OldResults(FolderTest):
    def setUp(self) -> None:
        super().setUp()
        with tarfile.open(OLD) as old:
            old.extractall(self.folder)
        self.old = self.folder / "old"

    def test_each_is_drawn(self) -> None:
        for name in ("run", "accept", "sweep", "compare", "gate", "explain"):
            with self.subTest(name):
                page = write_report([self.old / name], self.old / "page" / name)
                self.assertGreater(page.stat().st_size, 1000)

    def test_renamed_fields_are_there(self) -> None:
        result = load_result(self.old / "run/result.json")
        self.assertTrue(all(c.busbw_gb_per_s for c in result.collectives))
        self.assertIsNotNone(result.jitter_ms)
        self.assertTrue(load_sweep(self.old / "sweep/sweep.json").cells)
        self.assertTrue(load_comparison(self.old / "compare/compare.json").a.trials)
        for kind, name, way in (("explain.json", "explain/explain.json", ("step", "exposed_comm_ms")),
                                ("result.json", "accept/result.json", ("arms", "rounds"))):
            root = read_json(self.old / name)
            check_version(root, kind)
            value = root.value[way[0]][way[1]]
            self.assertTrue(value)
            if isinstance(value, list):
                self.assertEqual({"compute_ms", "comm_ms", "step_ms"} & set(value[0]),
                                 {"compute_ms", "comm_ms", "step_ms"})


if __name__ == "__main__":
    unittest.main()
