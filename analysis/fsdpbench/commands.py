"""The program's commands as functions. Arguments are its options; what they mean is said by `fsdpbench COMMAND --help`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, Optional, Sequence, Union

from .call import Done, Progress, call
from .program import program
from .results import Expectation, Explanation, Result, Run, Sweep, Tuning, WhatIf

if TYPE_CHECKING:
    from .analysis.open_server import Server

Folder = Union[str, "os.PathLike[str]"]
Source = Union[str, "os.PathLike[str]", Result]
Set = Optional[Mapping[str, Any]]


def simulate(profile: Source, *, cluster: Optional[str] = None, ranks: Optional[int] = None, set: Set = None,
             out: Optional[Folder] = None, overwrite: bool = False, progress: Progress = None) -> Run:
    """A training on a computed clock, on a machine of profiles/clusters (`cluster`) or at the profile's rates.

    profile: a run profile's name or file, or a result, whose configuration it then is.
    set: keys of the configuration, as {"fsdp.backward_prefetch": "none"}.
    out: the result folder; without it the files are temporary and go with the result.
    """
    options = _options(cluster=cluster, ranks=ranks)
    return _to_folder(Run, "simulate", [_text(profile), *options, *_sets(set)], out, overwrite, progress)


def run(profile: Source, *, ranks: Optional[int] = None, set: Set = None, out: Optional[Folder] = None,
        overwrite: bool = False, resume: Optional[Folder] = None, progress: Progress = None) -> Run:
    """Trains and measures on this machine, ranks as threads of one process. Arguments as of simulate()."""
    options = _options(ranks=ranks, resume=resume)
    return _to_folder(Run, "run", [_text(profile), *options, *_sets(set)], out, overwrite, progress)


def what_if(of: Source, *, set: Set = None, link_scale: Optional[float] = None, compute_scale: Optional[float] = None,
            without_straggler: bool = False, out: Optional[Folder] = None, overwrite: bool = False) -> WhatIf:
    """A finished run replayed with its own op times under another policy, link or rate of computation."""
    options = _options(link_scale=link_scale, compute_scale=compute_scale, without_straggler=without_straggler)
    return _to_folder(WhatIf, "what-if", [_text(of), *options, *_sets(set)], out, overwrite, False)


def expect(profile: Source, *, cluster: Optional[str] = None, ranks: Optional[int] = None,
           measured: Union[None, str, float] = None, set: Set = None, out: Optional[Folder] = None,
           overwrite: bool = False) -> Expectation:
    """What a training should reach on a cluster and, with what was `measured` of it (tokens/s of a rank, or a text with
    a unit: "2.31 s", "41 %"), what would explain the difference. Other arguments as of simulate()."""
    options = _options(cluster=cluster, ranks=ranks, measured=measured)
    return _to_folder(Expectation, "expect", [_text(profile), *options, *_sets(set)], out, overwrite, False)


def explain(of: Source, *, set: Set = None) -> Explanation:
    """Of a profile: plan, memory, bytes on the wire and schedule; nothing runs. Of a result: why computation was not
    running, as text. Its timeline() is that of the result, or of the profile's simulation."""
    if isinstance(of, Result):
        return Explanation({}, call(["explain", "--from", str(of.folder)], False).text, lambda: of)
    arguments = [_text(of), *_sets(set)]
    done = call(["explain", *arguments, "--format", "json"], False)
    return Explanation(json.loads(done.text), call(["explain", *arguments], False).text, lambda: simulate(of, set=set))


def tune(profile: Optional[Source] = None, *, cluster: Optional[str] = None, memory: Optional[str] = None, set: Set = None,
         from_: Union[None, Source, Sequence[Source]] = None, memory_kind: Optional[str] = None,
         objective: Optional[str] = None,
         fix: Iterable[str] = (), allow_dtypes: Iterable[str] = (), evaluations: Optional[int] = None,
         exhaustive: bool = False, seed: Optional[int] = None, threads: Optional[int] = None,
         least_gain: Optional[float] = None, verify: Optional[int] = None, trials: Optional[int] = None,
         export: Iterable[str] = (), out: Optional[Folder] = None, overwrite: bool = False,
         progress: Progress = None) -> Tuning:
    """The settings for a model, a machine and a memory budget (`memory="70GiB"`).

    from_: a result, or traces of another program's job, instead of a profile.
    """
    sources = [] if from_ is None else [from_] if isinstance(from_, (str, os.PathLike, Result)) else list(from_)
    options = _options(cluster=cluster, memory=memory, memory_kind=memory_kind, objective=objective,
                       evaluations=evaluations, exhaustive=exhaustive, seed=seed, threads=threads, least_gain=least_gain,
                       verify=verify, trials=trials)
    options += [word for key in fix for word in ("--fix", key)]
    options += [word for name, values in (("--allow-dtypes", allow_dtypes), ("--export", export)) if values
                for word in (name, ",".join(values))]
    options += [word for source in sources for word in ("--from", _text(source))]
    return _to_folder(Tuning, "tune", [*([] if profile is None else [_text(profile)]), *options, *_sets(set)], out, overwrite,
                      progress)


def sweep(sweep: Union[None, str, "os.PathLike[str]"] = None, *, base: Optional[str] = None,
          axes: Optional[Mapping[str, Sequence[Any]]] = None, set: Set = None, trials: Optional[int] = None,
          retry_failed: bool = False, out: Optional[Folder] = None, progress: Progress = None) -> Sweep:
    """Every combination of some keys: a sweep's file or name, or a `base` profile and `axes`, as
    fb.sweep(base="quickstart", axes={"fsdp.backward_prefetch": ["pre", "none"]}). The same `out` goes on."""
    if (sweep is None) == (base is None or not axes):
        raise TypeError("sweep() takes a sweep's file or name, or base= and axes=")
    options = [*_options(trials=trials, retry_failed=retry_failed), *_sets(set)]
    if sweep is not None:
        return _to_folder(Sweep, "sweep", [os.fspath(sweep), *options], out, False, progress)
    with tempfile.TemporaryDirectory(prefix="fsdpbench-") as folder:
        file = Path(folder) / "sweep.toml"
        file.write_text(f"base = {json.dumps(_base(str(base)))}\n\n[axes]\n" + "".join(
            f"{json.dumps(key)} = [{', '.join(map(_toml, values))}]\n" for key, values in (axes or {}).items()))
        return _to_folder(Sweep, "sweep", [str(file), *options], out, False, progress)


def open(*sources: Source, port: int = 0, browser: bool = True) -> "Server":
    """Serves the timeline of one or two results or traces on this machine, in a thread, until its close(); its url has the
    address. Raises fsdpbench.analysis.schema.ReportError for what has no timeline and no report, and a port in use."""
    from .analysis.open_page import make_server
    if not 1 <= len(sources) <= 2:
        raise TypeError(f"open() takes one result, or two to be shown above each other, not {len(sources)}")
    server = make_server([Path(_text(source)) for source in sources], port).start()
    if browser:
        server.show()
    return server


def _base(base: str) -> str:
    """A sweep file names its base by a path; here it may be a profile's name, too."""
    if os.path.exists(base):
        return os.path.abspath(base)
    home = Path(program()).resolve().parent.parent / "share" / "fsdpbench"
    named = home / "profiles" / "runs" / f"{base}.toml"
    return str(named.resolve()) if named.exists() else base


def _to_folder(kind: Any, command: str, arguments: List[str], out: Optional[Folder], overwrite: bool,
               progress: Progress) -> Any:
    """Calls a command that writes a folder, and reads this."""
    temporary = Path(tempfile.mkdtemp(prefix="fsdpbench-")) if out is None else None
    folder = temporary / command if temporary else Path(out or "")
    try:
        done: Done = call([command, *arguments, "--out", str(folder), *(["--overwrite"] if overwrite else [])], progress,
                          None if temporary else folder)
    except BaseException:
        if temporary:
            shutil.rmtree(temporary, True)
        raise
    return kind(folder, done.text, done.notes, done.command, temporary)


def _text(source: Source) -> str:
    return str(source.folder) if isinstance(source, Result) else os.fspath(source)


def _options(**values: Any) -> List[str]:
    """--link-scale 2 of link_scale=2; None and False are left out."""
    words: List[str] = []
    for name, value in values.items():
        if value is not None and value is not False:
            words.append("--" + name.replace("_", "-"))
            if value is not True:
                words.append(str(value))
    return words


def _sets(values: Set) -> List[str]:
    return [word for key, value in (values or {}).items() for word in ("--set", f"{key}={_value(value)}")]


def _toml(value: Any) -> str:
    return json.dumps("none" if value is None else value)


def _value(value: Any) -> str:
    """As the command line has it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
