"""Results of the program as Python values. Every number is one of its result files; figures are those of its report.

Without `out` a result's files lie in a temporary folder, which goes with the result.
"""

from __future__ import annotations

import csv
import functools
import shutil
import weakref
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

if TYPE_CHECKING:
    import os

    from .analysis import page as pages
    from .analysis.open_server import Server
    from .fields import Record, Records


class Picture:
    """A figure of a result. Notebooks show it; save() writes it as .svg or .png; `figure` is matplotlib's."""

    def __init__(self, picture: "pages.Picture") -> None:
        self.name, self.title, self.caption = picture.name, picture.title, picture.caption
        self.figure = picture.figure

    def save(self, path: "Union[str, os.PathLike[str]]") -> Path:
        from .analysis.page import png_of, svg_of
        target = Path(path)
        if target.suffix not in (".svg", ".png"):
            raise ValueError(f"{target}: a figure is saved as .svg or .png")
        target.write_bytes((svg_of if target.suffix == ".svg" else png_of)(self.figure))
        return target

    def _repr_html_(self) -> str:
        from .analysis.page import data_uri
        return (f'<figure><img src="{data_uri(self.figure)}" alt="{escape(self.title)}" style="max-width: 100%">'
                f"<figcaption>{escape(self.caption)}</figcaption></figure>")

    def __repr__(self) -> str:
        return f"<figure {self.name}: {self.title}>"


class Result:
    """A result folder.

    folder: its files.          data: its JSON.
    text: what the program printed about it.          notes: what it said meanwhile.
    """

    _FILE = ""
    _KIND = ""  # of fields.FILES
    _FIRST = ""  # the figure that a notebook shows first

    def __init__(self, folder: Path, text: str = "", notes: Optional[List[str]] = None,
                 command: Optional[List[str]] = None, temporary: Optional[Path] = None) -> None:
        self.folder = folder
        self.text = text
        self.notes = notes or []
        self.command = command or []
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, True)

    @functools.cached_property
    def data(self) -> Dict[str, Any]:
        from .analysis.schema import check_version, read_json
        value = read_json(self.folder / self._FILE)
        check_version(value, self.folder / self._FILE, self._KIND)
        return value

    @functools.cached_property
    def result(self) -> Any:
        """All of `data` with types and units: docs/result-format.md lists its fields, result.fields() says what they mean."""
        from . import fields
        return fields.OBJECTS[fields.FILES[self._KIND][1]](self.data, self.folder / self._FILE)

    @functools.cached_property
    def _page(self) -> "pages.Page":
        from .analysis.report import page_of
        return page_of(self.folder)

    @property
    def verdict(self) -> List[str]:
        """The sentences that its report begins with."""
        return list(self._page.verdict)

    @property
    def figures(self) -> List[str]:
        """The names that figure() takes."""
        return [picture.name for picture in self._page.pictures if picture.figure is not None]

    def figure(self, name: str) -> Picture:
        """A figure of its report. Raises ValueError that says why it has none of that name."""
        for picture in self._page.pictures:
            if picture.name == name:
                if picture.figure is None:
                    raise ValueError(f"There is no figure {name!r}: {picture.reason}.")
                return Picture(picture)
        raise ValueError(f"There is no figure {name!r}; this result has {', '.join(self.figures)}.")

    def report(self, out: "Optional[Union[str, os.PathLike[str]]]" = None) -> Path:
        """Writes its report page, report.html, into `out`; by default into the folder report of its own. Returns the
        page's path."""
        from .analysis.report import write_report
        return write_report([self.folder], None if out is None else Path(out))

    def open(self, port: int = 0, browser: bool = True) -> "Server":
        """Its timeline and report in the browser: fsdpbench.open() of it."""
        from . import commands
        return commands.open(self, port=port, browser=browser)

    def _repr_html_(self) -> str:
        page = self._page
        lines = [f"<h3>{escape(page.title)}</h3>"]
        lines += [f"<p><b>{escape(text)}</b></p>" for text in page.badges + page.caveats]
        lines += [f"<p>{escape(text)}</p>" for text in page.verdict]
        if self._FIRST in self.figures:
            lines.append(self.figure(self._FIRST)._repr_html_())
        return "\n".join(lines)


class _Timed(Result):
    """A result with a trace."""

    def timeline(self, ranks: int = 4, step: Optional[int] = None) -> Picture:
        """The lanes of one step, of at most so many ranks, with the waits of computation and their causes.

        step: one of the trace; without it, the one whose waits are explained. Raises ValueError that says why there is
        no timeline."""
        from .analysis.report import timeline_of
        if ranks < 1:
            raise ValueError(f"ranks is {ranks}; it must be at least 1")
        picture = timeline_of(self.folder, ranks, step)
        if picture.figure is None:
            raise ValueError(f"There is no timeline: {picture.reason}.")
        return Picture(picture)


def _metric(name: str) -> property:
    return property(lambda run: getattr(run._metrics, name), doc=f"As in fsdpbench.fields.Metrics.{name}.")


class Run(_Timed):
    """A run of run() or simulate(). Times are milliseconds of a step, the slowest rank's median."""

    _FILE = "result.json"
    _KIND = "run"
    _FIRST = "breakdown"

    @property
    def step_ms(self) -> Optional[float]:
        """None where no step was measured."""
        return self._metrics.step_ms.median if self._metrics.step_ms else None

    @property
    def step_interval_ms(self) -> Optional[Tuple[float, float]]:
        """Of the median over this run's steps. How far a simulated step may be from a real one is `prediction`."""
        step = self._metrics.step_ms
        return (step.ci_low, step.ci_high) if step else None

    @property
    def prediction(self) -> "Optional[Record]":
        """Of a simulation: the 95 % intervals of a real step and what they rest on. None: none was made."""
        return self.result.prediction

    compute_ms, comm_ms, exposed_comm_ms, exposed_copy_ms, idle_ms, overlap_pct, tokens_per_s = map(_metric, (
        "compute_ms", "comm_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms", "overlap_pct", "tokens_per_s"))

    @property
    def peak_memory_bytes(self) -> Optional[int]:
        """Of the rank that needed most."""
        memory = self.result.memory
        return memory.peak_bytes.total if memory and memory.peak_bytes else None

    @property
    def causes(self) -> "Records[Record]":
        """Why computation was not running, the largest first, with what would help."""
        return self.result.causes

    @property
    def complete(self) -> bool:
        """False: it was interrupted, and has the steps until then."""
        return self.data.get("complete") is not False

    @property
    def caveats(self) -> List[str]:
        """What to read before any number."""
        return self.result.caveats

    @property
    def _metrics(self) -> "Record":
        return self.result.inner("metrics")

    def setting(self, key: str) -> Any:
        """A key of the complete configuration, as setting("fsdp.strategy")."""
        from .analysis.schema import setting
        return setting(self.result.config or {}, key)

    def __repr__(self) -> str:
        step, exposed = self.step_ms, self.exposed_comm_ms
        return (f"<run {self.result.model or self.setting('model.preset') or self.setting('model.kind')}, {self.setting('mesh.ranks')} ranks: "
                f"step {'not measured' if step is None else f'{step:.3f} ms'}"
                f"{'' if exposed is None else f', exposed communication {exposed:.3f} ms'}>")


class _Rows(Result):
    """A result that is also a table."""

    def rows(self) -> List[Dict[str, Any]]:
        raise NotImplementedError

    def frame(self) -> Any:
        """rows() as a pandas DataFrame."""
        from .fields import frame_of
        return frame_of(self.rows())


class Sweep(_Rows):
    """A sweep of sweep(): a cell for each combination of the axes."""

    _FILE = "sweep.json"
    _KIND = "sweep"

    @property
    def cells(self) -> "Records[Record]":
        return self.result.cells

    def rows(self) -> List[Dict[str, Any]]:
        """A dict per cell: its place on the axes, then times, memory, and why it failed. None: not measured."""
        from .analysis.sweep_view import COLUMNS, numbers_of
        return [{**cell.axes, **dict(zip(COLUMNS, numbers_of(cell)))} for cell in self.cells]

    def _repr_html_(self) -> str:
        page = self._page
        shown = [f"<h3>{escape(page.title)}</h3>", *(f"<p>{escape(text)}</p>" for text in page.verdict)]
        return "\n".join(shown + [self.figure(name)._repr_html_() for name in self.figures[:1]])

    def __repr__(self) -> str:
        failed = sum(cell.metrics is None for cell in self.cells)
        return f"<sweep of {len(self.cells)} cells{f', {failed} without numbers' if failed else ''}>"


class Tuning(_Rows):
    """An answer of tune()."""

    _FILE = "tune.json"
    _KIND = "tuning"
    _FIRST = "policies"

    @property
    def best(self) -> Dict[str, Any]:
        """The policy that is proposed: its settings, step_ms, memory."""
        return dict(self.data["best"])

    @property
    def in_force(self) -> Dict[str, Any]:
        """The same for the configuration as it is."""
        return dict(self.data["in_force"])

    @property
    def settings(self) -> Dict[str, str]:
        """What to change: keys of the configuration with their new values."""
        words = " ".join(map(str, self.data["best"].get("settings", {}).values())).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    @property
    def gain_pct(self) -> float:
        """By how much the objective falls."""
        return 100 * float(self.data["gain"])

    @property
    def keep(self) -> bool:
        """No change is worth making."""
        return bool(self.data["keep"])

    @property
    def profile(self) -> Path:
        """A run profile with the answer: run() and simulate() take it."""
        return self.folder / "tuned.toml"

    def rows(self) -> List[Dict[str, Any]]:
        """A dict per policy that was walked."""
        with open(self.folder / "points.csv", encoding="utf-8", newline="") as file:
            return [dict(pair for key, text in row.items() for pair in _values(key, text)) for row in csv.DictReader(file)]

    def __repr__(self) -> str:
        return (f"<tuning of {self.data['name']}: {self.best['step_ms']:.3f} ms a step instead of "
                f"{self.in_force['step_ms']:.3f} ms{' (keep what you have)' if self.keep else ''}>")


class _Told(Result):
    """A result that notebooks show as its text."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


class WhatIf(_Told):
    """An answer of what_if(): the measured run, its replay, and the replay of the change, each with step_ms and the rest."""

    _FILE = "what_if.json"
    _KIND = "what_if"

    @property
    def step_ms(self) -> float:
        return float(self.data["what_if"]["step_ms"]["median"])

    @property
    def exposed_comm_ms(self) -> float:
        return float(self.data["what_if"]["exposed_comm_ms"])

    @property
    def change_pct(self) -> float:
        """Of the step time; positive: longer."""
        return 100 * float(self.data["change"]["median"])

    def __repr__(self) -> str:
        return f"<what-if: a step of {self.step_ms:.3f} ms, {self.change_pct:+.1f} %>"


class Comparison(Result):
    """A comparison, whether B is slower than A: a folder of `fsdpbench compare`."""

    _FILE = "compare.json"
    _KIND = "compare"


class Gate(Result):
    """A gate, which figures are worse than in a baseline: a folder of `fsdpbench gate`."""

    _FILE = "gate.json"
    _KIND = "gate"


class Acceptance(Result):
    """An acceptance, whether a machine is as it should be: a folder of `fsdpbench accept`."""

    _FILE = "result.json"
    _KIND = "acceptance"


class TraceExplanation(_Timed):
    """An explained trace, why a job of another program computed nothing at times: a folder of `fsdpbench trace explain`."""

    _FILE = "explain.json"
    _KIND = "explain"


class Explanation:
    """An answer of explain(). data: of a profile, everything for programs; text: the tables for people."""

    def __init__(self, data: Dict[str, Any], text: str, run: "Callable[[], Result]") -> None:
        self.data = data
        self.text = text
        self._run = run

    @functools.cached_property
    def run(self) -> Result:
        """The result that is explained; of a profile, its simulation, which is made when it is first asked for."""
        return self._run()

    def timeline(self, ranks: int = 4, step: Optional[int] = None) -> Picture:
        """The lanes of one step of `run`, as its timeline() draws them."""
        if not isinstance(self.run, _Timed):
            raise ValueError(f"There is no timeline of {self.run!r}.")
        return self.run.timeline(ranks, step)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def _repr_html_(self) -> str:
        shown = f"<pre>{escape(self.text)}</pre>"
        if self.data:  # of a profile: nothing has run
            return shown
        try:
            return shown + self.timeline()._repr_html_()
        except ValueError:
            return shown

    def __repr__(self) -> str:
        return self.text


class Expectation(_Told):
    """An answer of expect(). In `data` each figure has value, low and high; `reasons` is a list of dicts."""

    _FILE = "expect.json"
    _KIND = "expectation"

    @property
    def tokens_per_s_rank(self) -> float:
        return float(self.data["tokens_per_s_rank"]["value"])

    @property
    def step_ms(self) -> float:
        return float(self.data["step_ms"]["value"])

    @property
    def as_expected(self) -> Optional[bool]:
        """Whether what was measured lies in the interval; None if nothing was."""
        measured = self.data["measured"]
        return None if measured is None else bool(measured["as_expected"])

    @property
    def reasons(self) -> List[Dict[str, Any]]:
        return list(self.data["reasons"])

    def __repr__(self) -> str:
        return self.text


KINDS = (Sweep, Tuning, WhatIf, Expectation, Comparison, Gate, TraceExplanation, Run)


def load(folder: "Union[str, os.PathLike[str]]") -> Result:
    """The result in a folder that the program wrote, which one of its files names, too."""
    path = Path(folder).parent if Path(folder).is_file() else Path(folder)
    for kind in KINDS:
        if (path / kind._FILE).is_file():
            found = kind(path)
            return Acceptance(path) if kind is Run and found.data.get("kind") == "acceptance" else found
    raise FileNotFoundError(f"{path} has no {', '.join(kind._FILE for kind in KINDS[::-1])}.")


def _values(column: str, text: str) -> List[Tuple[str, Any]]:
    """A number, or the keys that one choice sets: "mesh.shard=16 mesh.replicate=1"."""
    if "=" not in text:
        return [(column, _number(text))]
    return [(key, _number(value)) for key, value in (word.split("=", 1) for word in text.split())]


def _number(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text
