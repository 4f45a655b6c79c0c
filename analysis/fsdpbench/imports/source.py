"""What importers share: their register, and the settings of a file, which are taken one by one and become a profile."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from .settings import Refused, Scalar, Settings

# Names of settings that may change a step, where nothing here reads them; and tables of which none does.
_MATTERS = re.compile(
    r"parallel|_size$|degree|shard|zero|precision|dtype|fp8|fp16|bf16|4bit|8bit|batch|accum|checkpointing|recompute|offload|compile|expert|moe|"
    r"lora|quant|overlap|bucket|seq_?len|cutoff|wrap|fsdp|ddp|attention_window|freeze|round_robin|drop_?out|router|bias|packing|optimizer$|optim$", re.I)
_DECIDES = re.compile(r"parallel|layers|hidden|heads|groups|experts|degree|shard|vocab|ffn|zero|(^|\\.|_)(dp|tp|pp|cp|ep)(_size)?$", re.I)
_OF_NO_STEP = re.compile(r"^(data_?set|eval|val|test|wandb|log|save|load|ckpt|checkpoint(s|er)?\.|tokenizer|profil|rollout|reward|ref\.)", re.I)
_IGNORED = frozenset((Path(__file__).parent / "ignored.txt").read_text().split())
ADAM = {"train.learning_rate": "lr", "train.beta1": "betas.0", "train.beta2": "betas.1", "train.epsilon": "eps", "train.weight_decay": "weight_decay"}
_REAL = {*ADAM, "train.clip_norm", "model.rope_theta", "model.norm_epsilon", "model.lora_alpha"}
_PEFTS = "peft's choice for the model"
_LOW = {"fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "bfloat16": "bf16", "fp8": "bf16"}
_WIDE = ("fp32", "float32", "float", "tf32", "full", "no", "32", "32-true", "null")


@dataclass
class Known:
    """What files may not say, but their words depend on: ranks, the model's layers, and of which systems the other files are."""

    ranks: Optional[int] = None
    layers: Optional[int] = None
    systems: Set[str] = field(default_factory=set)


@dataclass
class Import:
    """keys: of the profile; matters: what a step may depend on and no key says; rest: other settings; missing: keys that have
    to be given, with a sentence each; unknown: settings that decide and that only a run of the script could know; model, dtype: the
    model's name, and what its weights are stored in."""

    systems: List[str] = field(default_factory=list)
    keys: Dict[str, Scalar] = field(default_factory=dict)
    matters: List[str] = field(default_factory=list)
    rest: List[str] = field(default_factory=list)
    missing: Dict[str, str] = field(default_factory=dict)
    unknown: List[str] = field(default_factory=list)
    model: str = ""
    dtype: str = ""

    @property
    def unread(self) -> List[str]:
        return self.matters + self.rest


def shown(value: Scalar) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)


def _boolean(value: Scalar) -> bool:
    return {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}[shown(value).lower()]


def _number(value: Scalar) -> float:
    if isinstance(value, bool):
        raise ValueError
    return float(value)


def _integer(value: Scalar) -> int:
    real = _number(value)
    if real != math.floor(real):
        raise ValueError
    return value if isinstance(value, int) else int(real)


class Source:
    """The settings of one file. What has not been taken at the end has no key here."""

    def __init__(self, settings: Settings, into: Import, known: Known) -> None:
        self.settings, self.into, self.known, self.path = settings, into, known, settings.path
        self.values, self.keys, self.has = settings.values, into.keys, settings.has

    def take(self, *names: str) -> Optional[Scalar]:
        """The first that is there; all of them count as read."""
        found = [self.values.pop(name) for name in names if name in self.values]
        return found[0] if found else None

    def _as(self, names: Sequence[str], kind: Callable[[Scalar], Any]) -> Any:
        name = next((name for name in names if name in self.values), "")
        value = self.take(*names)
        if value is None or value in ("none", "null", "None", ""):
            return None
        try:
            return kind(value)
        except (ValueError, TypeError, OverflowError, KeyError):
            only_a_run = "$" in shown(value) and _DECIDES.search(name)
            return (self.into.unknown.append if only_a_run else self.lost)(f"{name} = {shown(value)}")

    def text(self, *names: str, default: str = "") -> str:
        value = self.take(*names)
        return default if value is None else shown(value)

    def boolean(self, *names: str) -> Optional[bool]:
        return self._as(names, _boolean)

    def flag(self, *names: str) -> bool:
        return bool(self.boolean(*names))

    def number(self, *names: str) -> Optional[float]:
        return self._as(names, _number)

    def integer(self, *names: str) -> Optional[int]:
        return self._as(names, _integer)

    def size(self, *names: str) -> int:
        """Of a group of ranks: 1 where it is not said."""
        return self.integer(*names) or 1

    def list(self, name: str) -> List[str]:
        """The elements of a list; a single value is the only one, and so are words with commas between."""
        value = self.take(name)
        if value is not None:
            return [word.strip(" '\"") for word in shown(value).strip("[]").split(",") if word.strip()]
        found: List[str] = []
        while f"{name}.{len(found)}" in self.values:
            found.append(shown(self.values.pop(f"{name}.{len(found)}")))
        return found

    def put(self, key: str, value: Any) -> None:
        if value is not None:
            self.keys[key] = value

    def puts(self, table: str, **keys: Any) -> None:
        for key, value in keys.items():
            self.put(f"{table}.{key}", value)

    def copy(self, pairs: Dict[str, str], prefix: str = "") -> None:
        """Numbers that have the same meaning."""
        for key, name in pairs.items():
            self.put(key, (self.number if key in _REAL else self.integer)(prefix + name))

    def on(self, key: str, value: Any, *names: str) -> None:
        """The value for the key where one of the flags is set."""
        if self.flag(*names):
            self.put(key, value)

    def lost(self, sentence: str, when: Any = True) -> None:
        if when:
            self.into.matters.append(sentence)

    def ask(self, key: str, sentence: str) -> None:
        self.into.missing[key] = sentence

    def lift(self, prefix: str) -> None:
        """Settings below `prefix` lose it, unless there is one of the same name already."""
        for name in [name for name in self.values if name.startswith(prefix)]:
            self.values.setdefault(name[len(prefix):], self.values.pop(name))

    def ignore(self, *names: str) -> None:
        """What changes no step: not listed. A name with a dot at its end is a table."""
        for name in [name for name in self.values if name in names or name.startswith(tuple(n for n in names if n.endswith(".")) or ("\0",))]:
            del self.values[name]

    def list_the_rest(self) -> None:
        for name, value in sorted(self.values.items()):
            parts = name.split(".")
            if name in _IGNORED or parts[-1] == "_target_" or any(".".join(parts[:i]) + "." in _IGNORED for i in range(1, len(parts))):
                continue
            off = value in (False, "", "none", "None", "null") or (value == 1 and value is not True and re.search("size$|degree$", name))
            tells = _MATTERS.search(name) and not _OF_NO_STEP.search(name) and not off
            (self.into.matters if tells else self.into.rest).append(f"{name} = {shown(value)}")

    # -- what several systems say alike

    def put_dtypes(self, param: str, reduce: str = "") -> None:
        for key, word in (("fsdp.param_dtype", param), ("fsdp.reduce_dtype", reduce)):
            bare = word.lower().replace("torch.", "")
            low = "fp32" if bare in _WIDE else _LOW.get(bare, "")
            self.lost(f"{key} = fp16: bf16, which is as large, stands for it", low == "fp16")
            self.put(key, ("fp32" if low == "fp32" else "bf16") if low else None)
            if word and not low:
                self.ask(key, f"{word} is no dtype that is known: --set {key}=bf16 (or fp32)")

    def ask_dtype(self, why: str, reduce: str = "") -> None:
        """Where the file leaves the dtype to others: what they say, or as the weights are stored, or a question; never fp32 by silence."""
        if "fsdp.param_dtype" in self.keys:
            return
        if self.into.dtype in _LOW:
            self.puts("fsdp", param_dtype="bf16", reduce_dtype=reduce or "bf16")
            return self.lost(f"{why}: bf16 is taken, since the model's weights are {self.into.dtype}")
        self.ask("fsdp.param_dtype", f"{why}: --set fsdp.param_dtype=bf16 (or fp32)")
        self.ask("fsdp.reduce_dtype", f"what gradients are reduced in: --set fsdp.reduce_dtype={reduce or 'bf16'} (or fp32)")

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
        return self.known.ranks or (each and each * nodes)

    def stages(self, *names: str) -> int:
        """Ranks of a pipeline: one stage's, with all layers, are in a profile."""
        count = self.size(*names)
        self.lost(f"{names[0]} = {count}: the ranks of one stage, with all layers, are in the profile", count > 1)
        return count

    def put_context(self, name: str, ranks: int, against: str) -> int:
        """Ranks that split sequences. `against`: what of the file it does not go with. Returns how many."""
        self.put("mesh.context", ranks if ranks > 1 and not against else None)
        self.lost(f"{name} = {ranks}: mesh.context does not go with {against}", ranks > 1 and against)
        return ranks if ranks > 1 and not against else 1

    def put_groups(self, tensor: int = 1, expert: int = 1) -> None:
        self.puts("mesh", tensor=tensor if tensor > 1 else None, expert=expert if expert > 1 else None)

    def put_mesh(self, ranks: Optional[int], shard: Optional[int], replicate: int = 1, tensor: int = 1, context: int = 1,
                 frees: bool = True, name: str = "context_parallel_size", heads: bool = False) -> Optional[int]:
        """FSDP2's mesh, replicate x shard x context x tensor ranks; of these shard x context share a unit. Returns how many ranks
        see different samples, if that is known. heads: sequences are split by exchanging heads (Ulysses)."""
        self.put_groups(tensor)
        lora, expert = "model.lora_rank" in self.keys, "mesh.expert" in self.keys
        against = "mesh.tensor" if tensor > 1 else "model.lora_rank" if lora else "mesh.expert" if expert else ""
        split = self.put_context(name, context, against)
        self.lost(f"{name} = {context}: heads are exchanged there; gathers of keys and values stand for it", heads and split > 1)
        if not shard or shard < 0:
            shard = ranks // (replicate * tensor * context) if ranks else None
        total = shard and replicate * shard * tensor * context
        self.lost(f"{ranks} ranks: the groups in the file make {total}, which are in the profile", ranks and total and ranks != total)
        self.put("mesh.ranks", total)
        splits = shard is None or shard * context > 1
        hybrid = replicate > 1 and splits
        self.put("fsdp.strategy", ("hybrid_shard" if hybrid else "full_shard" if frees else "shard_grad_op") + "_grad_op" * (hybrid and not frees)
                 if splits else "no_shard")
        if hybrid:
            self.puts("mesh", replicate=replicate, shard=shard and shard * context)
        return replicate * shard if shard else None

    def put_lora(self, rank: Optional[int], alpha: Optional[float], targets: Sequence[str] = ()) -> None:
        """Adapters of peft on all matrix products of a block, or what differs from that."""
        if rank:
            self.puts("model", lora_rank=rank, lora_alpha=alpha)
            every = {"all", "all-linear", "*", "*_proj"} & set(targets) or set(targets) >= {
                "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
            self.lost(f"target_modules = {', '.join(targets) or _PEFTS}: here all matrix products of a block "
                      "have adapters", not every)

    def put_optimizer(self, name: str, *same: str) -> None:
        """AdamW or SGD; AdamW stands for others, and that is said."""
        word = name.lower().split(".")[-1]
        self.put("train.optimizer", "sgd" if word == "sgd" else "adamw")
        self.lost(f"optimizer {name}: AdamW stands for it", word not in ("", "sgd", "adam", "adamw", *same))


@dataclass(frozen=True)
class Importer:
    system: str
    files: str
    priority: int  # of two that take a file for theirs, the higher one has it
    looks_like: Callable[[Settings], bool]
    read: Callable[[Source], None]


IMPORTERS: List[Importer] = []


def importer(system: str, files: str, priority: int, looks_like: Callable[[Settings], bool]) -> Callable[[Callable[[Source], None]], Any]:
    """Registers a reader; the one line that a new system needs. A file of a lower priority is read later, since it may leave
    to the others what they say: a model first, then a trainer's, then Accelerate's and DeepSpeed's."""
    def register(read: Callable[[Source], None]) -> Callable[[Source], None]:
        IMPORTERS.append(Importer(system, files, priority, looks_like, read))
        return read
    return register


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


def make_import(files: Iterable[Tuple[str, str]], known: Optional[Known] = None, model: Optional[str] = None) -> Import:
    """Of (text, path); later ones win. Raises Refused."""
    from . import __path__, models
    from .settings import parse_settings
    for module in pkgutil.iter_modules(__path__):  # each registers its importers
        if module.name != "command":
            importlib.import_module(f"{__package__}.{module.name}")
    known, found = known or Known(), Import()
    read = [(find_importer(settings), settings) for settings in (parse_settings(text, path) for text, path in files)]
    known.systems |= {each.system for each, _ in read}
    if model:
        models.name_model(found, model)
    for each, settings in sorted(read, key=lambda pair: -pair[0].priority):
        found.systems.append(each.system)
        source = Source(settings, found, known)
        each.read(source)
        source.list_the_rest()
    if known.ranks:
        found.keys.setdefault("mesh.ranks", known.ranks)
    found.missing = {key: sentence for key, sentence in found.missing.items() if key not in found.keys}
    if "mesh.ranks" not in found.keys:
        found.missing["mesh.ranks"] = "the number of ranks: --ranks"
    return found
