"""Megatron-LM's arguments, in scripts and in Primus' YAML, and nanotron's YAML."""

from __future__ import annotations

from typing import Optional

from .models import name_model, read_hugging_face, vocabulary_of
from .settings import Refused, Settings
from .source import Source, importer


def _put_vocabulary(s: Source, tensor: int) -> None:
    tokenizer, kind, padded = s.text("tokenizer-model"), s.text("tokenizer-type"), s.integer("padded-vocab-size")
    given, known = s.integer("vocab-size"), vocabulary_of(tokenizer) or vocabulary_of(kind)
    part = (s.integer("make-vocab-size-divisible-by") or 128) * tensor
    rows = padded or given or (known and -(-known // part) * part)
    s.put("model.vocab", rows)
    if not rows:
        s.ask("model.vocab", f"the vocabulary, which is the tokenizer's{f' ({tokenizer})' if tokenizer else ''}: --set model.vocab=ROWS")
    s.lost(f"no --vocab-size: {rows}, as the tokenizer has, filled up to a multiple of {part}", rows and not (padded or given))


def _read_model(s: Source, layers: int) -> None:
    width, heads, groups, inner = (s.integer(name) for name in ("hidden-size", "num-attention-heads", "num-query-groups", "ffn-hidden-size"))
    learned = s.text("position-embedding-type", default="learned_absolute") == "learned_absolute"
    positions, grouped = s.integer("max-position-embeddings"), s.flag("group-query-attention")
    s.puts("model", kind="decoder", layers=layers, tied_head=not s.flag("untie-embeddings-and-output-weights"),
           feed_forward="gated" if s.flag("swiglu") else "plain", norm="rms" if s.text("normalization") == "RMSNorm" else "layer",
           bias=not s.flag("disable-bias-linear"), fused_projections=True, width=width, heads=heads,
           kv_heads=groups if grouped and groups else heads, ffn_width=inner or (width and 4 * width), head_dim=s.integer("kv-channels"),
           learned_positions=positions if learned else None, rope_theta=s.number("rotary-base"), norm_epsilon=s.number("norm-epsilon"))
    s.on("model.qk_norm", True, "qk-layernorm")
    experts = s.integer("num-experts")
    if not experts:
        return
    one, shared = s.integer("moe-ffn-hidden-size"), s.integer("moe-shared-expert-intermediate-size")
    each, overlaps = one or inner or 0, s.flag("moe-shared-expert-overlap")
    fits = shared and each and shared % each == 0
    s.puts("model", experts=experts, active_experts=s.integer("moe-router-topk") or 2, ffn_width=one,
           shared_experts=shared // each if shared and fits else None)
    s.lost("moe-shared-expert-overlap: a shared expert is computed before rows leave", fits and overlaps)
    s.lost(f"moe-shared-expert-intermediate-size = {shared}: no multiple of an expert's width", shared and not fits)
    capacity = s.number("moe-expert-capacity-factor") or 0  # a negative factor is none, and then no policy drops anything
    s.lost(f"--moe-expert-capacity-factor {capacity:g}: experts take all rows here", capacity > 0)
    s.text("moe-token-drop-policy")
    s.lost("--overlap-moe-expert-parallel-comm: it computes the forward of a microbatch beside the backward of another",
           s.flag("overlap-moe-expert-parallel-comm"))


def _put_recomputation(s: Source, blocks: Optional[int], against: str) -> None:
    """--recompute-granularity: whole layers, or of each layer the modules that --recompute-modules names, core_attn where it names none.
    against: what keys do not let modules alone be recomputed with."""
    selective = "selective" if s.flag("recompute-activations") else ""
    granularity, method, count = s.text("recompute-granularity", default=selective), s.text("recompute-method", default="uniform"), s.size("recompute-num-layers")
    modules = (s.list("recompute-modules") + s.settings.more_words.get("recompute-modules", [])) or ["core_attn"]
    if granularity in ("", "none", "None"):
        return
    if granularity != "selective":
        some = method == "block" and blocks and 0 < count < blocks
        s.puts("fsdp", activation_checkpointing=True, checkpoint_every=-(-blocks // count) if blocks and some else None)
        return s.lost(f"--recompute-num-layers {count}: each layer stands for it", method == "uniform" and count > 1)
    feed_forward = "moe" if "model.experts" in s.keys else "mlp"  # of models with experts every layer has them here
    taken = feed_forward if feed_forward in modules else "core_attn" if "core_attn" in modules else ""
    modules, whole = [module for module in modules if module != taken], taken == feed_forward
    s.put("fsdp.activation_checkpointing", True if taken and (whole or not against) else None)
    s.put("fsdp.checkpoint_keeps", ("all_but_feed_forward" if whole else "all_but_attention") if taken and not against else None)
    s.lost(f"--recompute-modules {taken}: with {against} {'whole layers stand for it' if whole else 'nothing is recomputed for it'}", taken and against)
    s.lost(f"--recompute-modules {' '.join(modules)}: what {'it saves is' if len(modules) == 1 else 'they save is'} kept here", modules)


def _tell_context_exchange(s: Source, context: int) -> None:
    """--cp-comm-type, one word for all layers or one for each; p2p where it is not given."""
    kinds = [s.text("cp-comm-type", default="p2p"), *s.settings.more_words.get("cp-comm-type", [])]
    s.lost(f"--cp-comm-type {' '.join(kinds)}: all_gather stands for it; rings and exchanges of heads are not simulated",
           context > 1 and any(kind != "all_gather" for kind in kinds))


@importer("Megatron-LM", "arguments, one or more a line, or a script that calls it", 0, lambda f: f.format == "arguments" and f.any(
    "num-layers", "hidden-size", "micro-batch-size", "global-batch-size", "tensor-model-parallel-size", "use-megatron-fsdp",
    "use-distributed-optimizer", "data-parallel-sharding-strategy", "recompute-granularity"))
def read_megatron(s: Source) -> None:
    own, tensor, all_ranks = s.integer("num-layers"), s.size("tensor-model-parallel-size"), s.launched()
    pipeline = s.stages("pipeline-model-parallel-size")
    ranks = all_ranks and all_ranks // pipeline
    if own:
        _read_model(s, own)
        _put_vocabulary(s, tensor)
    rewrite, fsdp, torch = s.integer("megatron-fsdp-version") == 2, s.flag("use-megatron-fsdp") | s.flag("use-custom-fsdp"), s.flag("use-torch-fsdp2")
    sharding, distributed = s.text("data-parallel-sharding-strategy", default="no_shard"), s.flag("use-distributed-optimizer")
    s.lost("--use-megatron-fsdp is not among the flags; Megatron-FSDP stands for the distributed optimizer", not fsdp and not torch)
    sharding = "optim_grads_params" if torch else "optim" if not fsdp and distributed and sharding == "no_shard" else sharding
    replicas = s.size("num-distributed-optimizer-instances")
    full, split = sharding == "optim_grads_params", sharding != "no_shard"
    hybrid = replicas > 1 and split
    s.puts("fsdp", preset="fsdp2" if torch else "megatron-v2" if rewrite else "megatron-v1", reshard_after_forward=False if rewrite and split and not full else None,
           strategy=("hybrid_shard" if hybrid else "full_shard" if full else "shard_grad_op") + "_grad_op" * (hybrid and not full) if split else "no_shard")
    s.puts("mesh", ranks=ranks, replicate=replicas if hybrid else None, shard=ranks // replicas if hybrid and ranks else None)
    s.put("train.accumulate_mode", "no_sync" if sharding == "optim" else None)
    overlaps, _ = s.flag("overlap-grad-reduce"), s.flag("overlap-param-gather")
    s.put("fsdp.reduce_lane", "compute" if not overlaps and sharding in ("optim", "no_shard") else None)
    size = s.integer("suggested-communication-unit-size")
    if size is not None and not rewrite:
        window = "none" if size == 1 else f"window:{size // 2}"
        s.puts("fsdp", forward_prefetch=window, backward_prefetch=window, reduce_scatter_elements=size)
    s.on("fsdp.all_gather_limit", "buffers:2", "fsdp-double-buffer")
    s.on("fsdp.separate_reduce_scatter_comm", True, "create-all-gather-group")
    s.on("nccl.register_buffers", "local" if s.flag("disable-symmetric-registration") else "window", "use-nccl-ub")
    s.put("fsdp.gradient_scaling", "average" if s.flag("ddp-average-in-collective") else "sum")
    low, half, reduced = s.flag("bf16"), s.flag("fp16"), s.text("megatron-fsdp-grad-comm-dtype", default="fp32")
    s.lost("--fp16: bf16, which is as large, stands for it", half)
    s.lost("neither --bf16 nor --fp16: fp32, as Megatron-LM computes then", own and not (low or half))
    s.put_dtypes("bf16" if low or half else "fp32", "bf16" if s.flag("grad-reduce-in-bf16") else reduced)
    fp8, recipe = s.text("fp8-format", "fp8", default="none").lower(), s.text("fp8-recipe", default="delayed")
    if fp8 not in ("none", "null", "false"):
        s.puts("fsdp", fp8_products=True, fp8_recipe={"mxfp8": "mx", "tensorwise": "tensorwise"}.get(recipe, "delayed"))
        s.lost(f"--fp8-recipe {recipe}: delayed stands for it", recipe not in ("mxfp8", "delayed", "tensorwise"))
    s.put_groups(tensor, s.size("expert-model-parallel-size"))
    s.put("mesh.sequence_parallel", True if s.flag("sequence-parallel") and tensor > 1 else None)
    expert = "mesh.expert" in s.keys
    context = s.put_context("context-parallel-size", s.size("context-parallel-size"), "mesh.tensor" if tensor > 1 else "mesh.expert" if expert else
                            "" if split else "fsdp.strategy = no_shard")
    _tell_context_exchange(s, context)
    _put_recomputation(s, own or s.known.layers, "mesh.tensor" if tensor > 1 else "mesh.context" if context > 1 else
                       "fsdp.expert_unit" if rewrite and expert else "")
    s.put_batch(s.integer("global-batch-size"), s.integer("micro-batch-size"), ranks and ranks // (tensor * context))
    s.put("train.optimizer", "sgd" if s.text("optimizer") == "sgd" else "adamw")
    s.copy({"train.learning_rate": "lr", "train.beta1": "adam-beta1", "train.beta2": "adam-beta2", "train.epsilon": "adam-eps",
            "train.weight_decay": "weight-decay", "train.clip_norm": "clip-grad", "train.seq_len": "seq-length"})


@importer("Primus", "YAML of an experiment with Megatron-LM or torchtitan", 30, lambda f: f.format == "yaml" and f.has("modules."))
def read_primus(s: Source) -> None:
    prefix = next((name[:-len("framework")] for name in s.values if name.startswith("modules.") and name.endswith(".framework")), "modules.")
    framework, model = s.text(prefix + "framework"), s.text(prefix + "model")
    if framework not in ("megatron", "torchtitan"):
        raise Refused(f"{s.path}: Primus' framework {framework or '(none)'}: megatron and torchtitan can be imported.")
    name_model(s.into, model)
    s.lift(prefix + "overrides.")
    s.lift(prefix)
    if framework == "torchtitan":
        from .torchtitan import read_torchtitan
        return read_torchtitan(s)
    for name in list(s.values):
        s.values[name.replace("_", "-")] = s.values.pop(name)
    # The model's file is not at hand: sizes of the command line would be mixed with Megatron-LM's defaults.
    sizes = {name: s.take(name) for name in ("num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups", "num-experts")}
    s.lost(", ".join(f"{name} = {size}" for name, size in sizes.items() if size is not None) + ": the sizes of the named model are taken",
           any(sizes.values()))
    if not s.has("fp16"):
        s.values.setdefault("bf16", True)  # primus/configs/modules/megatron/trainer_base.yaml
    read_megatron(s)


@importer("nanotron", "YAML", 30, lambda f: f.format == "yaml" and f.has("parallelism.", "tokens.") and f.any("model.model_config.", "optimizer.zero_stage"))
def read_nanotron(s: Source) -> None:
    p, m = "parallelism.", "model.model_config."
    data, tensor, expert, context = (s.size(p + name) for name in ("dp", "tp", "expert_parallel_size", "context_parallel_size"))
    s.stages(p + "pp")
    part = s.size("model.make_vocab_size_divisible_by") * tensor
    other = next((name[len(m):] for name in s.values if name.startswith(m + "is_") and name not in (m + "is_llama_config", m + "is_qwen2_config")), "")
    if other or s.has(m + "moe_config."):
        raise Refused(f"{s.path}: {other or 'moe_config'}: nanotron's models of Llama's and Qwen2's kind can be imported.")
    if s.has(m):
        inner = Settings("json", {"model_type": "qwen2" if s.flag(m + "is_qwen2_config") else "llama"}, path=s.path)
        inner.values.update({name[len(m):].replace("window_size", "window"): s.values.pop(name) for name in list(s.values) if name.startswith(m)})
        model = Source(inner, s.into, s.known)
        read_hugging_face(model)
        model.ignore("_attn_implementation", "_use_qkv_packed", "_use_doc_masking", "_fused_rms_norm", "_fused_rotary_emb", "z_loss_enabled", "rope_interleaved")
        model.list_the_rest()
        s.puts("model", fused_projections=True, vocab=-(-int(s.keys["model.vocab"]) // part) * part if "model.vocab" in s.keys else None)
    stage, dtype, wide = s.integer("optimizer.zero_stage") or 0, s.text("model.dtype", default="bfloat16"), s.flag("optimizer.accumulate_grad_in_fp32")
    s.puts("fsdp", preset="deepspeed-z1" if stage else "fsdp2", strategy=None if stage else "no_shard", fp32_gradients=wide or None,
           activation_checkpointing=s.flag(p + "recompute_layer") or None)
    s.lost("optimizer.zero_stage = 1: DeepSpeed's ZeRO-1 stands for nanotron's", stage)
    s.put_dtypes(dtype, "fp32" if wide else dtype)
    s.put_groups(tensor, expert)
    s.puts("mesh", ranks=data * tensor * context * expert, sequence_parallel=True if s.text(p + "tp_mode") == "REDUCE_SCATTER" and tensor > 1 else None)
    s.put_context(p + "context_parallel_size", context, "mesh.tensor" if tensor > 1 else "" if stage else "fsdp.strategy = no_shard")
    s.put("train.accumulate_mode", "no_sync")
    s.copy({"train.batch_per_rank": "micro_batch_size", "train.seq_len": "sequence_length", "train.accumulate": "batch_accumulation_per_replica"}, "tokens.")
    s.copy({"train.clip_norm": "clip_grad", "train.weight_decay": "weight_decay", "train.learning_rate": "learning_rate_scheduler.learning_rate",
            "train.beta1": "optimizer_factory.adam_beta1", "train.beta2": "optimizer_factory.adam_beta2", "train.epsilon": "optimizer_factory.adam_eps"}, "optimizer.")
    s.put_optimizer(s.text("optimizer.optimizer_factory.name"))
    s.ignore("optimizer.optimizer_factory.torch_adam_is_fused", p + "tp_linear_async_communication", p + "tp_recompute_allgather")
