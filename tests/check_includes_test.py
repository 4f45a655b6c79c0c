#!/usr/bin/python3
"""check_includes.py finds each kind of offence in a small tree, and nothing in a clean one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_includes import check  # noqa: E402

CLEAN = {
    "base/bytes.h": "#pragma once\n",
    "config/run_config.h": '#pragma once\n#include "base/bytes.h"\n',
    "config/load.h": "#pragma once\n",
    "plan/plan.h": '#pragma once\n#include <vector>\n#include "config/run_config.h"\n',
    "backend/device.h": "#pragma once\n",
    "backend/cpu/backend.h": '#pragma once\n#include "backend/device.h"\n',
    "backend/cuda/device.cpp": '#include <cuda_runtime.h>\n#include <nccl.h>\n',
    "runs/select_backend.cpp": '#include "backend/cpu/backend.h"\n',
    "app/command_line.cpp": "#include <CLI/CLI.hpp>\n",
}


class CheckIncludes(unittest.TestCase):
    def problems(self, **extra: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**CLEAN, **{k: v for k, v in extra.pop("files", {}).items()}}.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return check(Path(folder))

    def expect(self, path: str, text: str, message: str) -> None:
        problems = self.problems(files={path: text})
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(message, problems[0])

    def test_a_clean_tree(self) -> None:
        self.assertEqual(self.problems(), [])

    def test_wrong_arrows(self) -> None:
        self.expect("base/x.cpp", '#include "config/run_config.h"\n', "base/x.cpp:1: base may not include config/run_config.h")
        self.expect("plan/x.cpp", '#include "config/load.h"\n', "plan may not include config/load.h")
        self.expect("backend/x.cpp", '#include "plan/plan.h"\n', "backend may not include plan/plan.h")
        self.expect("app/x.cpp", '#include "backend/cpu/backend.h"\n', "app may not include backend/cpu/backend.h")
        self.expect("backend/x.cpp", '#include "backend/cpu/backend.h"\n', "backend may not include backend/cpu")

    def test_third_party_headers_out_of_place(self) -> None:
        self.expect("app/x.cpp", "#include <cuda_runtime.h>\n", "may only be included in backend/cuda")
        self.expect("backend/cpu/x.cpp", '#include "nccl.h"\n', "may only be included in backend/cuda")
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
        self.assertEqual(self.problems(files=around), ["units that include each other: base/a, base/b, base/c"])
        around["base/b.cpp"] = '#include "base/b.h"\n'
        self.assertEqual(self.problems(files=around), [])


if __name__ == "__main__":
    unittest.main()
