"""`fsdpbench mcp`: result files for assistants that speak the Model Context Protocol, over stdin and stdout.

The tools read results in the folder in which this was started and ask the program on its computed clock. They write
nothing there and start no training. Every number is the program's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from . import commands, results
from .call import ProgramError, call

_MISSING = "fsdpbench mcp needs the package mcp (Python 3.10 or newer): pip install mcp"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_RESULTS = 500
_MOST_ENTRIES = 8  # of a list that summary() shows
_DEEPEST = 8       # folder below the one it was started in
# Keys that name files or folders of the machine.
_OF_FILES = ("data.", "checkpoint.", "trace.")
Json = Dict[str, Any]


class Refused(Exception):
    """A question that is not answered; the text says why and what is valid."""


class Desk:
    """Answers questions about the results in one folder. No SDK is needed here."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def list_results(self) -> List[Json]:
        """The results in this folder: their names, which the other tools take, and their kinds."""
        found: List[Json] = []
        for folder, below, files in os.walk(self.root):
            below[:] = [] if len(Path(folder).relative_to(self.root).parts) >= _DEEPEST else sorted(
                name for name in below if not name.startswith("."))
            kind = next((kind for kind in results.KINDS if kind._FILE in files), None)
            if kind is not None:
                found.append({"result": str(Path(folder).relative_to(self.root)), "file": kind._FILE})
            if len(found) == _MOST_RESULTS:
                break
        return found

    def summary(self, result: str) -> Json:
        """The content of a result's file, without its long lists: times in ms, memory in bytes, verdicts, configuration."""
        loaded = self._load(result)
        return {"file": loaded._FILE, **_shortened(loaded.data)}

    def field(self, result: str, path: str) -> Any:
        """One field of a result's file, as `metrics.step_ms.median` or `causes.0.advice`; docs/result-format.md lists them."""
        value: Any = self._load(result).data
        for i, word in enumerate(path.split(".")):
            if isinstance(value, dict) and word in value:
                value = value[word]
            elif isinstance(value, list) and word.isdigit() and int(word) < len(value):
                value = value[int(word)]
            else:
                here = ".".join(path.split(".")[:i]) or "the file"
                valid = f"{len(value)} entries" if isinstance(value, list) else (
                    ", ".join(sorted(value)) if isinstance(value, dict) else "a value and no fields")
                raise Refused(f"there is no field {path}: {here} has {valid}")
        return value

    def causes(self, result: str) -> List[Json]:
        """Why computation was not running in a run, a simulation or an explained trace, with what would help."""
        data = self._load(result).data
        if "causes" not in data:
            raise Refused(f"{result} has no causes; runs, simulations and explained traces have them")
        return list(data["causes"])

    def explain(self, result: str) -> str:
        """The program's explanation of a run or a simulation: where its step went, the largest cause first."""
        return call(["explain", "--from", str(self._run(result).folder)], False).text

    def compare(self, a: str, b: str) -> str:
        """Two finished runs or simulations compared as they are: faster, slower, no difference or inconclusive, and the keys that differ."""
        folders = [str(self._run(name).folder) for name in (a, b)]
        temporary = tempfile.mkdtemp(prefix="fsdpbench-")
        try:
            return call(["compare", *folders, "--out", os.path.join(temporary, "compared")], False).text
        finally:
            shutil.rmtree(temporary, True)

    def simulate(self, profile: str, cluster: Optional[str] = None, ranks: Optional[int] = None,
                 set: Optional[Dict[str, Any]] = None) -> Json:
        """A training on the computed clock: nothing runs. profile: the name of a profile or model, or a result or a profile in
        this folder. cluster: the name of a machine. set: keys, as {"fsdp.backward_prefetch": "none"}."""
        run = commands.simulate(self._profile(profile), cluster=_cluster(cluster), ranks=ranks, set=_keys(set), progress=False)
        return _shortened(run.data)

    def expect(self, profile: str, cluster: str, ranks: Optional[int] = None, measured: Optional[str] = None,
               set: Optional[Dict[str, Any]] = None) -> Json:
        """What a job should reach on a cluster and, with what was measured of it ("6150" tokens/s per rank, "2.31 s", "41 %"),
        what would explain the difference. Other arguments as of simulate."""
        if measured is not None and measured.lstrip().startswith("-"):
            raise Refused(f"measured = {measured}: expected a rate, a time or a share, as 6150, 2.31 s or 41 %")
        found = commands.expect(self._profile(profile), cluster=_cluster(cluster), ranks=ranks, measured=measured, set=_keys(set))
        return _shortened(found.data)

    def tools(self) -> List[Callable[..., Any]]:
        return [self.list_results, self.summary, self.field, self.causes, self.explain, self.compare, self.simulate, self.expect]

    def _inside(self, name: str) -> Path:
        """A path in the folder, whatever links there say."""
        try:
            path = (self.root / name).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise Refused(f"{name!r} is no path: {error}") from None
        if path != self.root and self.root not in path.parents:
            raise Refused(f"{name!r} is outside the folder in which fsdpbench mcp was started; list_results names what is inside")
        return path

    def _load(self, name: str) -> results.Result:
        folder = self._inside(name)
        try:
            loaded = results.load(folder)
        except FileNotFoundError:
            raise Refused(f"{name!r} is no result; list_results names those in this folder") from None
        self._inside(str(folder / loaded._FILE))
        return loaded

    def _run(self, name: str) -> results.Run:
        loaded = self._load(name)
        if not isinstance(loaded, results.Run):
            raise Refused(f"{name!r} has {loaded._FILE}; expected a run or a simulation, which has result.json")
        if not loaded.complete:
            raise Refused(f"{name!r} was interrupted; expected a finished run")
        return loaded

    def _profile(self, name: str) -> str:
        path = self._inside(name)
        if path.exists():
            return str(path)
        if not _NAME.fullmatch(name):
            raise Refused(f"{name!r} is neither in this folder nor the name of a profile")
        return name


def _cluster(name: Optional[str]) -> Optional[str]:
    if name is not None and not _NAME.fullmatch(name):
        raise Refused(f"cluster = {name!r}: expected the name of a machine, as dgx-h100; files are not read here")
    return name


def _keys(values: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    for key, value in (values or {}).items():
        if key.startswith(_OF_FILES) or "/" in str(value) or str(value).startswith((".", "~")):
            raise Refused(f"{key} = {value!r} may name a file; keys of {', '.join(_OF_FILES)} and paths are not taken here")
    return values or {}


def _shortened(value: Any) -> Any:
    """Without long lists: a sentence says how many entries there are."""
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        if len(value) > _MOST_ENTRIES:
            return f"{len(value)} entries; the tool field reads them one by one, as {{name of this list}}.0"
        return [_shortened(one) for one in value]
    return value


def serve(root: Path) -> None:
    """Until the client closes stdin. Raises ImportError without the package mcp."""
    import functools

    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    server: Any = MCPServer("fsdpbench", instructions=(
        "Results of fsdpbench in one folder: begin with list_results. Numbers are milliseconds, bytes and tokens/s as "
        "docs/result-format.md of fsdpbench says. Simulations are predictions; say so."))

    def answered(tool: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(tool)
        def answer(*args: Any, **kwargs: Any) -> Any:
            try:
                return tool(*args, **kwargs)
            except (Refused, ProgramError) as error:
                raise ToolError(str(error)) from None
            except ValueError as error:  # a file that is damaged
                raise ToolError(str(error)) from None
        return answer

    for tool in Desk(root).tools():
        server.add_tool(answered(tool), structured_output=False,
                        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    server.run("stdio")


def main(arguments: List[str]) -> int:
    if arguments:
        print("Usage: fsdpbench mcp\n\nServes the results in the current folder to assistants, over stdin and stdout "
              "(Model Context Protocol). It only reads: docs/mcp.md.", file=sys.stdout if arguments[0] in ("-h", "--help") else sys.stderr)
        return 0 if arguments[0] in ("-h", "--help") else 2
    try:
        serve(Path.cwd())
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types"):
            raise
        print(f"error: {_MISSING}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
