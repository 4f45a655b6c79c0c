"""torchtitan's TOML and arguments, NeMo Automodel's YAML, and prime-rl's TOML: FSDP2 with a mesh."""

from __future__ import annotations

import math
import re
from typing import List

from .models import name_model
from .settings import Settings
from .source import ADAM, Source, importer


def _put_compiled(s: Source, tensor: int) -> None:
    """torchtitan compiles its blocks and its loss, or what [compile] components names (its torchtitan/config/job_config.py since August
    2025). Before, [training] compile stood for both, and the loss was left out from 2024-12-18 (e8977b0) to 2025-04-02 (bbb1b61)."""
    enabled, components, both = s.boolean("compile.enable"), s.list("compile.components"), s.flag("training.compile")
    model, loss = (bool(enabled) and (not components or what in components) for what in ("model", "loss"))
    s.put("simulate.compiled", True if both or model else None)
    if both:
        s.lost("training.compile: versions from 2024-12-18 to 2025-04-02 do not compile the loss; of those say simulate.loss = \"eager\"")
    elif loss:
        s.put("simulate.loss", None if model else "fused")
    elif enabled is not None and tensor == 1:
        s.put("simulate.loss", "eager")


def _put_recomputation(s: Source) -> None:
    mode = s.text("activation_checkpoint.mode", "activation_checkpoint")
    option = s.text("activation_checkpoint.selective_ac_option", default="op")
    s.put("fsdp.activation_checkpointing", True if mode not in ("", "none") else None)
    if mode == "selective":
        blocks = int(option) if option.isdigit() else 0
        s.puts("fsdp", checkpoint_every=blocks or None, checkpoint_keeps=None if blocks else "every_second_product")
    s.lost("activation_checkpoint.mode is not said, and differs by version of torchtitan", not mode)


def _degrees(what: str) -> List[str]:
    """What versions call it: 0.1 had these in two other tables."""
    return [f"{table}.{what}_degree" for table in ("parallelism", "training", "experimental")]


def _of_titan(f: Settings) -> bool:
    return f.format in ("toml", "arguments") and f.any("training.", "parallelism.")


@importer("torchtitan", "TOML, or the arguments of newer versions", 25, _of_titan)
def read_torchtitan(s: Source) -> None:
    for name in [name for name in s.values if "-" in name and s.settings.format == "arguments"]:
        s.values[name.replace("-", "_")] = s.values.pop(name)
    name, flavor, module = s.text("model.name", "config"), s.text("model.flavor"), s.text("module")
    name_model(s.into, f"{name}-{flavor}" if flavor and flavor.lower() not in name.lower() else name or module)
    s.lost(f"model.flavor = {flavor}", flavor and "model.preset" not in s.keys)
    s.puts("fsdp", preset="fsdp2", wrap="block", head_unit=True, gradient_scaling="sum")
    replicate, tensor, expert, context = (s.size(*_degrees(what)) for what in (
        "data_parallel_replicate", "tensor_parallel", "expert_parallel", "context_parallel"))
    launched, pipeline = s.launched(), s.stages(*_degrees("pipeline_parallel"))
    shard = s.integer(*_degrees("data_parallel_shard"), "training.data_parallel_degree")
    s.put_groups(1, expert)
    s.put("fsdp.preset", "torchtitan-moe" if expert > 1 else None)
    # Ranks that split sequences shard parameters, too (its mesh dp_shard_cp), and are not among those of data_parallel_shard_degree.
    data = s.put_mesh(launched and launched // pipeline, shard, replicate, tensor, context, name="parallelism.context_parallel_degree")
    split = "mesh.context" in s.keys
    ring = s.text("parallelism.context_parallel_rotate_method", default="allgather") == "alltoall"
    s.lost("context_parallel_rotate_method = alltoall: a gather stands for the ring, which sends as much beside attention" if ring else "context_parallel_rotate_method = allgather: keys and values are gathered before attention here; "
           "PyTorch gathers them beside its first step, and sends their gradients around a ring", split)
    reshard = s.text("parallelism.fsdp_reshard_after_forward", default="default")
    s.put("fsdp.reshard_after_forward", True if reshard == "always" else False if reshard == "never" and s.keys["fsdp.strategy"] != "no_shard" else None)
    s.on("nccl.register_buffers", "window", "parallelism.enable_fsdp_symm_mem")
    local, length = s.integer("training.local_batch_size", "training.batch_size"), s.integer("training.seq_len", "training.max_context_length")
    tokens, all_tokens, batch = (s.integer(f"training.{name}") for name in ("num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step", "global_batch_size"))
    s.put_batch(batch or (all_tokens // length if all_tokens and length else None), local or (max(1, tokens // length) if tokens and length else None), data)
    norm = s.number("training.max_norm")
    s.puts("train", seq_len=length, clip_norm=1.0 if norm is None else norm if math.isfinite(norm) else 0.0)
    s.put_dtypes(s.text("training.mixed_precision_param", default="bfloat16"), s.text("training.mixed_precision_reduce", default="float32"))
    s.on("fsdp.cpu_offload", "all", "training.enable_cpu_offload")
    if any("float8" in name for name in s.list("model.converters")):
        recipe = s.text("float8.recipe_name", "quantize.linear.float8.recipe_name", default="tensorwise")
        s.puts("fsdp", fp8_products=True, fp8_recipe="rowwise" if recipe.startswith("rowwise") else "tensorwise")
    s.ignore("float8.", "quantize.")
    _put_recomputation(s)
    s.put_optimizer(s.text("optimizer.name", default="AdamW"))
    s.copy({**ADAM, "train.beta1": "beta1", "train.beta2": "beta2"}, "optimizer.")
    _put_compiled(s, tensor)
    s.put("simulate.fused_optimizer", True if s.text("optimizer.implementation") == "fused" else None)


def put_fsdp2(s: Source, expert: int) -> None:
    s.puts("fsdp", preset="torchtitan-moe" if expert > 1 else "fsdp2", wrap="block", param_dtype="bf16", reduce_dtype="fp32")
    s.put_groups(1, expert)


def _of_automodel(f: Settings) -> bool:
    """No recipes for drafts, embeddings or distillation, which have other models beside the one that is named."""
    recipe = str(f.values.get("recipe", "RecipeForNextTokenPrediction"))
    return f.format == "yaml" and f.has("distributed.", "model.", "step_scheduler.") and bool(
        re.search(r"(?<!Distillation)RecipeFor(NextTokenPrediction|VLM)$", recipe))


@importer("NeMo Automodel", "YAML of a recipe for a language model", 30, _of_automodel)
def read_automodel(s: Source) -> None:
    d = "distributed."
    strategy = s.text(d + "strategy").lower() or re.sub(r".*\.|manager$", "", s.text(d + "_target_").lower())
    name_model(s.into, s.text("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path", "model.config.name_or_path"))
    sizes = {what: s.integer(f"{d}{what}_size") for what in ("dp", "dp_replicate", "tp", "cp", "ep")}
    tensor, context, replicate, expert = (sizes[what] or 1 for what in ("tp", "cp", "dp_replicate", "ep"))
    pipeline = s.stages(d + "pp_size")
    put_fsdp2(s, expert)
    s.put_dtypes(s.text(d + "mp_policy.param_dtype"), s.text(d + "mp_policy.reduce_dtype"))
    s.put_lora(s.integer("peft.dim"), s.number("peft.alpha"), s.list("peft.target_modules") or ["all"] * s.flag("peft.match_all_linear"))
    data = s.put_mesh(s.known.ranks and s.known.ranks // pipeline, sizes["dp"] and sizes["dp"] // replicate, replicate, tensor, context, name=d + "cp_size")
    s.put("fsdp.strategy", "no_shard" if strategy == "ddp" else None)
    s.put("fsdp.preset", "megatron-v1" if strategy in ("megatron_fsdp", "megatronfsdp") else None)
    s.lost(f"distributed.strategy = {strategy}: FSDP2 stands for it", strategy not in ("", "fsdp2", "ddp", "megatron_fsdp", "megatronfsdp"))
    s.put("mesh.sequence_parallel", True if s.flag(d + "sequence_parallel") and tensor > 1 else None)
    recompute = s.text(d + "activation_checkpointing", default="false").lower()
    s.puts("fsdp", activation_checkpointing=recompute not in ("false", "none") or None, checkpoint_keeps="every_second_product" if recompute == "selective" else None)
    s.put_batch(s.integer("step_scheduler.global_batch_size"), s.integer("step_scheduler.local_batch_size"), data)
    s.put("train.seq_len", s.integer("packed_sequence.packed_sequence_size", *(f"dataset.{name}" for name in ("seq_len", "seq_length", "max_seq_length"))) or None)
    s.put_optimizer(s.text("optimizer._target_").split(".")[-1], "fusedadam")
    s.copy({**ADAM, "train.clip_norm": "max_norm"}, "optimizer.")
    s.put("train.clip_norm", s.number("max_grad_norm.max_norm", "clip_grad_norm.max_norm", "max_grad_norm"))


def _of_prime(f: Settings) -> bool:
    return f.format == "toml" and not f.any("training.", "parallelism.") and (
        f.any("orchestrator.", "trainer.model.", "trainer.optim.") or f.has("model.name") and f.any("optim.", "data.seq_len", "data.batch_size"))


@importer("prime-rl", "TOML", 30, _of_prime)
def read_prime(s: Source) -> None:
    s.ignore("orchestrator.", "inference.")
    s.lift("trainer.")
    name_model(s.into, s.text("model.name"))
    put_fsdp2(s, s.size("model.ep"))
    s.put_dtypes("", s.text("model.reduce_dtype"))
    gpus, nodes = s.integer("deployment.num_train_gpus", "deployment.num_gpus"), s.integer("deployment.num_train_nodes", "deployment.num_nodes")
    s.put_lora(s.integer("model.lora.rank") or (16 if s.has("model.lora.") else None), s.number("model.lora.alpha") or 32.0,
               s.list("model.lora.target_modules") or ["all"])
    ulysses, frees = s.text("model.cp_style") == "ulysses", s.boolean("model.reshard_after_forward") is not False
    ranks = s.known.ranks or gpus or (nodes and nodes * (s.integer("deployment.gpus_per_node") or 8))
    data = s.put_mesh(ranks, None, s.size("model.dp_replicate"), s.size("model.tp"), s.size("model.cp"), frees, "model.cp", ulysses)
    s.lost("model.cp_style = ring: a gather of keys and values stands for the ring", "mesh.context" in s.keys and not ulysses)
    every, mode = s.integer("model.ac.freq"), s.text("model.ac.mode")
    s.lost("model.ac is not said: whole blocks are recomputed, as since 2026; versions before recompute nothing", not every and not mode)
    s.puts("fsdp", activation_checkpointing=True, checkpoint_every=every if every and every > 1 else None,
           checkpoint_keeps="every_second_product" if mode == "selective" else None)
    s.put("simulate.compiled", True if s.has("model.compile.") else None)
    s.on("fsdp.cpu_offload", "optimizer", "model.optim_cpu_offload")
    s.on("fsdp.cpu_offload", "all", "model.fsdp_cpu_offload")
    s.put_batch(s.integer("data.batch_size"), s.size("data.micro_batch_size"), data)
    norm = s.number("optim.max_norm")
    s.puts("train", seq_len=s.integer("data.seq_len", "model.seq_len", "seq_len"), clip_norm=1.0 if norm is None else norm)
    s.put_optimizer(s.text("optim.type"))
    s.copy({**ADAM, "train.beta1": "betas1", "train.beta2": "betas2"}, "optim.")
    s.ignore("data.")
