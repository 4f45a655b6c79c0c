"""From what reading.py saw of a model to a run profile: keys, and what has no key or could not be read.

This file needs no torch, so that it is tested without.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import weakref
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ..analysis.text import visible
from ..call import call

ModelReading = Dict[str, Any]
Keys = Dict[str, Any]

_SMALLEST_VOCABULARY = 256
_NAMED_UNITS = 5


def one_line(text: str) -> str:
    return visible(" ".join(text.splitlines()))


@dataclass
class Profile:
    """A run profile of a model. simulate(), tune(), explain() and run() take it as they take a file.

    keys: what differs from the defaults, as {"fsdp.backward_prefetch": "pre"}.
    unread: what the model has and the profile has not, one sentence each.
    units: (name, elements) of each unit of FSDP, the root first; empty for a model that is not wrapped.
    """

    keys: Keys
    unread: List[str] = field(default_factory=list)
    units: List[Tuple[str, int]] = field(default_factory=list)
    path: Optional[Path] = None
    origin: str = "a PyTorch model by fsdpbench.torch.profile_of"

    @property
    def text(self) -> str:
        """The profile as TOML."""
        lines = [f"# Read from {one_line(self.origin)}.", *(f"# Not in here: {one_line(sentence)}" for sentence in self.unread)]
        for table in _TABLES:
            names = sorted((key[len(table) + 1:] for key in self.keys if key.startswith(f"{table}.")), key=lambda name: name != "preset")
            lines += ["", f"[{table}]"] * bool(names)
            for name in names:
                value = self.keys[f"{table}.{name}"]
                lines.append(f"{name} = {repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)}")
        return "\n".join(lines) + "\n"

    def save(self, path: Union[str, "os.PathLike[str]"]) -> Path:
        """Writes the profile, and is that file from now on."""
        self.path = Path(path)
        self.path.write_text(self.text, encoding="utf-8")
        return self.path

    def __fspath__(self) -> str:
        if self.path is None:
            folder = tempfile.mkdtemp(prefix="fsdpbench-")
            weakref.finalize(self, shutil.rmtree, folder, True)
            self.save(Path(folder) / "model.toml")
        return str(self.path)

    def __str__(self) -> str:
        return self.text


_TABLES = ("model", "data", "mesh", "train", "fsdp", "device", "nccl", "emulate", "simulate", "inject", "trace", "checkpoint")


def profile_of(model: Any, mesh: Any = None, *, optimizer: Any = None, set: Optional[Mapping[str, Any]] = None,
               out: Union[None, str, "os.PathLike[str]"] = None) -> Profile:
    """The profile of a torch module that is wrapped by fully_shard, FullyShardedDataParallel, DistributedDataParallel or
    nothing. Call it after wrapping, and before training where accumulation changes FSDP's flags.

    mesh: for a model that is not wrapped: a DeviceMesh, the number of ranks, or {"replicate": 2, "shard": 8}.
    optimizer: read, too, if given.
    set: keys that a model cannot tell, as {"train.seq_len": 8192, "train.batch_per_rank": 1}.
    out: where the profile is written; without it, it is when it is used.

    The model may be on the meta device and the process group PyTorch's fake one. The program is asked what it makes of the
    profile; units that have other sizes there are listed in `unread`.
    """
    from . import reading
    seen = reading.read(model, optimizer)
    profile = profile_from(seen, _mesh(mesh), set)
    profile.unread += differing_units(profile, seen)
    if out is not None:
        profile.save(out)
    return profile


def profile_from(seen: ModelReading, mesh: Optional[Mapping[str, int]] = None, set: Optional[Mapping[str, Any]] = None) -> Profile:
    """The same from what reading.read() returned; the program is not asked."""
    unread: List[str] = list(seen["unread"])
    keys = _model_keys(seen, unread)
    keys.update(_mesh_keys(seen, mesh, unread))
    keys.update({"fsdp1": _fsdp1_keys, "fsdp2": _fsdp2_keys, "ddp": _ddp_keys, "none": _no_keys}[seen["framework"]](seen, unread))
    keys.update(_checkpoint_keys(seen, unread))
    keys.update(_optimizer_keys(seen.get("optimizer"), unread))
    if seen.get("compiled"):
        keys["simulate.compiled"] = True
    frozen = sum(_numel(p) for p in seen["parameters"].values() if p.get("frozen"))
    if frozen:
        unread.append(f"{frozen:,} elements are frozen; the profile trains all")
    keys.update(set or {})
    asked = [key for key in ("train.seq_len", "train.batch_per_rank") if key not in keys]
    if asked and keys["model.kind"] == "decoder":
        unread.append(f"the batch is not part of a model: say {' and '.join(asked)} with set=")
    return Profile(keys, unread, [(unit["name"], sum(_numel(seen["parameters"][name]) for name in unit["parameters"]))
                                  for unit in seen["units"]])


def differing_units(profile: Profile, seen: ModelReading) -> List[str]:
    """One sentence if the program's units have other sizes than the model's. Raises ProgramError if it refuses the
    profile."""
    with tempfile.TemporaryDirectory(prefix="fsdpbench-") as folder:
        file = Path(folder) / "model.toml"
        file.write_text(profile.text, encoding="utf-8")
        plan = json.loads(call(["explain", str(file), "--format", "json"], False).text)["plan"]
    return compared_units(profile, seen, plan)


def compared_units(profile: Profile, seen: ModelReading, plan: Mapping[str, Any]) -> List[str]:
    tensor = max(1, int(profile.keys.get("mesh.tensor", 1)))
    theirs = [("the root" if not name else name, size) for name, size in profile.units]
    if not theirs or tensor > 1:
        whole = sum(_numel(p) for p in seen["parameters"].values())
        found = plan["parameters"]
        return [] if tensor > 1 or whole == found else [f"the model has {whole:,} elements, the profile's {found:,}"]
    ours = [unit["parameter_numel"] for unit in plan["units"]]
    if len(ours) != len(theirs):
        return [f"the model has {len(theirs)} units, the profile's {len(ours)}"]
    different = [f"{name}: {size:,} elements, {there:,} in the profile's" for (name, size), there in zip(theirs, ours) if size != there]
    more = len(different) - _NAMED_UNITS
    return [f"units of other sizes: {'; '.join(different[:_NAMED_UNITS])}" + (f"; and {more} more" if more > 0 else "")] if different else []


def _mesh(mesh: Any) -> Optional[Dict[str, int]]:
    if mesh is None or isinstance(mesh, dict):
        return mesh
    if isinstance(mesh, int):
        return {"shard": mesh}
    names = mesh.mesh_dim_names or (("shard",) if mesh.ndim == 1 else ("replicate", "shard"))
    return {name: mesh.size(i) for i, name in enumerate(names)}


# What people call the dimensions of a mesh.
_DIMENSIONS = {"replicate": "replicate", "dp_replicate": "replicate", "ddp": "replicate", "shard": "shard", "dp_shard": "shard",
               "dp": "shard", "fsdp": "shard", "dp_shard_cp": "shard", "tp": "tensor", "tensor": "tensor"}


def _mesh_keys(seen: ModelReading, mesh: Optional[Mapping[str, int]], unread: List[str]) -> Keys:
    sizes = {"shard": 1, "replicate": 1, "tensor": 1}
    if mesh:
        for name, size in mesh.items():
            if name in _DIMENSIONS:
                sizes[_DIMENSIONS[name]] *= size
            elif size > 1:
                unread.append(f"mesh dimension {name!r} of {size}")
    read = seen["mesh"]
    for name in sizes:
        if name in read and (name != "tensor" or read[name] > 1):
            sizes[name] = read[name]
    if not read and not mesh:
        unread.append("the mesh: the model is not wrapped and mesh= was not given")
    keys: Keys = {"mesh.ranks": sizes["shard"] * sizes["replicate"] * sizes["tensor"]}
    if read.get("hybrid") or sizes["replicate"] > 1 and sizes["shard"] > 1:
        keys.update({"mesh.shard": sizes["shard"], "mesh.replicate": sizes["replicate"]})
    if sizes["tensor"] > 1:
        keys["mesh.tensor"] = sizes["tensor"]
    return keys


# -- the model ----------------------------------------------------------------------------------------------------------


def _numel(parameter: Mapping[str, Any]) -> int:
    result = 1
    for size in parameter["shape"]:
        result *= size
    return result


# Which map of a block a weight is, by the words in its name. The first that fits counts.
_MAPS: Sequence[Tuple[str, str]] = (
    ("sinks", r"\bsinks?$"),
    ("qk_norm", r"(^|[._])[qk]_?(layer)?norm\."),
    ("norm", r"norm|\bln_?\d*\b|ln_[12]\b"),
    ("router", r"router|mlp\.gate\.|feed_forward\.gate\.|moe\.gate\.|block_sparse_moe\.gate\."),
    ("shared", r"shared_expert"),
    ("qkv", r"qkv|c_attn|query_key_value|in_proj"),
    ("q", r"q_proj|\bwq\b|\bquery\b|\bq\b"),
    ("k", r"k_proj|\bwk\b|\bkey\b|\bk\b"),
    ("v", r"v_proj|\bwv\b|\bvalue\b|\bv\b"),
    ("o", r"o_proj|\bwo\b|out_proj|attn\.c_proj|attention\.dense\b|attn\.proj\b"),
    ("gate_up", r"gate_up"),
    ("gate", r"gate_proj|\bw1\b|\bw_gate\b"),
    ("up", r"up_proj|\bw3\b|\bw_up\b"),
    ("down", r"down_proj|\bw2\b|\bw_down\b|mlp\.c_proj|fc2|4h_to_h|mlp\.proj\b|down\b"),
    ("plain_up", r"c_fc|fc1|h_to_4h|\bfc\b|\bup\b"),
)


def _map_of(name: str) -> str:
    return next((kind for kind, words in _MAPS if re.search(words, name)), "")


def _model_keys(seen: ModelReading, unread: List[str]) -> Keys:
    blocks = seen["blocks"]
    if not blocks:
        unread.append("the blocks: the model has no list of modules of one class; the profile has one block")
        return {"model.kind": "decoder", "model.layers": 1, **_outside_keys(seen, None, unread)}
    inside = [_of_block(seen, block) for block in blocks]
    shapes = Counter(json.dumps({name: p["shape"] for name, p in block.items()}) for block in inside)
    if len(shapes) > 1:
        unread.append(f"the {len(blocks)} blocks are of {len(shapes)} kinds; in the profile all are as the most common one")
    common = json.loads(shapes.most_common(1)[0][0])
    if seen["linear_blocks"] and not seen["embeddings"]:
        return _mlp_keys(inside, unread)
    keys: Keys = {"model.kind": "decoder", "model.layers": len(blocks)}
    block = _block_keys(common, seen, unread)
    if block:
        return {**keys, **block, **_outside_keys(seen, block["model.width"], unread)}
    outside = _outside_keys(seen, None, unread)
    elements = sum(_numel({"shape": shape}) for shape in common.values())
    width = max(8, outside.get("model.width", 64) // 8 * 8)
    ffn = max(1, (elements - 4 * width * width) // (3 * width))
    unread.append(f"the blocks are not those of a decoder that is known here; in the profile they have one head, and "
                  f"ffn_width so that a block has about as many elements ({elements:,})")
    return {**keys, **outside, "model.width": width, "model.heads": 1, "model.kv_heads": 1, "model.ffn_width": ffn}


def _of_block(seen: ModelReading, block: str) -> Dict[str, Any]:
    return {name[len(block) + 1:]: p for name, p in seen["parameters"].items() if name.startswith(block + ".")}


def _mlp_keys(blocks: List[Dict[str, Any]], unread: List[str]) -> Keys:
    weights = [next(p["shape"] for name, p in block.items() if len(p["shape"]) == 2) for block in blocks]
    if any(len(p["shape"]) != 2 for block in blocks for p in block.values()):
        unread.append("biases of the linear layers")
    return {"model.kind": "mlp", "model.layers": len(weights), "model.width": weights[0][0], "model.in_features": weights[0][1],
            "model.out_features": weights[-1][0]}


def _block_keys(shapes: Mapping[str, List[int]], seen: ModelReading, unread: List[str]) -> Keys:
    """Of a decoder's block by the shapes of its parameters; empty for any other."""
    maps: Dict[str, List[int]] = {}
    biases = set()
    unknown: List[str] = []
    for name, shape in shapes.items():
        kind = _map_of(name)
        if name.endswith("bias") or (kind not in ("norm", "qk_norm", "sinks") and len(shape) == 1):
            biases.add(kind)
        elif kind == "shared":
            unknown.append(f"{name} {shape} of each block: a shared expert")
        elif not kind:
            unknown.append(f"{name} {shape} of each block")
        else:
            maps.setdefault(kind, shape)
    width = _width(seen, maps)
    if "o" not in maps or not ("qkv" in maps or {"q", "k", "v"} <= maps.keys()) or "down" not in maps:
        return {}
    unread += unknown
    other = lambda shape: shape[0] if shape[-1] == width else shape[-1]  # transposed in GPT-2  # noqa: E731
    queries = other(maps["o"])
    facts = seen["facts"]
    heads = facts.get("heads") or (queries // facts["head_dim"] if facts.get("head_dim") else 0)
    if not heads:
        heads = max(1, queries // 128)
        unread.append(f"the number of heads: the profile has {heads}")
    head_dim = max(1, queries // heads)
    kv = (other(maps["qkv"]) - queries) // 2 if "qkv" in maps else other(maps["k"])
    experts = maps["down"][0] if len(maps["down"]) == 3 else 0
    inner = [size for size in maps["down"][-2:] if size != width] or [width]
    gated = bool({"gate", "gate_up"} & maps.keys())
    keys: Keys = {"model.width": width, "model.heads": heads, "model.kv_heads": max(1, kv // head_dim), "model.ffn_width": inner[0]}
    keys.update({
        **({"model.head_dim": head_dim} if head_dim * heads != width else {}),
        **({} if gated else {"model.feed_forward": "plain"}),
        **({"model.norm": "layer"} if "norm" in biases else {}),
        **({"model.bias": True} if biases & {"q", "k", "v", "qkv", "o", "down", "plain_up"} else {}),
        **({"model.qk_norm": True} if "qk_norm" in maps else {}),
        **({"model.attention_sinks": True} if "sinks" in maps else {}),
        **({"model.fused_projections": True} if "qkv" in maps and ("gate_up" in maps or not gated) else {}),
        **({"model.experts": experts, "model.active_experts": int(facts.get("active_experts", 1))} if experts else {}),
        **({"model.rope_theta": float(facts["rope_theta"])} if "rope_theta" in facts else {}),
        **({"model.norm_epsilon": facts["norm_epsilon"]} if "norm_epsilon" in facts else {}),
    })
    if "qkv" in maps and gated and "gate_up" not in maps:
        unread.append("queries, keys and values are one parameter, gate and up are two; in the profile all are apart")
    keys.update(_window_keys(facts, len(seen["blocks"]), unread))
    return keys


def _window_keys(facts: Mapping[str, Any], layers: int, unread: List[str]) -> Keys:
    kinds = facts.get("layer_types")
    if not facts.get("attention_window") or kinds is None or "sliding_attention" not in kinds:
        return {}
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    every = full[0] + 1 if full else 0
    if full != list(range(every - 1, layers, every)) if every else False:
        unread.append("which blocks attend to all tokens")
        return {}
    return {"model.attention_window": int(facts["attention_window"]), **({"model.full_attention_every": every} if every else {})}


def _width(seen: ModelReading, maps: Mapping[str, List[int]]) -> int:
    for name in seen["embeddings"]:
        if name in seen["parameters"]:
            return int(seen["parameters"][name]["shape"][1])
    return int(maps["o"][0]) if "o" in maps else 0


def _outside_keys(seen: ModelReading, width: Optional[int], unread: List[str]) -> Keys:
    """Embedding, head and table of positions."""
    tables = {name: seen["parameters"][name]["shape"] for name in seen["embeddings"] if name in seen["parameters"]}
    if not tables:
        return {}
    positions = [name for name in tables if re.search(r"pos|wpe", name)]
    words = [name for name in tables if name not in positions]
    keys: Keys = {}
    if words:
        vocab, columns = tables[words[0]]
        keys["model.vocab"] = max(_SMALLEST_VOCABULARY, vocab)
        if vocab < _SMALLEST_VOCABULARY:
            unread.append(f"a vocabulary of {vocab}: the profile has {_SMALLEST_VOCABULARY}, the fewest there are")
        keys["model.tied_head"] = bool(seen["head"]) and seen["head"] in tables
        if width is None:
            keys["model.width"] = columns
    if positions:
        keys["model.learned_positions"] = tables[positions[0]][0]
    unread += [f"{name} {tables[name]}" for name in [*words[1:], *positions[1:]]]
    return keys


def _checkpoint_keys(seen: ModelReading, unread: List[str]) -> Keys:
    blocks, done = seen["blocks"], seen["checkpointed"]
    if not done:
        return {}
    keys: Keys = {"fsdp.activation_checkpointing": True}
    every = next((n for n in range(1, len(blocks) + 1) if blocks[::n] == done), None)
    if every is None:
        unread.append(f"{len(done)} of {len(blocks)} blocks are checkpointed, in the profile all")
    elif every > 1:
        keys["fsdp.checkpoint_every"] = every
    return keys


def _optimizer_keys(optimizer: Optional[Mapping[str, Any]], unread: List[str]) -> Keys:
    if optimizer is None:
        return {}
    name = optimizer["class"]
    keys: Keys = {"train.learning_rate": float(optimizer.get("lr", 1e-3)), "train.weight_decay": float(optimizer.get("weight_decay", 0))}
    if name in ("AdamW", "Adam"):
        beta1, beta2 = optimizer.get("betas", (0.9, 0.999))
        keys.update({"train.optimizer": "adamw", "train.beta1": beta1, "train.beta2": beta2, "train.epsilon": optimizer.get("eps", 1e-8)})
        if optimizer.get("fused"):
            keys["simulate.fused_optimizer"] = True
    elif name == "SGD":
        keys["train.optimizer"] = "sgd"
        if optimizer.get("momentum"):
            unread.append("SGD's momentum")
    else:
        unread.append(f"the optimizer {name}; the profile has its default")
        return {}
    if optimizer["groups"] > 1:
        unread.append(f"the optimizer's {optimizer['groups']} groups of parameters; the profile has the first one's values for all")
    return keys


# -- how it is sharded --------------------------------------------------------------------------------------------------


@dataclass
class _Units:
    """Those beside the root, in forward order, as a profile can have them."""

    root: Mapping[str, Any]
    others: List[Mapping[str, Any]]
    keys: Keys


def _units(seen: ModelReading, unread: List[str]) -> _Units:
    """What fsdp.wrap makes the same units."""
    by_name = {unit["name"]: unit for unit in seen["units"]}
    root = by_name.get("", {"name": "", "parameters": []})
    if "" not in by_name:
        unread.append("the root: it is no unit itself; the profile has one")
    tails, wraps, others = [], [], []
    keys: Keys = {}
    for unit in seen["units"]:
        if unit["name"] == "":
            continue
        owned = set(unit["parameters"])
        blocks = [b for b in seen["blocks"] if any(name.startswith(b + ".") for name in owned)]
        whole = [b for b in blocks if all(name in owned for name in seen["parameters"] if name.startswith(b + "."))]
        if blocks and whole == blocks:
            wraps.append(len(blocks))
            others.append(unit)
        elif blocks:
            unread.append(f"unit {unit['name']!r} is a part of a block; in the profile it is not a unit")
        elif not owned:
            unread.append(f"unit {unit['name']!r} has no parameters")
        elif not owned & set(seen["embeddings"]) and (not seen["head"] or seen["head"] in owned):
            tails.append(unit)
        else:
            unread.append(f"unit {unit['name']!r} ({len(owned)} parameters) is a unit of its own; in the profile its parameters are the root's")
    covered = sum(wraps)
    if not wraps:
        keys["fsdp.wrap"] = "model"
    elif max(wraps) == 1:
        keys["fsdp.wrap"] = "block"
    else:
        most = wraps[0]
        keys["fsdp.wrap"] = f"blocks:{most}"
        if any(count != most for count in wraps[:-1]) or wraps[-1] > most:
            unread.append(f"units of {', '.join(map(str, wraps))} blocks; the profile's have {most}")
    if wraps and covered < len(seen["blocks"]):
        unread.append(f"{len(seen['blocks']) - covered} of {len(seen['blocks'])} blocks are in no unit of their own; in the profile all are")
    if len(tails) > 1:
        unread.append("units after the blocks: " + ", ".join(repr(unit["name"]) for unit in tails) + "; the profile has one")
    if tails:
        keys["fsdp.head_unit"] = True
        others.append(tails[-1])
    return _Units(root, others, keys)


def _alike(units: Sequence[Mapping[str, Any]], key: str, what: str, unread: List[str]) -> Any:
    """The value that most units have; what others have is not read."""
    values = [unit[key] for unit in units if key in unit]
    if not values:
        return None
    value, count = Counter(map(json.dumps, values)).most_common(1)[0]
    if count < len(values):
        unread.append(f"{what} is not the same in all units; the profile has {value} for all")
    return json.loads(value)


def _dtype_keys(param: Optional[str], reduce: Optional[str], seen: ModelReading, unread: List[str]) -> Keys:
    stored = {p["dtype"] for p in seen["parameters"].values()}
    own = "bf16" if stored == {"bfloat16"} else "f32"
    if stored - {"float32"}:
        unread.append(f"parameters are stored as {', '.join(sorted(stored))}; the profile's masters are fp32")
    compute = param or own
    exchanged = reduce or param or own
    keys = {}
    for key, value in (("fsdp.param_dtype", compute), ("fsdp.reduce_dtype", exchanged)):
        if value not in ("f32", "bf16"):
            unread.append(f"{key} {value}; the profile has bf16, which is as large")
            value = "bf16"
        keys[key] = "fp32" if value == "f32" else value
    return keys


def _accumulation(seen: ModelReading, unread: List[str]) -> None:
    if any(not unit.get("reduces", True) or not unit.get("all_reduces", True) or not unit.get("reshard_after_backward", True)
           for unit in seen["units"]) or not seen["settings"].get("last_backward", True):
        unread.append("the model is between two microbatches: what is reduced now is not its rule. Say train.accumulate and "
                      "train.accumulate_mode with set=")


def _fsdp2_keys(seen: ModelReading, unread: List[str]) -> Keys:
    units = _units(seen, unread)
    root, others = units.root, units.others
    every = [unit for unit in [root, *others] if "reshard" in unit]
    mesh = seen["mesh"]
    keys: Keys = {"fsdp.preset": "fsdp2", "fsdp.strategy": "hybrid_shard" if mesh.get("hybrid") else "full_shard", **units.keys}
    keys["fsdp.reshard_after_forward"] = _reshard(root, others, unread)
    keys.update(_dtype_keys(_alike(every, "param_dtype", "param_dtype", unread), _alike(every, "reduce_dtype", "reduce_dtype", unread),
                            seen, unread))
    if _alike(every, "offload", "the offload policy", unread):
        keys["fsdp.cpu_offload"] = "all"
    buffers = _alike(every, "reduce_scatter_buffers", "the number of reduce-scatter inputs", unread)
    if buffers is not None and buffers != 1:
        keys["fsdp.reduce_scatter_buffers"] = buffers
    if _alike(every, "separate_reduce_scatter", "the communicator of reduce-scatters", unread):
        keys["fsdp.separate_reduce_scatter_comm"] = True
    if _alike(every, "symmetric_memory", "the memory of collectives", unread):
        keys["nccl.register_buffers"] = True
    if _alike(every, "sum", "how gradients are scaled", unread):
        keys["fsdp.gradient_scaling"] = "sum"
    factor = _alike(every, "divide_factor", "the divide factor", unread)
    if factor:
        keys["fsdp.gradient_divide_factor"] = float(factor)
    if _alike(every, "unshard_in_backward", "whether backward gathers", unread) is False:
        unread.append("set_unshard_in_backward(False)")
    _accumulation(seen, unread)
    keys.update(_forward_lists(root, others, unread))
    keys.update(_backward_lists(root, others, unread))
    return keys


def _reshard(root: Mapping[str, Any], others: Sequence[Mapping[str, Any]], unread: List[str]) -> Any:
    """The root is kept if PyTorch decides, freed if it was told so; a head that is kept is a choice of its own."""
    blocks = _alike(others, "reshard", "reshard_after_forward", unread)
    mine = root.get("reshard")
    if blocks is None:
        return "auto" if mine is None else mine
    if mine in ("auto", None):
        return blocks if blocks is not True else "auto"
    if blocks is True and mine is False:
        return "auto"
    if mine != blocks:
        unread.append(f"reshard_after_forward of the root is {mine}; the profile has {blocks} for all")
    return blocks


def _forward_lists(root: Mapping[str, Any], others: Sequence[Mapping[str, Any]], unread: List[str]) -> Keys:
    lists = [unit.get("forward", []) for unit in others]
    if not any(lists) and not root.get("forward"):
        return {}
    names = [unit["name"] for unit in others]
    depth = max([1, *map(len, lists)])
    if lists != [names[i + 1:i + 1 + depth] for i in range(len(names))]:
        unread.append("the lists of modules to prefetch in forward are not the next N units of each")
        return {}
    if root.get("forward") != names[:1]:
        unread.append(f"the root prefetches {len(root.get('forward', []))} units in forward; the profile's one")
    return {"fsdp.forward_prefetch": depth}


def _backward_lists(root: Mapping[str, Any], others: Sequence[Mapping[str, Any]], unread: List[str]) -> Keys:
    """A unit whose list is itself prefetches nothing; one without a list prefetches the unit before it."""
    names = [unit["name"] for unit in others]
    lists = [unit.get("backward", []) for unit in others]
    keys: Keys = {}
    own = root.get("backward", [])
    if own == [""]:
        keys["fsdp.root_prefetches_backward"] = False
    elif own:
        unread.append(f"the root prefetches {len(own)} units in backward; the profile's one")
    if not any(lists):
        return keys
    if lists == [[name] for name in names]:
        return {"fsdp.backward_prefetch": "none"} if own == [""] else {**keys, "fsdp.backward_prefetch": "none"}
    depth = max(map(len, lists))
    if lists != [names[:i][::-1][:depth] for i in range(len(names))]:
        unread.append("the lists of modules to prefetch in backward are not the N units before each")
        return keys
    return {**keys, "fsdp.backward_prefetch": depth}


_STRATEGIES = {"FULL_SHARD": "full_shard", "SHARD_GRAD_OP": "shard_grad_op", "NO_SHARD": "no_shard", "HYBRID_SHARD": "hybrid_shard",
               "_HYBRID_SHARD_ZERO2": "hybrid_shard_grad_op"}


def _fsdp1_keys(seen: ModelReading, unread: List[str]) -> Keys:
    units = _units(seen, unread)
    every = [units.root, *units.others]
    keys: Keys = {"fsdp.preset": "fsdp1", **units.keys,
                  "fsdp.strategy": _STRATEGIES[_alike(every, "strategy", "the sharding strategy", unread)]}
    if keys["fsdp.strategy"].startswith("hybrid"):
        keys.update({"mesh.shard": seen["mesh"]["shard"], "mesh.replicate": seen["mesh"]["replicate"]})
    before = _alike(every, "backward_prefetch", "backward_prefetch", unread)
    keys["fsdp.backward_prefetch"] = {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", None: "none"}[before]
    if _alike(every, "forward_prefetch", "forward_prefetch", unread):
        keys["fsdp.forward_prefetch"] = 1
    limit = units.root.get("limit")  # the root's queue is everyone's
    keys["fsdp.all_gather_limit"] = "unlimited" if limit is None else f"fsdp1_queue:{limit}"
    keys.update(_dtype_keys(_alike(every, "param_dtype", "param_dtype", unread), _alike(every, "reduce_dtype", "reduce_dtype", unread),
                            seen, unread))
    if _alike(every, "offload", "the offload policy", unread):
        keys["fsdp.cpu_offload"] = "all"
    _accumulation(seen, unread)
    return keys


def _ddp_keys(seen: ModelReading, unread: List[str]) -> Keys:
    keys: Keys = {"fsdp.preset": "fsdp2", "fsdp.strategy": "no_shard", **_dtype_keys(None, None, seen, unread)}
    bucket = seen["settings"].get("bucket_bytes")
    if bucket:
        keys["fsdp.reduce_bucket"] = bucket // (2 if keys["fsdp.param_dtype"] == "bf16" else 4)
        unread.append("DistributedDataParallel's first bucket, which is smaller than the others")
    if not seen["settings"].get("reduces", True):
        unread.append("the model is inside no_sync(). Say train.accumulate and train.accumulate_mode with set=")
    return keys


def _no_keys(seen: ModelReading, unread: List[str]) -> Keys:
    return _dtype_keys(None, None, seen, unread)
