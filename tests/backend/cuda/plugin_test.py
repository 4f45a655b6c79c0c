#!/usr/bin/python3
"""The program with its CUDA backend as a plugin, on a machine that need not have a GPU.

    plugin_test.py PROGRAM SOURCE_FOLDER PLUGIN COMPILER [unittest arguments]
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
SOURCE = Path()
PLUGIN = Path()
COMPILER = ""

TINY = ["model.layers=2", "model.width=32", "model.ffn_width=64", "train.seq_len=16", "train.batch_per_rank=1",
        "train.steps=2", "train.warmup=1", "mesh.ranks=1", "emulate.link_gb_per_s=none", "emulate.link_latency_us=0"]


def has_driver() -> bool:
    return Path("/dev/nvidiactl").exists()


class Plugin(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def run_tiny(self, backend: str, **environment: str) -> subprocess.CompletedProcess[str]:
        keys = [argument for key in [*TINY, f"device.backend={backend}"] for argument in ("--set", key)]
        return subprocess.run([PROGRAM, "run", str(SOURCE / "profiles/runs/quickstart.toml"), *keys, "-q"],
                              capture_output=True, text=True, cwd=self.folder, timeout=120,
                              env={**os.environ, **environment})

    def refusal(self, **environment: str) -> str:
        """The one line with which a run on the cuda backend is refused."""
        done = self.run_tiny("cuda", **environment)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0].removeprefix("error: ")

    def shared_object(self, name: str, source: str, *options: str) -> Path:
        path = self.folder / name
        subprocess.run([COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-x", "none", *options],
                       input=source, text=True, check=True)
        return path

    def test_the_cpu_backend_works_beside_it(self) -> None:
        done = self.run_tiny("cpu")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipIf(has_driver(), "this machine has a driver")
    def test_no_driver(self) -> None:
        self.assertEqual(self.refusal(), "The cuda backend needs NVIDIA's driver, and this machine has none; "
                                         'device.backend = "cpu" works everywhere.')

    def test_no_plugin(self) -> None:
        nowhere = self.folder / "nowhere.so"
        self.assertEqual(self.refusal(FSDPBENCH_CUDA_PLUGIN=str(nowhere)),
                         f'The cuda backend is a plugin, and {nowhere} does not exist: build it with "make cuda", or '
                         "name it in FSDPBENCH_CUDA_PLUGIN.")

    def test_a_missing_library_is_named(self) -> None:
        toolkit = self.shared_object("libtoolkit.so.13", "int toolkit(void) { return 1; }")
        plugin = self.shared_object("plugin.so", "int toolkit(void); int plugin(void) { return toolkit(); }", str(toolkit))
        toolkit.unlink()
        message = self.refusal(FSDPBENCH_CUDA_PLUGIN=str(plugin))
        self.assertIn("The cuda backend cannot be loaded, because a library that it needs is missing or does not fit (",
                      message)
        self.assertIn("libtoolkit.so.13: cannot open shared object file", message)

    def test_a_library_that_is_no_plugin(self) -> None:
        other = self.shared_object("other.so", "int other(void) { return 1; }")
        self.assertIn("is no plugin of fsdpbench", self.refusal(FSDPBENCH_CUDA_PLUGIN=str(other)))

    def test_a_plugin_of_another_build(self) -> None:
        for abi in ("static const int abi[16] = {1};",  # as once: a number
                    'static const char abi[64] = "0123456789abcdef0123456789abcdef";', "static const char abi[64];"):
            other = self.shared_object("old.so", abi + "const void* fsdpbench_cuda_plugin(void) { return abi; }")
            self.assertEqual(self.refusal(FSDPBENCH_CUDA_PLUGIN=str(other)),
                             f"{other} belongs to another build of fsdpbench, whose interfaces differ from this "
                             "program's: build both together with \"make cuda\".")

    def interface_hash(self, source: Path, compiler: str = "GNU 12") -> str:
        header = self.folder / "interface_hash.h"
        subprocess.run(["cmake", f"-DSOURCE={source}", f"-DCOMPILER={compiler}", f"-DOUTPUT={header}", "-P",
                        str(SOURCE / "src/base/interface_hash.cmake")], check=True)
        return header.read_text()

    def test_any_change_of_an_interface_makes_another_build(self) -> None:
        copy = self.folder / "src"
        for folder in ("base", "backend", "launch", "hardware"):
            shutil.copytree(SOURCE / "src" / folder, copy / folder)
        same = self.interface_hash(copy)
        self.assertEqual(self.interface_hash(SOURCE / "src"), same)
        self.assertNotEqual(self.interface_hash(copy, "GNU 13"), same)
        for header in ("backend/communicator.h", "base/lane.h", "launch/session.h", "hardware/gpu_health.h", "backend/cuda/plugin.h"):
            with self.subTest(header):
                text = (copy / header).read_text()
                (copy / header).write_text(text.replace("};", "int one_more = 0; };", 1))
                self.assertNotEqual(self.interface_hash(copy), same)
                (copy / header).write_text(text)
        (copy / "backend/cuda/cuda_device.h").write_text("// the plugin's own")
        self.assertEqual(self.interface_hash(copy), same)

    def test_nothing_links_the_driver(self) -> None:
        """The driver is loaded by the runtime where there is one; a program that needs it does not start elsewhere."""
        for file, forbidden in ((PROGRAM, ("libcuda", "libnccl", "libcupti", "libcublas", "libcudnn")),
                                (PLUGIN, ("libcuda.so",))):
            needed = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True, check=True).stdout
            libraries = [line for line in needed.splitlines() if "NEEDED" in line]
            self.assertTrue(libraries)
            for name in forbidden:
                self.assertFalse([line for line in libraries if name in line], f"{file} needs {name}")


if __name__ == "__main__":
    PROGRAM, SOURCE, PLUGIN, COMPILER = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
