"""What fsdpbench.torch.profile_of reads from models that PyTorch has wrapped: `python profiles.py FOLDER` reads every
configuration of grid.py and of exported.py again, in one process, from PyTorch's fake process group; `--check` compares
with what the folder has; `--models` reads models of transformers, whose shapes the analysis package's tests know.

The schedule of what was read must be what PyTorch did on real ranks in that configuration, which record.py and exported.py
have stored: schedule_peer_test.cpp compares them.
"""

import argparse
import json
import os
import pathlib
import sys
import types

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import engines
import exported
import record

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "analysis"))
from fsdpbench.torch import profile, reading  # noqa: E402

# What the training loop decides and no module knows: handed to profile_of with set=.
OF_THE_LOOP = ("train.accumulate", "train.accumulate_mode", "fsdp.reshard_after_backward", "fsdp.wait_each_backward",
               "fsdp.keep_unreduced", "train.clip_norm")


def nothing(token):
    pass


def wrapped(case):
    """The model of a case, as PyTorch has wrapped it."""
    keys = case["keys"]
    if "script" not in case:
        return engines.build(keys, nothing)
    settings = types.ModuleType("settings")
    exec(compile(case["script"], "settings.py", "exec"), settings.__dict__)
    return settings.apply_fsdp(exported.plain_model(keys), settings.make_mesh("cpu"))


def read(case):
    """As lines: each key that profile_of writes, and what it says that it has not read."""
    keys = case["keys"]
    found = profile.profile_from(reading.read(wrapped(case)), None,
                                 {"train.seq_len": 4, "train.batch_per_rank": 2, **{k: keys[k] for k in OF_THE_LOOP if k in keys}})
    return {"profile": [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in found.keys.items()],
            "unread": found.unread}


def all_cases(folder):
    path = os.path.join(folder, "{}-" + record.VERSION + ".json")
    for name, cases in (("schedules", record.stored(path.format("schedules"))), ("exported", exported.stored(path.format("exported")))):
        for i, case in enumerate(cases):
            yield {"file": name, "case": i}, case


def record_all(folder):
    found = []
    every = list(all_cases(folder))
    for ranks in sorted({case["keys"]["mesh.ranks"] for _, case in every}):
        dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        found += [{**where, **read(case)} for where, case in every if case["keys"]["mesh.ranks"] == ranks]
        engines.make_mesh.cache_clear()
        dist.destroy_process_group()
    return sorted(found, key=lambda row: (row["file"], row["case"]))


def models():
    """Models as transformers makes them on the meta device, wrapped in several ways: what reading.read() sees."""
    import transformers
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    def made(kind, **settings):
        with torch.device("meta"):
            return transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind + "Config")(**settings))

    def sharded(model, blocks, **how):
        for block in blocks(model):
            fully_shard(block, **how)
        return fully_shard(model, **how)

    layers = lambda model: model.model.layers
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    llama = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=3, num_attention_heads=32, num_key_value_heads=8)
    hybrid = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    yield "llama", sharded(made("Llama", **llama), layers, mesh=hybrid, mp_policy=bf16)
    tied = made("Llama", tie_word_embeddings=True, **llama)
    tied.gradient_checkpointing_enable()
    yield "tied, checkpointed, offloaded", sharded(tied, layers, offload_policy=CPUOffloadPolicy())
    yield "gpt2, every second block", sharded(made("GPT2", n_layer=4), lambda model: model.transformer.h[::2])
    yield "gpt-oss", made("GptOss", num_hidden_layers=4, num_local_experts=32)
    yield "deepseek", sharded(made("DeepseekV3", num_hidden_layers=4), layers)
    apart = made("Qwen3", **{**llama, "head_dim": 128})
    fully_shard(apart.model.embed_tokens)
    for layer in apart.model.layers:
        fully_shard(layer)
    fully_shard([apart.model.norm, apart.lm_head], reshard_after_forward=False)
    yield "qwen3, embedding and head apart", fully_shard(apart)


def record_models(path):
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    seen = {name: reading.read(model) for name, model in models()}
    dist.destroy_process_group()
    path.write_text(json.dumps({"pytorch": record.VERSION, "models": seen}, separators=(",", ":")) + "\n")
    print(f"{len(seen)} models: {path}")


LINES = ("profile", "unread")


def main():
    parser = argparse.ArgumentParser(description="What profile_of reads.")
    parser.add_argument("folder")
    parser.add_argument("--check", action="store_true", help="compare with what is stored")
    parser.add_argument("--models", action="store_true", help="models of transformers, for the analysis package's tests")
    arguments = parser.parse_args()
    if arguments.models:
        return record_models(pathlib.Path(arguments.folder) / "torch_models.json")
    torch.set_num_threads(1)
    path = os.path.join(arguments.folder, f"profiles-{record.VERSION}.json")
    found = record_all(arguments.folder)
    if not arguments.check:
        record.write(path, found, LINES)
        print(f"{len(found)} profiles read from PyTorch {record.VERSION}: {path}")
        return 0
    expected = record.stored(path, LINES)
    differing = [row for row, before in zip(found, expected) if row != before]
    for row in differing:
        print(f"not as stored: {row}")
    print(f"{len(found) - len(differing)} of {len(found)} profiles are as stored: {path}")
    return 1 if differing or len(found) != len(expected) else 0


if __name__ == "__main__":
    sys.exit(main())
