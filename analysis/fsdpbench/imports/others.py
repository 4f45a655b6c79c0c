"""llm-foundry's (Composer's) YAML, and verl's YAML and overrides on its command line."""

from __future__ import annotations

import re

from .models import name_model
from .settings import Refused, Settings
from .source import ADAM, Source, importer


def _of_foundry(f: Settings) -> bool:
    return f.format == "yaml" and any(f.values.get(prefix + "model.name") in ("mpt_causal_lm", "hf_causal_lm") and f.any(*(
        prefix + name for name in ("device_train_microbatch_size", "global_train_batch_size", "train_loader."))) for prefix in ("", "parameters."))


@importer("llm-foundry", "YAML of Composer's train.py, or of mcli with its parameters", 30, _of_foundry)
def read_foundry(s: Source) -> None:
    s.lift("parameters.")
    ranks, length, m, c = s.known.ranks or s.integer("compute.gpus"), s.integer("max_seq_len", "model.max_seq_len"), "model.", "fsdp_config."
    if s.text("model.name") == "mpt_causal_lm":  # with the defaults of its MPTConfig
        width, heads, ratio = s.integer(m + "d_model") or 2048, s.integer(m + "n_heads") or 16, s.number(m + "expansion_ratio") or 4
        alone, tied = s.text(m + "attn_config.attn_type") == "multiquery_attention", s.boolean(m + "tie_word_embeddings")
        alibi, rope = s.flag(m + "attn_config.alibi"), s.flag(m + "attn_config.rope")
        s.puts("model", kind="decoder", layers=s.integer(m + "n_layers") or 24, width=width, heads=heads, tied_head=tied is not False,
               kv_heads=s.integer(m + "attn_config.kv_n_heads") or (1 if alone else heads), vocab=s.integer(m + "vocab_size") or 50368,
               ffn_width=s.integer(m + "ffn_config.ffn_hidden_size") or int(ratio * width), bias=not s.flag(m + "no_bias"), fused_projections=True,
               feed_forward="gated" if s.text(m + "ffn_config.ffn_type") == "mptglu" else "plain", norm="rms" if "rms" in s.text(m + "norm_type") else "layer",
               experts=s.integer(m + "ffn_config.moe_num_experts"), active_experts=s.integer(m + "ffn_config.moe_top_k"),
               learned_positions=None if alibi or rope else length)
        s.lost("attn_config.alibi: positions cost nothing here", alibi)
    else:
        name_model(s.into, s.text(m + "pretrained_model_name_or_path"))
        s.lost("model.config_overrides: the sizes of the named model are taken", s.has(m + "config_overrides."))
        s.put_lora(s.integer(m + "peft_config.r"), s.number(m + "peft_config.lora_alpha"), s.list(m + "peft_config.target_modules"))
    precision, shards = s.text("precision"), s.has(c)
    mixed, strategy = s.text(c + "mixed_precision", default="DEFAULT").upper(), s.text(c + "sharding_strategy", default="FULL_SHARD").lower().lstrip("_").replace("zero2", "grad_op")
    if precision:
        low = "fp32" if mixed == "FULL" else precision.replace("amp_", "")
        s.put_dtypes(low, low if mixed == "PURE" or not shards else "fp32")
        s.put("fsdp.fp8_products", True if low == "fp8" else None)
    else:
        s.ask_dtype("precision is not in the file")
    s.puts("fsdp", preset="fsdp1" if shards else "fsdp2", strategy=strategy if shards else "no_shard", wrap="block")
    s.puts("mesh", ranks=ranks, shard=min(8, ranks) if ranks and "hybrid" in strategy else None, replicate=max(1, ranks // 8) if ranks and "hybrid" in strategy else None)
    before, forward, limit = s.text(c + "backward_prefetch", default="BACKWARD_POST").lower(), s.flag(c + "forward_prefetch"), s.boolean(c + "limit_all_gathers")
    if shards:
        s.puts("fsdp", backward_prefetch={"backward_pre": "pre", "backward_post": "post"}.get(before, "none"), forward_prefetch="explicit:1" if forward else None,
               all_gather_limit="unlimited" if limit is False else None)
    s.on("fsdp.activation_checkpointing", True, c + "activation_checkpointing")
    s.on("fsdp.cpu_offload", "all", c + "cpu_offload")
    s.lost("fsdp_config.activation_cpu_offload: activations stay on the device here", s.flag(c + "activation_cpu_offload"))
    micro = s.text("device_train_microbatch_size", default="not given")
    s.put_batch(s.integer("global_train_batch_size"), int(micro) if micro.isdigit() else None, ranks)
    s.ask("train.batch_per_rank", f"device_train_microbatch_size = {micro}, which a run finds out: --set train.batch_per_rank")
    s.puts("train", seq_len=length, accumulate_mode=None if shards else "no_sync")
    s.put_optimizer(s.text("optimizer.name"), "decoupled_adamw")
    s.copy(ADAM, "optimizer.")
    clip, threshold = "algorithms.gradient_clipping.", s.number("algorithms.gradient_clipping.clipping_threshold")
    s.put("train.clip_norm", threshold if s.text(clip + "clipping_type", default="norm") == "norm" else None)


def _of_verl(f: Settings) -> bool:
    return f.format in ("yaml", "arguments") and (f.any("actor_rollout_ref.", "trainer.n_gpus_per_node", "model.partial_pretrain", "data.micro_batch_size_per_gpu")
                                                  or any("verl.trainer" in word for word in f.texts))


@importer("verl", "overrides on a command line, or YAML", 30, _of_verl)
def read_verl(s: Source) -> None:
    tuned = "fsdp2" if any("fsdp_sft_trainer" in word for word in s.settings.texts) or s.has("model.partial_pretrain") else "fsdp"
    if s.has("actor_rollout_ref."):
        a, m, o, c = "actor_rollout_ref.actor.", "actor_rollout_ref.model.", "actor_rollout_ref.actor.optim.", "actor_rollout_ref.actor.fsdp_config."
    else:
        a, m, o, c = "engine.", "model.", "optim.", "engine." if s.has("engine.") else "model.fsdp_config."
    name_model(s.into, s.text(m + "path", m + "partial_pretrain"))
    gpus, nodes, launched = s.integer("trainer.n_gpus_per_node"), s.size("trainer.nnodes"), s.launched()
    ranks = s.known.ranks or (gpus and gpus * nodes) or launched
    bases = [str(s.take(name)) for name in [*s.values] if re.match(r"config-name$|defaults\.\d", name)]  # ppo_megatron_trainer has the strategy
    megatron = any("megatron" in base for base in bases) or s.has(a + "megatron.")
    strategy = s.text(a + "strategy", m + "strategy", "engine", default="megatron" if megatron else tuned).lower()
    s.put_lora(s.integer(m + "lora_rank", m + "lora.rank"), s.number(m + "lora_alpha", m + "lora.alpha") or 16.0,
               s.list(m + "target_modules") or s.list(m + "lora.target_modules") or ["all"])
    s.put_dtypes(s.text(c + "dtype", default="bfloat16"), "fp32")
    context = s.size(a + "ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size", c + "ulysses_sequence_parallel_size")
    if strategy in ("fsdp", "fsdp2"):
        size, frees = s.integer(c + "fsdp_size") or -1, s.boolean(c + "reshard_after_forward") is not False
        data = s.put_mesh(ranks, None, ranks // size if ranks and 0 < size < ranks else 1, 1, context, frees, "ulysses_sequence_parallel_size", True)
        s.puts("fsdp", preset="fsdp1" if strategy == "fsdp" else "fsdp2", wrap="block", forward_prefetch="explicit:1" if s.flag(c + "forward_prefetch") else None)
    elif strategy == "megatron":
        c = a + "megatron."
        tensor, expert = (s.size(f"{c}{name}_model_parallel_size") for name in ("tensor", "expert"))
        ranks = ranks and ranks // s.stages(c + "pipeline_model_parallel_size")
        s.puts("fsdp", preset="megatron-v1", strategy="shard_grad_op")
        s.put_groups(tensor, expert)
        s.puts("mesh", ranks=ranks, sequence_parallel=True if tensor > 1 else None)
        s.put("train.accumulate_mode", "no_sync")
        s.lost("strategy = megatron: Megatron-FSDP with its optimizer sharded stands for the distributed optimizer")
        split = s.put_context(c + "context_parallel_size", s.size(c + "context_parallel_size"), "mesh.tensor" if tensor > 1 else "")
        data = ranks and ranks // (tensor * split)
    else:
        raise Refused(f"{s.path}: verl's strategy {strategy}: fsdp, fsdp2 and megatron can be imported.")
    s.put("fsdp.activation_checkpointing", s.boolean(m + "enable_gradient_checkpointing") is not False or None)
    policy, moved = s.flag(c + "offload_policy"), [s.flag(c + name) for name in ("param_offload", "optimizer_offload", "grad_offload")]
    s.put("fsdp.cpu_offload", "all" if policy and strategy == "fsdp2" else None)
    s.lost("param_offload, optimizer_offload: verl moves them to the host between phases, not within a step", any(moved))
    prompt, answer = s.integer("data.max_prompt_length"), s.integer("data.max_response_length")
    length = prompt + answer if prompt and answer else s.integer("data.max_length")
    local, together = s.integer(a + "ppo_micro_batch_size_per_gpu", "data.micro_batch_size_per_gpu"), s.integer(a + "ppo_micro_batch_size", "data.micro_batch_size")
    local = local or (max(1, together // data) if together and data else None)
    samples, many = s.integer(a + "ppo_mini_batch_size", "data.train_batch_size"), s.size("actor_rollout_ref.rollout.n")
    tokens = s.integer(a + "ppo_max_token_len_per_gpu", "data.max_token_len_per_gpu")
    if s.flag(a + "use_dynamic_bsz") | s.flag("data.use_dynamic_bsz"):
        local = max(1, tokens * context // length) if tokens and length else local
        s.lost(f"use_dynamic_bsz: microbatches of up to {tokens or 'some'} tokens; full ones of the longest sequences stand for them")
    s.put_batch(samples and samples * many, local, data)
    s.ask("train.batch_per_rank", "sequences of a microbatch (ppo_micro_batch_size_per_gpu): --set train.batch_per_rank")
    s.copy(ADAM, o)
    s.puts("train", seq_len=length, clip_norm=s.number(a + "grad_clip", o + "clip_grad") or 1.0)
    s.ignore(c + "model_dtype", c + "wrap_policy.", *(name for name in s.values if not name.startswith((a, m, c)) or name.startswith(o) or "checkpoint" in name))
