"""`fsdpbench import`: writes what files of other systems say as a profile, which the program itself then checks."""

from __future__ import annotations

import json
import os
import sys
from typing import Dict, Optional, Sequence, Tuple

from ..call import ProgramError, call
from ..torch.profile import Profile, one_line
from .settings import Refused, Scalar, read_file, tomllib
from .source import Import, list_importers, make_import


def profile_of(found: Import) -> Profile:
    unread = [*found.matters, *found.missing.values(), *[f"what no key stands for: {', '.join(found.rest)}"] * bool(found.rest)]
    return Profile(found.keys, unread, origin=f"settings of {' and '.join(found.systems)}")


def _has_tied_head(keys: Dict[str, Scalar]) -> bool:
    """Whether the head is the embedding: of a model that is only named the program knows."""
    if "model.tied_head" in keys or "model.preset" not in keys:
        return bool(keys.get("model.tied_head"))
    explained = call(["explain", "quickstart", "--set", f"model.preset={keys['model.preset']}", "--format", "json"], False)
    return bool(json.loads(explained.text)["config"]["model"]["tied_head"])


def _read_override(text: str) -> Tuple[str, Scalar]:
    key, _, value = (part.strip() for part in text.partition("="))
    try:
        if not call(["help", "keys", key], False).text.startswith(f"{key} = "):
            raise Refused(f"--set {text}: no such key; `fsdpbench help keys` lists them.")
        return key, tomllib.loads(f"value = {value}")["value"]
    except ProgramError as error:
        raise Refused(f"--set {text}: {error}") from None
    except tomllib.TOMLDecodeError:
        return key, value


def settle(found: Import, overrides: Sequence[str] = ()) -> None:
    """--set, and what must be known before there can be a profile. Raises Refused."""
    keys, missing = found.keys, found.missing
    keys.update(map(_read_override, overrides))
    if "model.layers" not in keys and "model.preset" not in keys:
        named = f"the sizes of {found.model} are not known here" if found.model else "no file has a model"
        missing["model"] = f"{named}: give its config.json of Hugging Face, too, or --model NAME (a file of profiles/models)"
    for key, sentence in (("model.vocab", "the vocabulary: --set model.vocab=ROWS"), ("train.seq_len", "the length of sequences: --set train.seq_len"),
                          ("train.batch_per_rank", "the sequences of a microbatch: --set train.batch_per_rank")):
        missing.setdefault(key, sentence)
    found.missing = missing = {key: sentence for key, sentence in missing.items() if key not in keys and not (
        key == "model.vocab" and ("model.preset" in keys or "model.layers" not in keys))}
    grouped = any(key.startswith("mesh.") for key in keys)  # the default of mesh.ranks does not fit
    needed = ("model", "model.vocab", "fsdp.param_dtype", "fsdp.reduce_dtype", *["mesh.ranks"] * grouped)
    asked = [missing[key] for key in needed if key in missing]
    asked += [f"{', '.join(found.unknown)}, which only a run of the script knows: give the command line that it makes"] if found.unknown else []
    if asked:
        raise Refused("No profile is written before this is known: " + "; ".join(asked) + ".")
    split = next((key for key in ("mesh.tensor", "mesh.context") if keys.get(key, 1) != 1), "")
    if split and keys.get("fsdp.checkpoint_keeps") == "every_second_product":
        del keys["fsdp.checkpoint_keeps"]
        found.matters.append(f"recomputation of every second product: with {split} whole blocks stand for it")
    if keys.get("fsdp.head_unit") is True and _has_tied_head(keys):
        keys["fsdp.head_unit"] = False  # the head is in the root, as its weight is the embedding's


def main(files: Sequence[str], overrides: Sequence[str], ranks: Optional[int], model: str, out: str, overwrite: bool, quiet: bool) -> int:
    if not files:
        print("\n".join(list_importers()), flush=True)
        return 0
    if out and os.path.exists(out) and not overwrite:
        raise Refused(f"--out: {out} exists; --overwrite replaces it.")
    is_file = model.endswith(".json")
    found = make_import([read_file(path) for path in [*files, *[model] * is_file]], ranks, "" if is_file else model)
    settle(found, overrides)
    profile = profile_of(found)
    file = os.fspath(profile)
    try:
        said = [note.replace(f"{file}: ", "") for note in call(["export", file], False).notes]
    except ProgramError as error:
        raise Refused(str(error).replace(f"{file}: ", "").replace(file, out or "the profile")) from None
    rest = f"no key stands for {len(found.rest)} more settings: {', '.join(found.rest)}"
    warned = [f"warning: not in the profile: {sentence}" for sentence in [*found.missing.values(), *found.matters]]
    for sentence in warned if quiet else [*said, *warned, *[rest] * bool(found.rest), *[f"profile  {out}"] * bool(out)]:
        print(one_line(sentence), file=sys.stderr)
    if out:
        profile.save(out)
    else:
        print(profile.text, end="", flush=True)
    return 0
