"""`fsdpbench import`: writes what files of other systems say as a profile, which the program itself then checks."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from typing import Dict, List, Optional, Sequence, Tuple

from ..program import environment_of_a_call, program
from .settings import Refused, Scalar, read_file, tomllib
from .source import Import, Known, list_importers, make_import

_TABLES = ("model", "data", "mesh", "train", "fsdp", "device", "nccl", "emulate", "simulate", "inject", "trace", "checkpoint")


def _call(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program(), *arguments], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          env=environment_of_a_call())


@functools.lru_cache(None)
def _order() -> List[str]:
    """All keys, as the program lists them."""
    said = [line.split(" = ")[0] for table in _TABLES for line in _call("help", "keys", table).stdout.splitlines() if " = " in line]
    return [key for key in said if "." in key and " " not in key]


def _one_line(text: str) -> str:
    return "".join(" " if ord(letter) < 32 or 127 <= ord(letter) < 160 else letter for letter in text)


def profile_of(found: Import) -> str:
    text = f"# Imported from settings of {' and '.join(found.systems)} by fsdpbench.\n"
    text += "".join(f"# Not in here: {_one_line(sentence)}\n" for sentence in [*found.matters, *found.missing.values()])
    text += f"# Settings that no key stands for: {_one_line(', '.join(found.rest))}\n" if found.rest else ""
    table, order = "", _order()
    for key in sorted(found.keys, key=lambda key: order.index(key) if key in order else len(order)):
        if key.split(".")[0] != table:
            table = key.split(".")[0]
            text += f"\n[{table}]\n"
        value = found.keys[key]
        text += f"{key[len(table) + 1:]} = {repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)}\n"
    return text


def _check(text: str, name: str) -> Tuple[List[str], str]:
    """What the program notes of a profile, and its complaint if it does not load."""
    with tempfile.TemporaryDirectory(prefix="fsdpbench-") as folder:
        file = os.path.join(folder, "profile.toml")
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(text)
        done = _call("export", file)
    lines = [line.replace(f"{file}: ", "").replace(file, name) for line in done.stderr.splitlines()]
    return ([], " ".join(lines)[len("error: "):]) if done.returncode else (lines, "")


def _has_tied_head(keys: Dict[str, Scalar]) -> bool:
    """Whether the head is the embedding: of a model that is only named the program knows."""
    if "model.tied_head" in keys or "model.preset" not in keys:
        return bool(keys.get("model.tied_head"))
    done = _call("explain", "quickstart", "--set", f"model.preset={keys['model.preset']}", "--format", "json")
    if done.returncode:
        raise Refused(done.stderr.strip().replace("error: ", ""))
    return bool(json.loads(done.stdout)["config"]["model"]["tied_head"])


def _read_override(text: str) -> Tuple[str, Scalar]:
    key, _, value = (part.strip() for part in text.partition("="))
    if key not in _order():
        raise Refused(f"--set {text}: no such key; `fsdpbench help keys` lists them.")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def settle(found: Import, overrides: Sequence[str] = (), model: str = "") -> None:
    """--set, and what must be known before there can be a profile. Raises Refused."""
    if model and "model.layers" not in found.keys:
        found.keys.setdefault("model.preset", model)
    found.keys.update(map(_read_override, overrides))
    found.missing = {key: sentence for key, sentence in found.missing.items() if key not in found.keys and not (
        key == "model.vocab" and "model.preset" in found.keys)}
    if not found.keys.keys() & {"model.layers", "model.preset"}:
        named = f"the sizes of {found.model} are not known here" if found.model else "no file has a model"
        found.missing["model"] = f"{named}: give its config.json of Hugging Face, too, or --model NAME (a file of profiles/models)"
    if "model.layers" in found.keys and not found.keys.keys() & {"model.vocab", "model.preset"}:
        found.missing.setdefault("model.vocab", "the vocabulary: --set model.vocab=ROWS")
    groups = [key for key in found.keys if key.startswith("mesh.")]  # which the default of mesh.ranks does not fit
    asked = [found.missing[key] for key in ("model", "model.vocab", "fsdp.param_dtype", "fsdp.reduce_dtype", *["mesh.ranks"] * bool(groups))
             if key in found.missing]
    asked += [f"{', '.join(found.unknown)}, which only a run of the script knows: give the command line that it makes"] if found.unknown else []
    if asked:
        raise Refused("No profile is written before this is known: " + "; ".join(asked) + ".")
    for key, what in (("train.seq_len", "the length of sequences"), ("train.batch_per_rank", "the sequences of a microbatch")):
        if key not in found.keys:
            found.missing.setdefault(key, f"{what}: --set {key}")
    split = next((key for key in ("mesh.tensor", "mesh.context") if found.keys.get(key, 1) != 1), "")
    if split and found.keys.get("fsdp.checkpoint_keeps") == "every_second_product":
        del found.keys["fsdp.checkpoint_keeps"]
        found.matters.append(f"recomputation of every second product: with {split} whole blocks stand for it")
    if found.keys.get("fsdp.head_unit") is True and _has_tied_head(found.keys):
        found.keys["fsdp.head_unit"] = False  # the head is in the root, as its weight is the embedding's


def main(files: Sequence[str], overrides: Sequence[str], ranks: Optional[int], model: str, out: str, overwrite: bool, quiet: bool) -> int:
    def say(sentence: str, when: bool = True) -> None:
        if when:
            print(_one_line(sentence), file=sys.stderr)
    if out and os.path.exists(out) and not overwrite:
        raise Refused(f"--out: {out} exists; --overwrite replaces it.")
    found = make_import([read_file(path) for path in files], Known(ranks), model)
    if not files:
        text, notes, complaint = "\n".join(list_importers()) + "\n", [], ""
    else:
        settle(found, overrides, "" if model.endswith(".json") else model)
        text = profile_of(found)
        notes, complaint = _check(text, out or "the profile")
    if complaint:
        raise Refused(complaint)
    for note in notes:
        say(note, not quiet)
    for sentence in [*found.missing.values(), *found.matters] if files else []:
        say(f"warning: not in the profile: {sentence}")
    say(f"no key stands for {len(found.rest)} more settings: {', '.join(found.rest)}", bool(found.rest) and not quiet)
    if out and files:
        with open(out, "w", encoding="utf-8") as stream:
            stream.write(text)
        say(f"profile  {out}", not quiet)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0
