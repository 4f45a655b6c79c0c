#!/usr/bin/python3
"""check_includes.py finds each kind of offence in a small tree, and nothing in a clean one."""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import check_includes  # noqa: E402
from check_includes import FOLDERS, LIMITS, Folder, Limit, Picture, budget_problems, check, measured, readme_problems  # noqa: E402

CLEAN = {
    "base/bytes.h": "#pragma once\n",
    "config/run_config.h": '#pragma once\n#include "base/bytes.h"\n',
    "config/load.h": "#pragma once\n",
    "plan/plan.h": '#pragma once\n#include <vector>\n#include "config/run_config.h"\n',
    "backend/device.h": "#pragma once\n",
    "backend/cpu/backend.h": '#pragma once\n#include "backend/device.h"\n',
    "backend/cuda/device.cpp": "#include <cuda_runtime.h>\n#include <nccl.h>\n",
    "runs/select_backend.cpp": '#include "backend/cpu/backend.h"\n',
    "app/command_line.cpp": "#include <CLI/CLI.hpp>\n",
}


class Trees(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


class CheckIncludes(Trees):
    def problems(self, files: dict[str, str]) -> list[str]:
        for path, text in {**CLEAN, **files}.items():
            self.write(path, text)
        return check(self.folder)

    def expect(self, path: str, text: str, message: str) -> None:
        problems = self.problems({path: text})
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(message, problems[0])
        (self.folder / path).unlink()

    def test_a_clean_tree(self) -> None:
        self.assertEqual(self.problems({}), [])

    def test_wrong_arrows(self) -> None:
        self.expect("base/x.cpp", '#include "config/run_config.h"\n', "base/x.cpp:1: base may not include config/run_config.h")
        self.expect("plan/x.cpp", '#include "config/load.h"\n', "plan may not include config/load.h")
        self.expect("backend/x.cpp", '#include "plan/plan.h"\n', "backend may not include plan/plan.h")
        self.expect("app/x.cpp", '#include "backend/cpu/backend.h"\n', "app may not include backend/cpu/backend.h")
        self.expect("backend/x.cpp", '#include "backend/cpu/backend.h"\n', "backend may not include backend/cpu")

    def test_rows_that_run_up(self) -> None:
        rows = [*FOLDERS, Folder("late", 0, "", "", "")]
        rows[0] = Folder("base", 0, "", "late nowhere", "")
        with mock.patch.multiple(check_includes, FOLDERS=rows, BY_NAME={row.name: row for row in rows}):
            self.assertEqual(check_includes.table_problems(), ["base: its row uses late, which stands below it",
                                                               "base: its row uses nowhere, which is in no row"])

    def test_third_party_headers_out_of_place(self) -> None:
        self.expect("app/x.cpp", "#include <cuda_runtime.h>\n", "may only be included in backend/cuda")
        self.expect("backend/cpu/x.cpp", '#include "nccl.h"\n', "may only be included in backend/cuda")
        self.expect("backend/cpu/x.cpp", "#include <mpi.h>\n", "may only be included in")
        self.expect("app/x.cpp", "#include <CLI/CLI.hpp>\n", "may only be included in app/command_line.cpp")

    def test_conditionals(self) -> None:
        self.expect("app/x.cpp", "#ifdef HAVE_CUDA\n#endif\n", "app/x.cpp:1: preprocessor conditional")
        self.expect("app/x.cpp", "\n  # if 0\n#endif\n", "app/x.cpp:2: preprocessor conditional")

    def test_shape_of_files(self) -> None:
        self.expect("app/x.cpp", "\n" * 701, "701 lines")
        self.expect("app/x.h", "class X;\n", "#pragma once")
        self.expect("app/x.cpp", '#include "x.h"\n', "is not a path from src/")
        self.expect("base/bytes.cpp", '#include <vector>\n#include "base/bytes.h"\n', 'first include is not "base/bytes.h"')
        self.expect("elsewhere/x.cpp", "\n", "lies in no folder of the table")

    def test_circles_of_units(self) -> None:
        around = {
            "base/a.h": '#pragma once\n#include "base/b.h"\n',
            "base/b.h": "#pragma once\n",
            "base/b.cpp": '#include "base/b.h"\n#include "base/c.h"\n',
            "base/c.h": '#pragma once\n#include "base/a.h"\n',
        }
        self.assertEqual(self.problems(around), ["units that include each other: base/a, base/b, base/c"])
        around["base/b.cpp"] = '#include "base/b.h"\n'
        self.assertEqual(self.problems(around), [])

    def test_the_table_in_the_readme(self) -> None:
        table = check_includes.readme_table()
        self.assertEqual(readme_problems("before\n" + table + "after\n"), [])
        changed = table.replace("bytes, lanes", "bytes and lanes")
        self.assertEqual(len(readme_problems(changed)), 1)
        self.write("README.md", "before\n" + changed + "after\n")
        check_includes.write_readme(self.folder / "README.md")
        self.assertEqual((self.folder / "README.md").read_text(encoding="utf-8"), "before\n" + table + "after\n")


class Budgets(Trees):
    def test_a_line_too_many(self) -> None:
        lines = {folder.name: folder.lines for folder in FOLDERS}
        limits = {limit.name: limit.most for limit in LIMITS}
        self.assertEqual(budget_problems(lines, limits), [])
        plan, keys = lines["plan"], limits["keys"]
        lines["plan"] += 1
        limits["keys"] += 2
        found = budget_problems(lines, limits)
        self.assertEqual(len(found), 2, found)
        self.assertIn(f"src/plan: {plan + 1} lines, 1 more than its budget", found[0])
        self.assertIn(f"keys: {keys + 2} keys, 2 more than its budget", found[1])
        lines["plan"] = 0
        self.assertIn("src/plan: is in the table and has no sources", budget_problems(lines, {}))

    def test_a_line_counts_for_the_innermost_folder(self) -> None:
        lines = check_includes.lines_by_folder({"backend/device.h": "\n", "backend/cuda/nccl/x.cpp": "\n\n", "runs/x.cpp.in": "\n"})
        self.assertEqual({name: n for name, n in lines.items() if n}, {"backend": 1, "backend/cuda/nccl": 2})

    def test_what_is_counted(self) -> None:
        self.write("docs/a.md", "one two\nthree\n")
        self.write("docs/deep/b.md", "four\n")
        self.write("docs/made.md", "not these\n")
        self.write("profiles/README.md", "| `x` | 1 |\n\n## All keys\n\n| key | default |\n|---|---|\n| `a.b` | 1 |\n| `a.c` | 2 |\n")
        self.assertEqual(measured(Limit("docs", 0, "words", "docs/**/*.md - docs/made.md"), self.folder), 4)
        self.assertEqual(measured(Limit("docs", 0, "lines", "docs/*.md"), self.folder), 3)
        self.assertEqual(measured(Limit("docs", 0, "files", "docs/**/*.md"), self.folder), 3)
        self.assertEqual(measured(Limit("keys", 0, "keys", "profiles/README.md"), self.folder), 2)

    def test_rooms_floors_and_shares(self) -> None:
        self.write("bench/x.cpp", '#include "plan/plan.h"\n')
        found = check_includes.picture(CLEAN, self.folder)
        self.assertEqual(found.uses["bench"], {"plan"})
        self.assertEqual({room: floor for room, floor in found.floors().items() if floor > 1},
                         {"config": 2, "plan": 3, "bench": 4, "runs": 2})
        rooms = {f"room{i}": 10 for i in range(check_includes.MOST_ROOMS + 1)}
        above = {f"room{i}": {f"room{i - 1}"} if 0 < i <= check_includes.MOST_FLOORS else set() for i in range(len(rooms))}
        problems = Picture({**rooms, "room0": 60}, above).problems()
        self.assertEqual([problem.split(",")[0] for problem in problems],
                         ["22 rooms", "rooms that use each other make 11 floors", "room0: 22.2 % of all lines"])


if __name__ == "__main__":
    unittest.main()
