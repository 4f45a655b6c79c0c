"""fsdpbench in a JAX program: an explained trace of a few steps, and a profile of a training step.

    import fsdpbench.jax
    with fsdpbench.jax.explained("out/"):                              # jax.profiler.trace, and one line about it
        for i in range(3):
            state = train_step(state, batch)
    profile = fsdpbench.jax.profile_of(train_step, params, momentum, batch)   # what fsdpbench simulates and tunes

JAX is imported when a name of it is used.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from .call import ProgramError
from .torch.explained import explain_traces, line_of
from .torch.profile import Profile, profile_from

__all__ = ["explained", "profile_of"]

_POLL_S = 0.2


@contextlib.contextmanager
def explained(folder: Union[None, str, "os.PathLike[str]"] = None, *, patience_s: float = 120) -> Iterator[Path]:
    """Traces what runs inside, waits for it, and prints the one line that `fsdpbench trace explain` has about it.

    folder: where the traces stay, one folder a process (`process_0` …), and what is said of them, `explained`. Without it
    a new one is made. Processes on several hosts must share it; the first one explains, and waits `patience_s` for the
    others' traces. A trace that cannot be explained is said, and raises nothing: training goes on.
    """
    import jax
    out = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="fsdpbench-"))
    process, processes = jax.process_index(), jax.process_count()
    with jax.profiler.trace(str(out / f"process_{process}")):
        yield out
        for array in jax.live_arrays():  # steps are dispatched before they have run
            array.block_until_ready()
    if process > 0:
        return
    until = time.monotonic() + patience_s
    while len(traces := _traces(out)) < processes and time.monotonic() < until:
        time.sleep(_POLL_S)
    try:
        line = line_of(explain_traces(traces, out / "explained"), out / "explained", processes - len(traces))
    except ProgramError as error:
        line = f"The traces in {out} are not explained: {error}"
    print(f"fsdpbench: {line}", file=sys.stderr, flush=True)


def _traces(folder: Path) -> List[Path]:
    """The folder of each process whose trace is whole: the profiler writes the JSON last."""
    return sorted({path.parents[3] for path in folder.glob("process_*/plugins/profile/*/*.trace.json.gz")})


def profile_of(train_step: Any, *arguments: Any, set: Optional[Mapping[str, Any]] = None,
               out: Union[None, str, "os.PathLike[str]"] = None) -> Profile:
    """The profile of a training step: of the shapes, types and shardings of its arguments, and of what it is traced to.

    train_step: a function of JAX, jitted or not. The first argument is the parameters, as arrays or as
    jax.ShapeDtypeStruct with shardings; the last one is the batch. Nothing is computed.
    set: keys that a function cannot tell, as {"model.heads": 32}.
    out: where the profile is written; without it, it is when it is used.
    """
    import jax
    leaves = jax.tree_util.tree_flatten_with_path(arguments[0])[0]
    parameters = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    jaxpr = jax.make_jaxpr(train_step)(*arguments)
    facts = _facts(jaxpr.jaxpr)
    seen, sizes = seen_of(parameters, facts)
    # The cast is on the shard, so that gathers and reductions have the type that matrices are multiplied in.
    dtype = {"fsdp.param_dtype": "bf16", "fsdp.reduce_dtype": "bf16"} if "bfloat16" in facts["products"] else {}
    profile = profile_from(seen, sizes, {"fsdp.preset": "xla", **dtype, **_batch_keys(arguments[-1], sizes), **(set or {})})
    profile.origin = "a JAX function by fsdpbench.jax.profile_of"
    if out is not None:
        profile.save(out)
    return profile


def _facts(jaxpr: Any) -> Dict[str, Any]:
    """Lengths of scans, whether anything is checkpointed, and what types matrices are multiplied in."""
    found: Dict[str, Any] = {"scans": [], "checkpointed": False, "products": []}
    open_, known = [jaxpr], {id(jaxpr)}
    while open_:
        for equation in open_.pop().eqns:
            name = equation.primitive.name
            if name == "scan":
                found["scans"].append(equation.params["length"])
            found["checkpointed"] |= name in ("checkpoint", "remat", "remat2")
            if name == "dot_general":
                found["products"].append(str(equation.invars[0].aval.dtype))
            for value in equation.params.values():
                for inner in value if isinstance(value, (list, tuple)) else [value]:
                    inner = getattr(inner, "jaxpr", inner)
                    if hasattr(inner, "eqns") and id(inner) not in known:
                        known.add(id(inner))
                        open_.append(inner)
    return found


def seen_of(parameters: Mapping[str, Any], facts: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, int]]:
    """What torch/reading.py says of a module, of the named arrays of a tree: "['layers'][3]['q']". With it, the sizes of
    the mesh by what its axes do: an axis that splits parameters shards, one that does not replicates."""
    unread: List[str] = []
    shapes: Dict[str, Dict[str, Any]] = {}
    layers = max((n for n in facts["scans"] if n > 1 and any(a.shape[:1] == (n,) and len(a.shape) > 2 for a in parameters.values())),
                 default=0)
    for path, array in parameters.items():
        name = ".".join(re.findall(r"[\w\-]+", path))
        dtype = str(array.dtype)
        if layers and len(array.shape) > 1 and array.shape[0] == layers:  # stacked for a scan
            for i in range(layers):
                shapes[f"blocks.{i}.{name}"] = {"shape": list(array.shape[1:]), "dtype": dtype}
        else:
            shapes[name if re.match(r"[A-Za-z]", name) else f"blocks.{name}"] = {"shape": list(array.shape), "dtype": dtype}
    blocks = sorted({m[0] for name in shapes if (m := re.match(r".*?\.\d+(?=\.)", name))}, key=lambda b: int(b.rsplit(".", 1)[1]))
    embeddings = [name for name in shapes if re.search(r"embed", name, re.I)]
    seen = {"parameters": shapes, "blocks": blocks, "units": [], "unread": unread, "framework": "none", "mesh": {}, "embeddings": embeddings,
            "head": next((name for name in shapes if re.search(r"head|unembed", name, re.I)), None), "linear_blocks": False,
            "facts": {}, "settings": {}, "optimizer": None, "compiled": False,
            "checkpointed": blocks if facts["checkpointed"] else []}
    sizes: Dict[str, int] = {}
    splits: Dict[str, int] = {}
    for array in parameters.values():
        sharding = getattr(array, "sharding", None)
        if not hasattr(sharding, "mesh"):
            continue
        sizes.update({str(axis): int(size) for axis, size in sharding.mesh.shape.items()})
        for part in sharding.spec:
            for axis in (part if isinstance(part, tuple) else (part,)) if part is not None else ():
                splits[axis] = splits.get(axis, 0) + 1
    most = max(splits, key=lambda axis: splits[axis], default=None)
    mesh: Dict[str, int] = {}
    for axis, size in sizes.items():
        does = "tensor" if re.search(r"tensor|model|tp", axis) else "shard" if axis == most else "replicate" if axis not in splits else "shard"
        mesh[does] = mesh.get(does, 1) * size
    if not sizes:
        unread.append("the mesh: no parameter has a NamedSharding")
    return seen, mesh


def _batch_keys(batch: Any, mesh: Mapping[str, int]) -> Dict[str, Any]:
    import jax
    first = next(iter(jax.tree_util.tree_leaves(batch)), None)
    shape = getattr(first, "shape", ())
    ranks = mesh.get("shard", 1) * mesh.get("replicate", 1)
    keys = {"train.batch_per_rank": max(1, shape[0] // ranks)} if shape else {}
    return {**keys, "train.seq_len": int(shape[1])} if len(shape) > 1 else keys
