"""fsdpbench mcp: twenty questions by the client of the official SDK, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any, List, Tuple

import support

import fsdpbench as fb
from fsdpbench import mcp as ours

try:
    import anyio
    from mcp import StdioServerParameters
    from mcp.client import Client
    from mcp.client.stdio import stdio_client
except ImportError:
    Client = None  # type: ignore[assignment,misc]

PACKAGE = Path(__file__).resolve().parents[1]


class InAFolder(support.FolderTest):
    def setUp(self) -> None:
        super().setUp()
        outside = self.folder / "outside"
        self.root = self.folder / "root"
        self.root.mkdir()
        for name, prefetch in (("with", "pre"), ("without", "none")):
            fb.simulate("quickstart", ranks=4, set={"train.steps": 3, "emulate.compute_tflops": 0.06, "fsdp.backward_prefetch": prefetch},
                        out=self.root / "runs" / name)
        shutil.copytree(self.root / "runs/with", outside)
        shutil.copytree(support.DATA / "sweep", self.root / "sweep")
        (self.root / "link").symlink_to(outside)
        (self.root / "half").mkdir()
        (self.root / "half/result.json").symlink_to(outside / "result.json")
        self.result = json.loads((self.root / "runs/with/result.json").read_text())

    def files(self) -> List[Tuple[str, int]]:
        return sorted((str(path), path.stat().st_mtime_ns) for path in self.root.rglob("*"))


class WithoutTheSdk(InAFolder):
    def test_only_what_is_inside_is_read(self) -> None:
        desk = ours.Desk(self.root)
        for name in ("../outside", str(self.folder / "outside"), "link", "half", "runs/../../outside"):
            with self.assertRaisesRegex(ours.Refused, "outside the folder"):
                desk.summary(name)

    def test_a_sentence_says_what_to_install(self) -> None:
        code = "import sys; sys.modules['mcp'] = None; from fsdpbench.mcp import main; sys.exit(main([]))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("pip install mcp", done.stderr)


@unittest.skipIf(Client is None, "the package mcp is not installed")
class TwentyQuestions(InAFolder):
    def test_they_are_answered_with_the_results_own_numbers_or_refused(self) -> None:
        before = self.files()
        anyio.run(self._ask)
        self.assertEqual(self.files(), before)

    async def _ask(self) -> None:
        server = StdioServerParameters(command=sys.executable, args=["-m", "fsdpbench.mcp"], cwd=str(self.root),
                                       env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        async with Client(stdio_client(server)) as client:
            async def said(tool: str, **arguments: Any) -> Tuple[bool, str]:
                answer = await client.call_tool(tool, arguments)
                return bool(answer.is_error), "\n".join(block.text for block in answer.content)

            async def text(tool: str, **arguments: Any) -> str:
                failed, words = await said(tool, **arguments)
                self.assertFalse(failed, words)
                return words

            async def refused(tool: str, why: str, **arguments: Any) -> None:
                failed, words = await said(tool, **arguments)
                self.assertTrue(failed, f"{tool}{arguments} is not refused: {words}")
                self.assertRegex(words, why)

            tools = (await client.list_tools()).tools
            self.assertEqual({tool.name for tool in tools}, {
                "list_results", "summary", "field", "causes", "explain", "compare", "simulate", "expect"})
            self.assertTrue(all(tool.annotations.read_only_hint and tool.description for tool in tools))
            # What is there, and its numbers.
            listed = await text("list_results")
            self.assertTrue(all(name in listed for name in ("runs/with", "runs/without", "sweep")), listed)
            self.assertNotIn("link", listed)
            summary = json.loads(await text("summary", result="runs/with"))
            self.assertEqual(summary["metrics"], self.result["metrics"])
            self.assertEqual(json.loads(await text("summary", result="sweep"))["file"], "sweep.json")
            median = await text("field", result="runs/with", path="metrics.step_ms.median")
            self.assertEqual(float(median), self.result["metrics"]["step_ms"]["median"])
            self.assertIn(self.result["causes"][0]["cause"], await text("causes", result="runs/with"))
            self.assertIn(self.result["causes"][0]["cause"], await text("explain", result="runs/with"))
            self.assertIn("fsdp.backward_prefetch", await text("compare", a="runs/with", b="runs/without"))
            # On the computed clock.
            again = json.loads(await text("simulate", profile="runs/with"))
            self.assertEqual(again["metrics"]["step_ms"], self.result["metrics"]["step_ms"])
            named = json.loads(await text("simulate", profile="quickstart", cluster="dgx-h100", ranks=4,
                                          set={"train.steps": 3, "fsdp.backward_prefetch": "none"}))
            self.assertEqual(named["config"]["fsdp"]["backward_prefetch"], "none")
            self.assertIn("step_ms", await text("expect", profile="llama3-8b", cluster="dgx-h100", ranks=64, measured="6150"))
            # Refused.
            await refused("summary", "outside the folder", result="../outside")
            await refused("summary", "outside the folder", result="/etc")
            await refused("explain", "outside the folder", result="link")
            await refused("summary", "no result; list_results", result="nothing")
            await refused("field", "there is no field metrics.stepp", result="runs/with", path="metrics.stepp")
            await refused("causes", "no causes", result="sweep")
            await refused("simulate", "nearest|quickstart", profile="quickstrat")
            await refused("simulate", "may name a file", profile="quickstart", set={"data.path": "/etc/passwd"})
            await refused("simulate", "neither in this folder", profile="--out")
            await refused("expect", "name of a machine", profile="quickstart", cluster="../machine.toml")
            await refused("simulate", "fsdp.strategi", profile="quickstart", cluster="dgx-h100", set={"fsdp.strategi": 1})
            try:
                failed, words = await said("write", result="runs/with", text="x")
            except Exception as error:  # noqa: BLE001: the SDK's own kind of error
                failed, words = True, str(error)
            self.assertTrue(failed and "write" in words, words)


if __name__ == "__main__":
    unittest.main()
