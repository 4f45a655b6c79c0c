"""Importers share this: their register, and the settings of a file, which are taken one by one and become a profile."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from .settings import Refused, Scalar, Settings, parse_settings, tomllib

DATA = tomllib.loads((Path(__file__).parent / "systems.toml").read_text())
_MATTERS, _DECIDES, _OF_NO_STEP = (re.compile(DATA[what], re.I) for what in ("matters", "decides", "of_no_step"))
_IGNORED = frozenset((Path(__file__).parent / "ignored.txt").read_text().split())
ADAM = {"train.learning_rate": "lr", "train.beta1": "betas.0", "train.beta2": "betas.1", "train.epsilon": "eps", "train.weight_decay": "weight_decay"}
_REAL = {*ADAM, "train.clip_norm", "model.rope_theta", "model.norm_epsilon", "model.lora_alpha"}
_LOW = {"fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "bfloat16": "bf16", "fp8": "bf16"}
_WIDE = ("fp32", "float32", "float", "tf32", "full", "no", "32", "32-true", "null")
OFF = ("", "none", "false", "no", "0", "0.0")


@dataclass
class Import:
    """keys: of the profile; matters: what a step may depend on and no key says; rest: other settings; missing: keys that have
    to be given, with a sentence each; unknown: settings that decide and that only a run of the script could know; model, dtype: the
    model's name, and what its weights are stored in. ranks: if they were told; others: of which systems all files are."""

    systems: List[str] = field(default_factory=list)
    keys: Dict[str, Scalar] = field(default_factory=dict)
    matters: List[str] = field(default_factory=list)
    rest: List[str] = field(default_factory=list)
    missing: Dict[str, str] = field(default_factory=dict)
    unknown: List[str] = field(default_factory=list)
    model: str = ""
    dtype: str = ""
    ranks: Optional[int] = None
    others: Set[str] = field(default_factory=set)


def bare_name(name: str) -> str:
    word = re.sub(r"\.(yaml|toml)$", "", name.rstrip("/").split("/")[-1].lower()).replace("_", "-")
    return re.sub(r"(-(instruct|base|hf|chat|it|bf16|\d{4}|v0\.1|unsloth|nf4|bnb|dynamic))+$", "", word)


def shown(value: Scalar) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)


def _number(value: Scalar, whole: bool = False) -> float:
    if isinstance(value, bool) or whole and float(value) != math.floor(float(value)):
        raise ValueError
    return float(value) if not whole else value if isinstance(value, int) else int(float(value))


_BOOLEANS = {word: word in ("true", "yes", "1", "on") for word in ("true", "yes", "1", "on", "false", "no", "0", "off")}
_KINDS = {"boolean": (lambda value: _BOOLEANS[shown(value).lower()], None), "flag": (lambda value: _BOOLEANS[shown(value).lower()], False),
          "number": (_number, None), "integer": (lambda value: _number(value, True), None), "size": (lambda value: _number(value, True) or 1, 1)}


class Source:
    """The settings of one file. What has not been taken at the end has no key here."""

    def __init__(self, settings: Settings, into: Import) -> None:
        self.settings, self.into, self.path = settings, into, settings.path
        self.values, self.keys, self.has, self.ignored = settings.values, into.keys, settings.has, []  # type: Any, Any, Any, List[str]

    def facts(self, system: str, **tables: str) -> Any:
        """The plain rows that systems.toml has of a system: keys that mean the same, values where a flag is set, flags that no key
        has, what is ignored. Returns what it names otherwise, by kind; a size is 1 where it is not said. tables: {c} in names."""
        rows = DATA["systems"].get(system, {})
        self.ignored += rows.get("ignore", "").split()
        for prefix in rows.get("lift", "").split():
            self.lift(prefix)
        for key, value in rows.get("always", {}).items():
            self.keys[key] = value
        found = SimpleNamespace(shard=None, replicate=1, tensor=1, context=1, expert=1, pipeline=1, sequence=False, context_name="")
        for kind in (*_KINDS, "text", "list"):
            for name, *names in (row.format(**tables).split() for row in rows.get(kind, [])):
                setattr(found, name, getattr(self, kind)(*names))
                found.context_name = names[0] if name == "context" else found.context_name
                self.lost(f"{names[0] if names else name} = {found.pipeline}: the ranks of one stage, with all layers, are in the profile",
                          name == "pipeline" and found.pipeline > 1)
        same = [f"{key} {rows['adam']}{name}" for key, name in ADAM.items()] if "adam" in rows else []
        for key, *names in (row.format(**tables).split() for row in same + rows.get("same", [])):
            self.put(key, (self.number if key in _REAL else self.integer)(*names))
        for state in (True, False):
            for names, (key, value) in rows.get("on" if state else "off", {}).items():
                self.put(key, value if self.boolean(*names.format(**tables).split()) is state else None)
        for name, sentence in rows.get("lost", {}).items():
            told = self.text(name)
            self.lost(sentence.format(told), told.lower() not in OFF)
        for row, read, put in (("model", self.text, self.name_model), ("optimizer", self.text, self.put_optimizer), ("clip", self.number, self.put_clip)):
            if row in rows:
                put(read(*rows[row].format(**tables).split()))
        self.put_dtypes(*(self.text(*names.split()) for names in rows.get("dtypes", [""])))
        return found

    def take(self, *names: str) -> Optional[Scalar]:
        """The first that is there; all of them count as read."""
        found = [self.values.pop(name) for name in names if name in self.values]
        return found[0] if found else None

    def _as(self, kind: str, *names: str) -> Any:
        name, value = next((name for name in names if name in self.values), ""), self.take(*names)
        convert, otherwise = _KINDS[kind]
        if value is None or value in ("none", "null", "None", ""):
            return otherwise
        try:
            return convert(value)
        except (ValueError, TypeError, OverflowError, KeyError):
            only_a_run = "$" in shown(value) and _DECIDES.search(name)
            (self.into.unknown.append if only_a_run else self.lost)(f"{name} = {shown(value)}")
            return otherwise

    boolean, flag, number = partialmethod(_as, "boolean"), partialmethod(_as, "flag"), partialmethod(_as, "number")
    integer, size = partialmethod(_as, "integer"), partialmethod(_as, "size")

    def text(self, *names: str, default: str = "") -> str:
        value = self.take(*names)
        return default if value is None else shown(value)

    def list(self, *names: str) -> List[str]:
        """The elements of the first that there are; a single value is the only one, and so are words with commas between."""
        found: List[str] = []
        for name in names:
            value = self.take(name)
            one = [word.strip(" '\"") for word in shown(value).strip("[]").split(",") if word.strip()] if value is not None else []
            while value is None and f"{name}.{len(one)}" in self.values:
                one.append(shown(self.values.pop(f"{name}.{len(one)}")))
            found = found or one
        return found

    def put(self, key: str, value: Any) -> None:
        if value is not None:
            self.keys[key] = value

    def puts(self, table: str, **keys: Any) -> None:
        for key, value in keys.items():
            self.put(f"{table}.{key}", value)

    def put_recomputation(self, mode: str, every: Optional[int] = None) -> None:
        """Of whole blocks, of some of them, or of every second matrix product."""
        if mode not in ("", "none", "false"):
            every = every if every and every > 1 else None
            self.puts("fsdp", activation_checkpointing=True, checkpoint_every=every,
                      checkpoint_keeps="every_second_product" if mode == "selective" and not every else None)

    def lost(self, sentence: str, when: Any = True) -> None:
        if when:
            self.into.matters.append(sentence)

    def lift(self, prefix: str) -> None:
        """Settings below `prefix` lose it, unless there is one of the same name already."""
        for name in [name for name in self.values if name.startswith(prefix)]:
            self.values.setdefault(name[len(prefix):], self.values.pop(name))

    def list_the_rest(self) -> None:
        """What nobody has taken, but for what changes no step. A name with a dot at its end is a table."""
        tables = ("\0", *(name for name in self.ignored if name.endswith(".")))
        for name, value in sorted(self.values.items()):
            parts = name.split(".")
            if name in self.ignored or name.startswith(tables) or name in _IGNORED or parts[-1] == "_target_" or any(
                    ".".join(parts[:i]) + "." in _IGNORED for i in range(1, len(parts))):
                continue
            off = value in (False, "", "none", "None", "null") or (value == 1 and value is not True and re.search("size$|degree$", name))
            tells = _MATTERS.search(name) and not _OF_NO_STEP.search(name) and not off
            (self.into.matters if tells else self.into.rest).append(f"{name} = {shown(value)}")
        self.values.clear()

    # -- what several systems say alike

    def name_model(self, name: str) -> None:
        """What a file calls its model, or --model. Of published names
        ("meta-llama/Meta-Llama-3.1-8B-Instruct" is llama3-8b) it is known what the weights are stored in, too."""
        if not self.into.model and "model.layers" not in self.keys:
            named = ((re.fullmatch(pattern, bare_name(name)), preset, dtype) for pattern, preset, dtype in DATA["models"])
            match, preset, dtype = next((one for one in named if one[0]), (None, "", ""))
            self.into.model, self.into.dtype = name, self.into.dtype or dtype
            self.put("model.preset", match and match.expand(preset))

    def put_dtypes(self, param: str, reduce: str = "") -> None:
        for key, word in (("fsdp.param_dtype", param), ("fsdp.reduce_dtype", reduce)):
            bare = word.lower().replace("torch.", "")
            low = "fp32" if bare in _WIDE else _LOW.get(bare, "")
            self.lost(f"{key} = fp16: bf16, which is as large, stands for it", low == "fp16")
            self.put(key, ("fp32" if low == "fp32" else "bf16") if low else None)
            if word and not low:
                self.into.missing[key] = f"{word} is no dtype that is known: --set {key}=bf16 (or fp32)"

    def ask_dtype(self, why: str, reduce: str = "") -> None:
        """Where the file leaves the dtype to others: what they say, or as the weights are stored, or a question; never fp32 by silence."""
        if "fsdp.param_dtype" in self.keys:
            return
        if self.into.dtype in _LOW:
            self.puts("fsdp", param_dtype="bf16", reduce_dtype=reduce or "bf16")
            return self.lost(f"{why}: bf16 is taken, since the model's weights are {self.into.dtype}")
        self.into.missing["fsdp.param_dtype"] = f"{why}: --set fsdp.param_dtype=bf16 (or fp32)"
        self.into.missing["fsdp.reduce_dtype"] = f"what gradients are reduced in: --set fsdp.reduce_dtype={reduce or 'bf16'} (or fp32)"

    def put_batch(self, whole: Optional[int], local: Optional[int], ranks: Optional[int]) -> None:
        """Microbatches of a global batch, if the ranks that see different samples are known."""
        self.put("train.batch_per_rank", local)
        if whole and whole > 0 and local and ranks and local > 0 and ranks > 0 and whole % (local * ranks) == 0:
            self.put("train.accumulate", whole // (local * ranks))
        elif whole and whole > 0:
            self.lost(f"a global batch of {whole}: how many microbatches it is depends on the " + (
                "ranks (--ranks)" if not ranks else "sequences of one" if not local else f"ranks: it is no multiple of {local} on each of {ranks}"))

    def launched(self) -> Optional[int]:
        """Ranks: --ranks, or those that a launcher starts on all nodes."""
        each, nodes = self.integer("nproc_per_node", "nproc-per-node"), self.size("nnodes")
        return self.into.ranks or (each and each * nodes)

    def put_context(self, name: str, ranks: int, against: str, heads: bool = False) -> int:
        """Returns how many ranks split sequences: one if the file has what that does not go with. heads: by exchanging heads (Ulysses)."""
        split = ranks if ranks > 1 and not against else 1
        self.put("mesh.context", split if split > 1 else None)
        self.lost(f"{name} = {ranks}: mesh.context does not go with {against}", ranks > 1 and against)
        self.lost(f"{name} = {ranks}: heads are exchanged there; gathers of keys and values stand for it", heads and split > 1)
        return split

    def put_groups(self, f: Any) -> None:
        """Of these facts: ranks that split layers, and experts."""
        self.puts("mesh", tensor=f.tensor if f.tensor > 1 else None, expert=f.expert if f.expert > 1 else None,
                  sequence_parallel=True if f.sequence and f.tensor > 1 else None)

    def put_mesh(self, ranks: Optional[int], f: Any, frees: bool = True, heads: bool = False) -> Optional[int]:
        """FSDP2's mesh of these facts, replicate x shard x context x tensor ranks; of these shard x context share a unit. Returns how many
        ranks see different samples, if that is known; with a batch in the facts, microbatches follow."""
        self.put_groups(f)
        lora, expert = "model.lora_rank" in self.keys, "mesh.expert" in self.keys
        self.put_context(f.context_name, f.context, "mesh.tensor" if f.tensor > 1 else "model.lora_rank" if lora else "mesh.expert" if expert else "", heads)
        shard, replicate, ranks = f.shard, f.replicate, ranks and ranks // f.pipeline
        if not shard or shard < 0:
            shard = ranks // (replicate * f.tensor * f.context) if ranks else None
        total = shard and replicate * shard * f.tensor * f.context
        self.lost(f"{ranks} ranks: the groups in the file make {total}, which are in the profile", ranks and total and ranks != total)
        splits = shard is None or shard * f.context > 1
        self.put("mesh.ranks", total)
        self.put_strategy(frees, splits, replicate if splits else 1, shard and shard * f.context)
        data = replicate * shard if shard else None
        if hasattr(f, "batch"):
            self.put_batch(f.batch, f.local, data)
        return data

    def put_strategy(self, frees: bool, splits: bool = True, replicate: int = 1, shard: Optional[int] = None) -> None:
        """Of units: whether they are freed after forward, split at all, by how many ranks, and how often that is repeated."""
        hybrid = replicate > 1 and splits
        word = ("hybrid_shard" if hybrid else "full_shard" if frees else "shard_grad_op") + "_grad_op" * (hybrid and not frees)
        self.put("fsdp.strategy", word if splits else "no_shard")
        if hybrid:
            self.puts("mesh", replicate=replicate, shard=shard)

    def put_lora(self, rank: Optional[int], alpha: Optional[float], targets: Sequence[str] = ()) -> None:
        """Adapters of peft on all matrix products of a block, or what differs from that."""
        if rank:
            self.puts("model", lora_rank=rank, lora_alpha=alpha)
            every = {"all", "all-linear", "*", "*_proj"} & set(targets) or set(targets) >= set(DATA["products"].split())
            said = ", ".join(targets) or "peft's choice for the model"
            self.lost(f"target_modules = {said}: here all matrix products of a block have adapters", not every)

    def put_optimizer(self, name: str) -> None:
        """AdamW or SGD; AdamW stands for others, and that is said."""
        word = name.split(".")[-1]
        if name or "train.optimizer" not in self.keys:
            self.keys["train.optimizer"] = "sgd" if word.lower() == "sgd" else "adamw"
        self.lost(f"optimizer {word}: AdamW stands for it", word.lower() not in ("", "sgd", *DATA["adamw"].split()))

    def put_clip(self, norm: Optional[float]) -> None:
        self.put("train.clip_norm", 1.0 if norm is None else norm if math.isfinite(norm) else 0.0)


@dataclass
class Importer:
    """An importer of one system. As a decorator it registers the reader, the one line that a new system needs."""

    system: str
    files: str
    # If two importers recognise a file, the one with the higher priority reads it. Files are read from high to low priority, since a
    # later one may leave settings to an earlier one: the model first, then the trainer, then Accelerate and DeepSpeed.
    priority: int
    looks_like: Callable[[Settings], Any]

    def __call__(self, read: Callable[[Source], None]) -> Callable[[Source], None]:
        self.read = read
        IMPORTERS.append(self)
        return read


IMPORTERS: List[Importer] = []


def list_importers() -> List[str]:
    return [f"{each.system}: {each.files}" for each in sorted(IMPORTERS, key=lambda each: each.system.lower())]


def find_importer(settings: Settings) -> Importer:
    """The one whose file it is. Raises Refused where that is none, or not certain."""
    able = [each for each in IMPORTERS if each.looks_like(settings)]
    best = [each for each in able if each.priority == max(each.priority for each in able)]
    if len(best) > 1:
        raise Refused(f"{settings.path}: it may be of {' or of '.join(each.system for each in best)}.")
    if not best:
        raise Refused(f"{settings.path}: of no system that can be imported. Those are: {'; '.join(list_importers())}.")
    return best[0]


def make_import(files: Iterable[Tuple[str, str]], ranks: Optional[int] = None, model: str = "") -> Import:
    """Of (text, path); later ones win. Raises Refused."""
    read = [(find_importer(settings), settings) for settings in (parse_settings(text, path) for text, path in files)]
    found = Import(ranks=ranks, others={each.system for each, _ in read})
    if model:
        Source(Settings("json"), found).name_model(model)
        found.keys.setdefault("model.preset", model)
    for each, settings in sorted(read, key=lambda pair: -pair[0].priority):
        source = Source(settings, found)
        found.systems.append(each.system)
        each.read(source)
        source.list_the_rest()
    found.missing.setdefault("mesh.ranks", "the number of ranks: --ranks")
    if ranks:
        found.keys.setdefault("mesh.ranks", ranks)
    return found
