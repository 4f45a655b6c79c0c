#!/usr/bin/python3
"""The archive of tests/gpu/pack, and the pieces that the GPU suite is made of, without a GPU."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from byte_text import batch_of, sample, text_of  # noqa: E402
from gpu_suite import ranks  # noqa: E402
from gpu_suite.machine import libraries_of, peak_bf16, program_environment, unpack  # noqa: E402
from gpu_suite.summary import summary  # noqa: E402


class PackTest(unittest.TestCase):
    """tests/gpu/pack on a build folder in which programs are shell scripts."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build, self.file = Path(folder.name) / "build", Path(folder.name) / "pack.tar.xz"
        self.programs = ["fsdpbench", "bench_cuda_gemm", "some_gpu_test"]
        for name in [f"bin/{name}" for name in self.programs] + ["lib/fsdpbench_cuda.so"]:
            path = self.build / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n", encoding="utf-8")
            path.chmod(0o755)
        (self.build / "gpu-programs.txt").write_text("".join(f"{name}\n" for name in self.programs), encoding="utf-8")
        self.native("OFF")

    def native(self, value):
        (self.build / "CMakeCache.txt").write_text(f"FSDPBENCH_NATIVE:BOOL={value}\n", encoding="utf-8")

    def pack(self):
        return subprocess.run([HERE / "pack", self.build, self.file], capture_output=True, text=True, check=False)

    def test_it_brings_programs_profiles_text_and_the_suite_itself(self):
        done = self.pack()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"pack.tar.xz: [0-9]+ KiB of at most [0-9]+")
        root = unpack(self.file, self.build / "there")
        for name in ("bin/fsdpbench", "bin/some_gpu_test", "lib/fsdpbench_cuda.so", "profiles/runs/gpu-1b.toml",
                     "profiles/models/quickstart.toml", "docs/gpu.md", "tests/gpu/run", "tests/gpu/torch_fsdp2.py"):
            self.assertTrue((root / name).is_file(), name)
        done = subprocess.run([root / "tests/gpu/run", "--list"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(any("__pycache__" in str(path) for path in root.rglob("*")))

    def test_a_program_that_is_not_built_stops_it(self):
        for missing in ("bench_cuda_gemm", "some_gpu_test"):
            path = self.build / "bin" / missing
            path.rename(self.build / missing)
            done = self.pack()
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"lacks {missing}", done.stderr)
            self.assertFalse(self.file.exists())
            (self.build / missing).rename(path)

    def test_libraries_travel_but_for_cudas_and_the_runtimes(self):
        usr = self.build / "usr"
        usr.mkdir()
        names = ("libfmt.so.9", "libcurl.so.4", "libnccl.so.2", "libcudnn.so.9", "libnvrtc.so.13", "libcudart.so.13", "libc.so.6")
        for name in names:
            (usr / name).write_text("library", encoding="utf-8")
        ldd = self.build / "tools" / "ldd"
        ldd.parent.mkdir()
        ldd.write_text("#!/bin/sh\n" + "".join(f"echo '\t{name} => {usr}/{name} (0x1)'\n" for name in names), encoding="utf-8")
        ldd.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, PATH=f"{ldd.parent}:{os.environ['PATH']}"):
            done = self.pack()
        self.assertEqual(done.returncode, 0, done.stderr)
        packed = {path.name for path in (unpack(self.file, self.build / "there") / "lib").iterdir()}
        self.assertEqual(packed, {"fsdpbench_cuda.so", "libfmt.so.9", "libcurl.so.4"})

    @unittest.skipUnless("FSDPBENCH_GPU_PROGRAMS" in os.environ, "not a CUDA build")
    def test_a_cuda_build_names_every_benchmark_and_test_for_gpus(self):
        named = set(Path(os.environ["FSDPBENCH_GPU_PROGRAMS"]).read_text(encoding="utf-8").split())
        root = HERE.parents[1]
        benches = {f"bench_{path.stem}" for path in root.glob("bench/cuda_*.cpp")}
        tests = {name for path in (root / "tests" / "backend").rglob("CMakeLists.txt")
                 for name in re.findall(r"\w+_gpu_test", path.read_text(encoding="utf-8"))}
        self.assertEqual((len(benches), len(tests)), (4, 4))
        self.assertEqual(named, {"fsdpbench", "check_trace"} | benches | tests)

    def test_a_build_for_this_processor_is_not_packed(self):
        self.native("ON")
        done = self.pack()
        self.assertEqual(done.returncode, 1)
        self.assertIn("-D FSDPBENCH_NATIVE=OFF", done.stderr)


class PiecesTest(unittest.TestCase):
    def test_no_peak_is_guessed(self):
        self.assertEqual(peak_bf16("NVIDIA H100 PCIe"), 756e12)
        self.assertEqual(peak_bf16("NVIDIA H100 80GB HBM3"), 989e12)
        self.assertIsNone(peak_bf16("NVIDIA T4"))

    def test_libraries_of_the_pack_are_for_its_programs_only(self):
        self.assertEqual(program_environment(Path("/opt/build-cuda/bin")), {})
        path = program_environment(Path("/opt/gpu-pack/bin"))["LD_LIBRARY_PATH"]
        self.assertTrue(path.startswith("/opt/gpu-pack/lib:"), path)

    def test_libraries_are_those_of_the_python_on_path_and_of_the_toolkit(self):
        with tempfile.TemporaryDirectory() as folder:
            wheels = Path(folder) / "site" / "nvidia"
            (wheels / "cudnn" / "lib").mkdir(parents=True)
            python = Path(folder) / "python3"
            python.write_text(f"#!/bin/sh\necho {wheels}\n", encoding="utf-8")
            python.chmod(0o755)
            with unittest.mock.patch.dict(os.environ, PATH=f"{folder}:/usr/bin:/bin"):
                path = program_environment(Path("/opt/gpu-pack/bin"))["LD_LIBRARY_PATH"].split(":")
        self.assertEqual(path[:4], ["/opt/gpu-pack/lib", str(wheels / "cudnn" / "lib"), "/usr/local/cuda/lib64",
                                    "/usr/local/cuda/extras/CUPTI/lib64"])

    def test_libraries_that_are_not_found_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            ldd = Path(folder) / "ldd"
            ldd.write_text("""#!/bin/sh
printf '\\tlibcudnn.so.9 => not found\\n\\tlibnccl.so.2 => /usr/lib/libnccl.so.2 (0x1)\\n\\tlibc.so.6 => /lib/libc.so.6 (0x2)\\n'
""", encoding="utf-8")
            ldd.chmod(0o755)
            with unittest.mock.patch.dict(os.environ, PATH=f"{folder}:/usr/bin:/bin"):
                found = libraries_of(Path("plugin.so"), {})
        self.assertEqual(found, {"libcudnn.so.9": None, "libnccl.so.2": "/usr/lib/libnccl.so.2"})
        told = summary({"gpu": {}, "program": "", "date": "", "sections": [], "libraries": found})
        self.assertIn("The loader does not find libcudnn.so.9.", told)

    def test_the_text_is_read_as_the_program_reads_it(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, content in (("b/one", b"B1"), ("b.md", b"B2"), ("a", b"A"), ("binary", b"x\0y"), (".hidden", b"h"),
                                  ("runs/r", b"r"), ("build-x/y", b"y"), ("builder", b"C")):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(content)
            (root / "link").symlink_to(root / "a")
            self.assertEqual(text_of(root), b"AB1B2C")
            self.assertEqual(text_of(root / "b.md"), b"B2")

    def test_ranks_take_consecutive_samples(self):
        text = bytes(range(256)) * 4
        self.assertEqual(batch_of(text, 3, 1, 2, 5, 17), [sample(text, 35 + i, 17) for i in range(5)])
        self.assertEqual(batch_of(text, 3, 0, 1, 10, 17)[5:], batch_of(text, 3, 1, 2, 5, 17))
        # src/base/random.h's split_mixed(0) and (1); the places are those of all but 16 bytes
        places = len(text) - 16
        self.assertEqual(sample(text, 0, 17)[0], 0xE220A8397B1DCDAF % places % 256)
        self.assertEqual(sample(text, 1, 17)[0], 0x910A2DEC89025CC1 % places % 256)

    def test_ranks_on_one_gpu_look_like_different_hosts(self):
        hosts = {ranks.environment_of(rank, 4, 1234, one_gpu=True)["NCCL_HOSTID"] for rank in range(4)}
        self.assertEqual(len(hosts), 4)
        self.assertNotIn("NCCL_HOSTID", ranks.environment_of(0, 2, 1234, one_gpu=False))

    def test_ranks_get_their_place_and_a_late_one_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            code = "import os, sys, time; r = int(os.environ['RANK']); time.sleep(60 if r == 2 else 0); sys.exit(r)"
            self.assertEqual(ranks.run_ranks([sys.executable, "-c", code], 3, Path(folder) / "log", 3, Path(folder)), [0, 1, -9])

    def test_without_a_gpu_the_suite_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "fsdpbench").touch()
            (Path(folder) / "python3").symlink_to(sys.executable)
            done = subprocess.run([HERE / "run", "--bin", folder], env={"PATH": folder}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("There is no NVIDIA GPU here", done.stdout)


if __name__ == "__main__":
    unittest.main()
