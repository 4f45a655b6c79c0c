"""The importers, one for each system; settings that map to one key each are rows of systems.toml."""

from __future__ import annotations

import re
from typing import Any, Optional

from .settings import Refused
from .source import DATA, OFF, Importer, Source, bare_name

_STRATEGIES = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard", "5": "hybrid_shard_grad_op", "true": "full_shard"}
_BEFORE = {"backward_pre": "pre", "backward_post": "post"}


@Importer("Hugging Face", "a model's config.json", 50, lambda f: f.format == "json" and f.any("model_type", "architectures."))
def read_hugging_face(s: Source) -> None:
    if not s.has("hidden_size") and s.has("text_config.hidden_size"):
        s.take("model_type")
        s.lift("text_config.")
        s.ignored += ["vision_config.", "audio_config."]
        s.lost("all but text_config: the model of the text alone is read")
    for key in [key for key in s.keys if key.startswith("model.")]:
        del s.keys[key]  # of a model that was only named
    f = s.facts("Hugging Face")
    if not f.layers or not f.width:
        raise Refused(f"{s.path}: no {'hidden_size' if f.layers else 'num_hidden_layers'}: of no language model that can be read.")
    kind, width, heads, inner = f.kind, f.width, f.heads, f.expert_width or f.inner
    s.facts(f"Hugging Face's {kind}")
    s.into.dtype = f.dtype or s.into.dtype
    s.puts("model", layers=f.layers, width=width, heads=heads, kv_heads=f.kv_heads or heads,
           ffn_width=inner or (4 * width if kind == "gpt2" else None), head_dim=f.head_dim if f.head_dim and heads and f.head_dim * heads != width else None,
           tied_head=kind.startswith(("gemma", "gpt2", "opt")) if f.tied is None else f.tied)
    if f.experts and f.experts > 1:
        x = s.facts("Hugging Face's experts")
        for name, every in (("decoder_sparse_step", x.step), ("moe_layer_freq", x.freq), ("interleave_moe_layer_step", x.interleave)):
            s.lost(f"{name} = {every}: every block has experts here", every not in (None, 1))
        # Qwen2-MoE's and Qwen3-Next's shared expert has a width of its own, and a gate by which what it gives is multiplied.
        fits = x.own and inner and x.own % inner == 0
        shared = 1 if kind == "llama4_text" else x.shared
        s.puts("model", experts=f.experts, active_experts=x.active, shared_experts=x.own // inner if fits else shared or None)
        s.lost("shared_expert_gate: the shared expert has no gate here", fits)
        s.lost(f"shared_expert_intermediate_size = {x.own}: no multiple of an expert's width", x.own and not fits)
        s.lost("topk_method = noaux_tc: the router's bias and groups of experts", x.topk == "noaux_tc")
    if f.latent and heads:
        s.puts("model", kv_heads=max(1, heads // 16), head_dim=f.value_dim)
        s.ignored += ["q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"]
        s.lost(f"kv_lora_rank = {f.latent}: latent attention; attention whose queries share {max(1, heads // 16)} heads of keys and values "
               "stands for it")
    if f.window and f.windows is not False:
        s.puts("model", attention_window=f.window, full_attention_every=2 if kind == "gpt_oss" else None)
    s.lost("biases of queries, keys and values", kind == "qwen2")
    s.lost(f"model_type = {kind or 'none'}: its blocks are read as those of a Llama", kind not in DATA["kinds"].split())
    s.lost("attention_bias = true", f.attention_bias and kind != "gpt_oss")


def _put_model(s: Source, f: Any) -> None:
    m = s.facts("Megatron-LM's model")
    s.puts("model", layers=f.layers, tied_head=not m.untied, feed_forward="gated" if m.gated else "plain",
           norm="rms" if m.norm == "RMSNorm" else "layer", bias=not m.no_bias, width=m.width, heads=m.heads,
           kv_heads=m.groups if m.grouped and m.groups else m.heads, ffn_width=m.inner or (m.width and 4 * m.width),
           learned_positions=m.positions if m.embedding in ("", "learned_absolute") else None)
    known = next((rows for name in (m.tokenizer, m.tokenizer_type) for pattern, rows in DATA["vocabularies"] if re.search(pattern, bare_name(name))), None)
    part = (m.multiple or 128) * f.tensor
    rows = m.padded or m.vocab or (known and -(-known // part) * part)
    s.put("model.vocab", rows)
    if not rows:
        s.into.missing["model.vocab"] = f"the vocabulary, which is the tokenizer's{f' ({m.tokenizer})' if m.tokenizer else ''}: --set model.vocab=ROWS"
    s.lost(f"no --vocab-size: {rows}, as the tokenizer has, filled up to a multiple of {part}", rows and not (m.padded or m.vocab))
    if not m.experts:
        return
    x = s.facts("Megatron-LM's experts")
    each = x.one or m.inner or 0
    fits = x.shared and each and x.shared % each == 0
    s.puts("model", experts=m.experts, active_experts=x.active or 2, ffn_width=x.one, shared_experts=x.shared // each if fits else None)
    s.lost("moe-shared-expert-overlap: a shared expert is computed before rows leave", fits and x.overlaps)
    s.lost(f"moe-shared-expert-intermediate-size = {x.shared}: no multiple of an expert's width", x.shared and not fits)
    # A negative factor is none, and then no policy drops anything.
    s.lost(f"--moe-expert-capacity-factor {x.capacity or 0:g}: experts take all rows here", (x.capacity or 0) > 0)


def _put_recomputation(s: Source, f: Any, blocks: Optional[int], against: str) -> None:
    """--recompute-granularity: whole layers, or of each layer the modules that --recompute-modules names, core_attn where it names none.
    against: what keys do not let modules alone be recomputed with."""
    granularity = f.granularity or ("selective" if f.recompute_activations else "")
    modules = (f.modules + s.settings.more_words.get("recompute-modules", [])) or ["core_attn"]
    if granularity in ("", "none", "None"):
        return
    if granularity != "selective":
        some = f.method == "block" and blocks and 0 < f.recomputed < blocks
        s.puts("fsdp", activation_checkpointing=True, checkpoint_every=-(-blocks // f.recomputed) if blocks and some else None)
        return s.lost(f"--recompute-num-layers {f.recomputed}: each layer stands for it", f.method in ("", "uniform") and f.recomputed > 1)
    feed_forward = "moe" if "model.experts" in s.keys else "mlp"  # of models with experts every layer has them here
    taken = feed_forward if feed_forward in modules else "core_attn" if "core_attn" in modules else ""
    modules, whole = [module for module in modules if module != taken], taken == feed_forward
    s.put("fsdp.activation_checkpointing", True if taken and (whole or not against) else None)
    s.put("fsdp.checkpoint_keeps", ("all_but_feed_forward" if whole else "all_but_attention") if taken and not against else None)
    s.lost(f"--recompute-modules {taken}: with {against} {'whole layers stand for it' if whole else 'nothing is recomputed for it'}", taken and against)
    s.lost(f"--recompute-modules {' '.join(modules)}: what {'it saves is' if len(modules) == 1 else 'they save is'} kept here", modules)


@Importer("Megatron-LM", "arguments, one or more a line, or a script that calls it", 0, lambda f: f.format == "arguments" and f.any(
    "num-layers", "hidden-size", "micro-batch-size", "global-batch-size", "tensor-model-parallel-size", "use-megatron-fsdp",
    "use-distributed-optimizer", "data-parallel-sharding-strategy", "recompute-granularity"))
def read_megatron(s: Source) -> None:
    f, all_ranks = s.facts("Megatron-LM"), s.launched()
    ranks = all_ranks and all_ranks // f.pipeline
    if f.layers:
        _put_model(s, f)
    rewrite, fsdp = f.version == 2, f.fsdp | f.custom
    s.lost("--use-megatron-fsdp is not among the flags; Megatron-FSDP stands for the distributed optimizer", not fsdp and not f.torch)
    sharding = f.sharding or "no_shard"
    sharding = "optim_grads_params" if f.torch else "optim" if not fsdp and f.distributed and sharding == "no_shard" else sharding
    full, split = sharding == "optim_grads_params", sharding != "no_shard"
    s.puts("fsdp", preset="fsdp2" if f.torch else "megatron-v2" if rewrite else "megatron-v1",
           reshard_after_forward=False if rewrite and split and not full else None,
           reduce_lane="compute" if not f.overlaps and sharding in ("optim", "no_shard") else None)
    s.put("mesh.ranks", ranks)
    s.put_strategy(full, split, f.replicate, ranks and ranks // f.replicate)
    s.put("train.accumulate_mode", "no_sync" if sharding == "optim" else None)
    if f.unit is not None and not rewrite:
        window = "none" if f.unit == 1 else f"window:{f.unit // 2}"
        s.puts("fsdp", forward_prefetch=window, backward_prefetch=window, reduce_scatter_elements=f.unit)
    s.put("nccl.register_buffers", None if not f.buffers else "local" if f.asymmetric else "window")
    s.put("fsdp.gradient_scaling", "average" if f.average else "sum")
    s.lost("neither --bf16 nor --fp16: fp32, as Megatron-LM computes then", f.layers and not (f.bf16 or f.fp16))
    s.put_dtypes("fp16" if f.fp16 else "bf16" if f.bf16 else "fp32", "bf16" if f.low_reduce else f.reduce or "fp32")
    if f.fp8.lower() not in ("", "none", "null", "false"):
        recipe = f.recipe or "delayed"
        s.puts("fsdp", fp8_products=True, fp8_recipe={"mxfp8": "mx", "tensorwise": "tensorwise"}.get(recipe, "delayed"))
        s.lost(f"--fp8-recipe {recipe}: delayed stands for it", recipe not in ("mxfp8", "delayed", "tensorwise"))
    s.put_groups(f)
    tensor, expert = "mesh.tensor" if f.tensor > 1 else "", "mesh.expert" in s.keys
    context = s.put_context(f.context_name, f.context, tensor or ("mesh.expert" if expert else "" if split else "fsdp.strategy = no_shard"))
    kinds = [f.exchange or "p2p", *s.settings.more_words.get("cp-comm-type", [])]  # one for all layers or one for each
    s.lost(f"--cp-comm-type {' '.join(kinds)}: all_gather stands for it; rings and exchanges of heads are not simulated",
           context > 1 and {*kinds} != {"all_gather"})
    _put_recomputation(s, f, s.keys.get("model.layers"), tensor or ("mesh.context" if context > 1 else "fsdp.expert_unit" if rewrite and expert else ""))
    s.put_batch(f.batch, f.local, ranks and ranks // (f.tensor * context))


@Importer("Primus", "YAML of an experiment with Megatron-LM or torchtitan", 30, lambda f: f.format == "yaml" and f.has("modules."))
def read_primus(s: Source) -> None:
    prefix = next((name[:-len("framework")] for name in s.values if name.startswith("modules.") and name.endswith(".framework")), "modules.")
    framework, model = s.text(prefix + "framework"), s.text(prefix + "model")
    if framework not in ("megatron", "torchtitan"):
        raise Refused(f"{s.path}: Primus' framework {framework or '(none)'}: megatron and torchtitan can be imported.")
    s.name_model(model)
    s.lift(prefix + "overrides.")
    s.lift(prefix)
    if framework == "torchtitan":
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


@Importer("nanotron", "YAML", 30, lambda f: f.format == "yaml" and f.has("parallelism.", "tokens.") and f.any("model.model_config.", "optimizer.zero_stage"))
def read_nanotron(s: Source) -> None:
    m, f = "model.model_config.", s.facts("nanotron")
    part = f.multiple * f.tensor
    other = next((name[len(m):] for name in s.values if name.startswith(m + "is_") and name not in (m + "is_llama_config", m + "is_qwen2_config")), "")
    if other or s.has(m + "moe_config."):
        raise Refused(f"{s.path}: {other or 'moe_config'}: nanotron's models of Llama's and Qwen2's kind can be imported.")
    if s.has(m):
        s.values["model_type"] = "qwen2" if s.flag(m + "is_qwen2_config") else "llama"
        s.lift(m)
        read_hugging_face(s)
        s.puts("model", fused_projections=True, vocab=-(-int(s.keys["model.vocab"]) // part) * part if "model.vocab" in s.keys else None)
    stage, dtype = f.stage or 0, f.dtype or "bfloat16"
    s.puts("fsdp", preset="deepspeed-z1" if stage else "fsdp2", strategy=None if stage else "no_shard", fp32_gradients=f.wide or None)
    s.lost("optimizer.zero_stage = 1: DeepSpeed's ZeRO-1 stands for nanotron's", stage)
    s.put_dtypes(dtype, "fp32" if f.wide else dtype)
    f.sequence = f.mode == "REDUCE_SCATTER"
    s.put_groups(f)
    s.put("mesh.ranks", f.data * f.tensor * f.context * f.expert)
    s.put_context(f.context_name, f.context, "mesh.tensor" if f.tensor > 1 else "" if stage else "fsdp.strategy = no_shard")


@Importer("torchtitan", "TOML, or the arguments of newer versions", 25, lambda f: f.format in ("toml", "arguments") and f.any("training.", "parallelism."))
def read_torchtitan(s: Source) -> None:
    for name in [name for name in s.values if "-" in name and s.settings.format == "arguments"]:
        s.values[name.replace("-", "_")] = s.values.pop(name)
    f = s.facts("torchtitan")
    s.name_model(f"{f.name}-{f.flavor}" if f.flavor and f.flavor.lower() not in f.name.lower() else f.name or f.module)
    s.lost(f"model.flavor = {f.flavor}", f.flavor and "model.preset" not in s.keys)
    s.puts("fsdp", preset="torchtitan-moe" if f.expert > 1 else "fsdp2")
    f.local = f.local or (max(1, f.tokens // f.length) if f.tokens and f.length else None)
    f.batch = f.batch or (f.all_tokens // f.length if f.all_tokens and f.length else None)
    # Ranks that split sequences shard parameters, too (its mesh dp_shard_cp), and are not among those of data_parallel_shard_degree.
    s.put_mesh(s.launched(), f)
    s.lost(f"context_parallel_rotate_method = {f.ring or 'allgather'}: here keys and values are gathered before attention, and nothing goes "
           "around a ring", "mesh.context" in s.keys)
    s.put("fsdp.reshard_after_forward", True if f.reshard == "always" else False if f.reshard == "never" and s.keys["fsdp.strategy"] != "no_shard" else None)
    s.put("train.seq_len", f.length)
    if any("float8" in name for name in f.converters):
        s.puts("fsdp", fp8_products=True, fp8_recipe="rowwise" if f.recipe.startswith("rowwise") else "tensorwise")
    s.put_recomputation(f.mode, int(f.option) if f.option.isdigit() and f.mode == "selective" else None)
    s.lost("activation_checkpoint.mode is not said, and differs by version of torchtitan", not f.mode)
    s.put("simulate.fused_optimizer", True if f.implementation == "fused" else None)
    # It compiles its blocks and its loss, or what [compile] components names (its torchtitan/config/job_config.py since August 2025).
    # Before, [training] compile stood for both, and the loss was left out from 2024-12-18 (e8977b0) to 2025-04-02 (bbb1b61).
    model, loss = (bool(f.compiles) and (not f.components or what in f.components) for what in ("model", "loss"))
    s.put("simulate.compiled", True if f.compiled or model else None)
    s.lost("training.compile: versions from 2024-12-18 to 2025-04-02 do not compile the loss; of those say simulate.loss = \"eager\"", f.compiled)
    eager = not loss and f.compiles is not None and f.tensor == 1
    s.put("simulate.loss", None if f.compiled or (loss and model) else "fused" if loss else "eager" if eager else None)


# No recipes for drafts, embeddings or distillation, which have other models beside the one that is named.
@Importer("NeMo Automodel", "YAML of a recipe for a language model", 30, lambda f: f.format == "yaml" and f.has(
    "distributed.", "model.", "step_scheduler.") and re.search(
        r"(?<!Distillation)RecipeFor(NextTokenPrediction|VLM)$", str(f.values.get("recipe", "RecipeForNextTokenPrediction"))))
def read_automodel(s: Source) -> None:
    f = s.facts("NeMo Automodel")
    strategy = f.strategy.lower() or re.sub(r".*\.|manager$", "", f.manager.lower())
    f.shard = f.data and f.data // f.replicate
    s.put_lora(f.lora_rank, f.lora_alpha, f.lora_targets or ["all"] * f.lora_all)
    s.put("fsdp.preset", "torchtitan-moe" if f.expert > 1 else "fsdp2")
    s.put_mesh(s.into.ranks, f)
    s.put("fsdp.strategy", "no_shard" if strategy == "ddp" else None)
    s.put("fsdp.preset", "megatron-v1" if strategy in ("megatron_fsdp", "megatronfsdp") else None)
    s.lost(f"distributed.strategy = {strategy}: FSDP2 stands for it", strategy not in ("", "fsdp2", "ddp", "megatron_fsdp", "megatronfsdp"))
    s.put_recomputation(f.recompute.lower())
    s.put("train.seq_len", f.length or None)


@Importer("prime-rl", "TOML", 30, lambda f: f.format == "toml" and not f.any("training.", "parallelism.") and (
    f.any("orchestrator.", "trainer.model.", "trainer.optim.") or f.has("model.name") and f.any("optim.", "data.seq_len", "data.batch_size")))
def read_prime(s: Source) -> None:
    adapts = s.has("model.lora.") or s.has("trainer.model.lora.")
    f = s.facts("prime-rl")
    s.put_lora(f.lora_rank or (16 if adapts else None), f.lora_alpha or 32.0, f.lora_targets or ["all"])
    s.put("fsdp.preset", "torchtitan-moe" if f.expert > 1 else "fsdp2")
    heads = f.cp_style == "ulysses"
    s.put_mesh(s.into.ranks or f.gpus or (f.nodes and f.nodes * (f.gpus_per_node or 8)), f, f.frees is not False, heads)
    s.lost("model.cp_style = ring: a gather of keys and values stands for the ring", "mesh.context" in s.keys and not heads)
    s.lost("model.ac is not said: whole blocks are recomputed, as since 2026; versions before recompute nothing", not f.every and not f.mode)
    s.put_recomputation(f.mode or "full", f.every)
    s.put("simulate.compiled", True if s.has("model.compile.") else None)


@Importer("llm-foundry", "YAML of Composer's train.py, or of mcli with its parameters", 30, lambda f: f.format == "yaml" and any(
    f.values.get(top + "model.name") in ("mpt_causal_lm", "hf_causal_lm") and f.any(*(
        top + name for name in ("device_train_microbatch_size", "global_train_batch_size", "train_loader."))) for top in ("", "parameters.")))
def read_foundry(s: Source) -> None:
    shards = s.has("fsdp_config.") or s.has("parameters.fsdp_config.")
    overrides = s.has("model.config_overrides.") or s.has("parameters.model.config_overrides.")
    f = s.facts("llm-foundry")
    ranks = s.into.ranks or f.gpus
    if f.kind == "mpt_causal_lm":  # with the defaults of its MPTConfig
        m = s.facts("MPT")
        width, heads = m.width or 2048, m.heads or 16
        s.puts("model", width=width, heads=heads, kv_heads=m.kv_heads or (1 if m.attention == "multiquery_attention" else heads),
               ffn_width=m.inner or int((m.ratio or 4) * width), feed_forward="gated" if m.feed_forward == "mptglu" else "plain",
               norm="rms" if "rms" in m.norm_type else "layer", bias=not m.no_bias, tied_head=m.tied is not False,
               learned_positions=None if m.alibi or m.rope else f.length)
        s.lost("attn_config.alibi: positions cost nothing here", m.alibi)
    else:
        s.lost("model.config_overrides: the sizes of the named model are taken", overrides)
        s.put_lora(f.lora_rank, f.lora_alpha, f.lora_targets)
    mixed, strategy = f.mixed.upper(), (f.strategy or "full_shard").lower().lstrip("_").replace("zero2", "grad_op")
    if f.precision:
        low = "fp32" if mixed == "FULL" else f.precision.replace("amp_", "")
        s.put_dtypes(low, low if mixed == "PURE" or not shards else "fp32")
        s.put("fsdp.fp8_products", True if low == "fp8" else None)
    else:
        s.ask_dtype("precision is not in the file")
    s.puts("fsdp", preset="fsdp1" if shards else "fsdp2", strategy=strategy if shards else "no_shard")
    if ranks and "hybrid" in strategy:
        s.puts("mesh", shard=min(8, ranks), replicate=max(1, ranks // 8))
    s.put("fsdp.backward_prefetch", _BEFORE.get(f.before.lower() or "backward_post", "none") if shards else None)
    s.put("mesh.ranks", ranks)
    s.put_batch(f.batch, int(f.micro) if f.micro.isdigit() else None, ranks)
    s.into.missing["train.batch_per_rank"] = f"device_train_microbatch_size = {f.micro or 'not given'}, which a run finds out: --set train.batch_per_rank"
    s.puts("train", seq_len=f.length, accumulate_mode=None if shards else "no_sync", clip_norm=f.clip if f.clipping in ("", "norm") else None)


@Importer("verl", "overrides on a command line, or YAML", 30, lambda f: f.format in ("yaml", "arguments") and (f.any(
    "actor_rollout_ref.", "trainer.n_gpus_per_node", "model.partial_pretrain", "data.micro_batch_size_per_gpu") or any(
        "verl.trainer" in word for word in f.texts)))
def read_verl(s: Source) -> None:
    tuned = "fsdp2" if any("fsdp_sft_trainer" in word for word in s.settings.texts) or s.has("model.partial_pretrain") else "fsdp"
    bases = [str(s.take(name)) for name in [*s.values] if re.match(r"config-name$|defaults\.\d", name)]  # ppo_megatron_trainer has the strategy
    # The actor, or supervised training, which has other tables.
    a, m, o, c = (f"actor_rollout_ref.{name}." for name in ("actor", "model", "actor.optim", "actor.fsdp_config")) if s.has("actor_rollout_ref.") else (
        "engine.", "model.", "optim.", "engine." if s.has("engine.") else "model.fsdp_config.")
    megatron = any("megatron" in base for base in bases) or s.has(a + "megatron.")
    s.ignored += [c + "model_dtype", c + "wrap_policy.", *(name for name in s.values if not name.startswith((a, m, c)) or name.startswith(o) or "checkpoint" in name)]
    f = s.facts("verl", a=a, m=m, o=o, c=c)
    launched = s.launched()
    ranks = s.into.ranks or (f.gpus and f.gpus * f.nodes) or launched
    strategy = (f.strategy or ("megatron" if megatron else tuned)).lower()
    s.put_lora(f.lora_rank, f.lora_alpha or 16.0, f.lora_targets or ["all"])
    s.put_dtypes(f.dtype or "bfloat16", "fp32")
    f.context_name = "ulysses_sequence_parallel_size"
    g = s.facts("verl's table", c=a + "megatron." if strategy == "megatron" else c)
    if strategy in ("fsdp", "fsdp2"):
        f.replicate = ranks // f.group if ranks and f.group and 0 < f.group < ranks else 1
        data = s.put_mesh(ranks, f, f.frees is not False, True)
        s.puts("fsdp", preset="fsdp1" if strategy == "fsdp" else "fsdp2", wrap="block")
    elif strategy == "megatron":
        ranks = ranks and ranks // g.pipeline
        s.puts("fsdp", preset="megatron-v1", strategy="shard_grad_op")
        g.sequence = True
        s.put_groups(g)
        s.puts("train", accumulate_mode="no_sync")
        s.put("mesh.ranks", ranks)
        s.lost("strategy = megatron: Megatron-FSDP with its optimizer sharded stands for the distributed optimizer")
        split = s.put_context(g.context_name, g.context, "mesh.tensor" if g.tensor > 1 else "")
        data = ranks and ranks // (g.tensor * split)
    else:
        raise Refused(f"{s.path}: verl's strategy {strategy}: fsdp, fsdp2 and megatron can be imported.")
    s.put("fsdp.activation_checkpointing", f.recompute is not False or None)
    s.put("fsdp.cpu_offload", "all" if g.offload and strategy == "fsdp2" else None)
    s.lost("param_offload, optimizer_offload: verl moves them to the host between phases, not within a step",
           g.parameters or g.states or g.gradients)
    length = f.prompt + f.answer if f.prompt and f.answer else f.length
    local = f.local or (max(1, f.together // data) if f.together and data else None)
    if f.dynamic | f.dynamic_data:
        local = max(1, f.tokens * f.context // length) if f.tokens and length else local
        s.lost(f"use_dynamic_bsz: microbatches of up to {f.tokens or 'some'} tokens; full ones of the longest sequences stand for them")
    s.put_batch(f.samples and f.samples * f.answers, local, data)
    s.into.missing["train.batch_per_rank"] = "sequences of a microbatch (ppo_micro_batch_size_per_gpu): --set train.batch_per_rank"
    s.put("train.seq_len", length)


def _read_fsdp(s: Source, ranks: Optional[int], machines: int, mesh: Any, version: Optional[int] = None) -> None:
    """fsdp_config. mesh: facts of replicas, shards, and ranks that split layers and sequences, where there are any."""
    f = s.facts("fsdp_config")
    first = (f.version or version or 1) == 1
    s.put("fsdp.preset", "fsdp1" if first else "fsdp2")
    reshard = (f.reshard or ("full_shard" if first else "true")).lower()
    if first:
        strategy = (f.strategy or reshard).lower().lstrip("_").replace("zero2", "grad_op")
        word = _STRATEGIES.get(strategy, strategy)
        if word not in _STRATEGIES.values():
            raise Refused(f"fsdp_sharding_strategy = {strategy}: no such strategy.")
        s.puts("fsdp", strategy=word, backward_prefetch=_BEFORE.get(f.before.lower() or "backward_pre", "none"), forward_prefetch="explicit:1" if f.forward else None)
        if word.startswith("hybrid") and ranks:
            s.puts("mesh", shard=max(1, ranks // max(1, machines)), replicate=max(1, machines))
        s.lost("ranks that split layers or sequences: they need fsdp_version 2", mesh and max(mesh.tensor, mesh.context) > 1)
    else:
        frees = reshard in ("true", "full_shard")
        s.puts("fsdp", strategy="full_shard" if frees else "shard_grad_op", head_unit=True)
        if mesh:
            s.put_mesh(ranks, mesh, frees)
    s.put("fsdp.wrap", {"TRANSFORMER_BASED_WRAP": "block", "SIZE_BASED_WRAP": f"size:{f.least or 100_000_000}"}.get(f.wrap, "model"))


@Importer("Accelerate", "the YAML of `accelerate config`", 20, lambda f: f.format == "yaml" and (
    f.has("distributed_type") or f.has("fsdp_config.", "mixed_precision")))
def read_accelerate(s: Source) -> None:
    f = s.facts("Accelerate")
    kind, alone = f.kind.upper() or "FSDP", f.kind.upper() in ("NO", "FALSE")
    ranks = 1 if alone else s.into.ranks or f.ranks
    s.put("mesh.ranks", ranks)
    precision = f.precision.lower().replace("false", "no")
    s.put_dtypes(precision, precision)
    s.put("fsdp.fp8_products", True if precision == "fp8" else None)
    if not precision:
        s.ask_dtype("mixed_precision is not in the file")
    s.lost(f"mixed_precision = no: fp32, unless the job loads the weights as they are stored, which is {s.into.dtype}",
           precision == "no" and s.into.dtype in ("bfloat16", "float16"))
    p, z, heads = "parallelism_config.parallelism_config_", "deepspeed_config.", "parallelism_config.parallelism_config_sp_size"
    if alone or kind.startswith("MULTI_"):
        s.puts("fsdp", preset="fsdp2", strategy="no_shard")
    elif kind == "FSDP":
        sizes = any(s.values.get(f"{p}{name}_size") for name in ("dp_replicate", "dp_shard", "tp", "cp"))
        mesh = s.facts("parallelism_config")
        mesh.shard = mesh.shard or 1
        _read_fsdp(s, ranks, f.machines, mesh if sizes else None)
    elif kind == "DEEPSPEED" and s.has(z + "zero_stage") and "DeepSpeed" not in s.into.others:
        s.lift(z)
        s.put_context(heads, s.size(heads), "", True)
        s.values["bf16.enabled"] = "auto"  # what mixed_precision has put
        read_deepspeed(s)
    elif kind != "DEEPSPEED" or "DeepSpeed" not in s.into.others:
        raise Refused(f"{s.path}: distributed_type = {kind}: FSDP, MULTI_GPU and NO can be imported; for DEEPSPEED, import its JSON.")


@Importer("DeepSpeed", "JSON", 10, lambda f: f.format == "json" and f.any("zero_optimization.", "train_micro_batch_size_per_gpu", "train_batch_size"))
def read_deepspeed(s: Source) -> None:
    z, of_trainer = "zero_optimization.", "auto" in s.values.values()
    # The Trainer makes these of the model's width, and others of its own arguments.
    auto = sorted(name for name, value in s.values.items() if value == "auto" and name.startswith(z))
    given = {"train_micro_batch_size_per_gpu": "train.batch_per_rank", "gradient_accumulation_steps": "train.accumulate", "train_batch_size": "train.batch_per_rank"}
    for name in [name for name, value in s.values.items() if value == "auto" and (name in auto or given.get(name) in s.keys or re.match(
            r"optimizer\.params|scheduler|gradient_clipping", name))]:
        del s.values[name]
    s.lost(f"{', '.join(name[len(z):] for name in auto)} = auto: DeepSpeed's defaults stand for what the Trainer makes of the model's width", auto)
    f = s.facts("DeepSpeed")
    stage = f.stage or 0
    if not 0 <= stage <= 3:
        raise Refused(f"zero_optimization.stage = {stage}: 0, 1, 2 or 3.")
    s.keys.pop("fsdp.strategy", None)  # of a trainer's file, which names this one
    s.put("fsdp.preset", f"deepspeed-z{stage}" + "-hpz" * (stage == 3 and f.secondary > 1) if stage else "fsdp2")
    by = f.whole if f.scatter is None or stage < 3 else not f.scatter
    s.puts("fsdp", reduce_by=None if by is None else "all_reduce" if by else "reduce_scatter")
    if stage:
        s.puts("fsdp", reduce_bucket=f.bucket, reduce_lane=None if f.overlap is None else "reduce_scatter" if f.overlap else "compute")
    else:
        s.put("fsdp.strategy", "no_shard")
        s.put("train.accumulate_mode", "no_sync")
    if stage == 3:
        more = s.facts("DeepSpeed-3")
        prefetch = None if more.rate is None else f"rate:{more.rate}" if more.rate > 0 else "none"
        s.puts("fsdp", reshard_after_forward=f.secondary if f.secondary > 1 else None, forward_prefetch=prefetch, backward_prefetch=prefetch)
    s.lost("offload to nvme: memory of the host stands for it", "nvme" in (f.states, f.parameters))
    s.put("fsdp.cpu_offload", "all" if f.parameters not in OFF and stage == 3 else "optimizer" if f.states not in OFF else None)
    local, accumulate, ranks = f.local, f.accumulate, s.into.ranks
    if f.batch and ranks:  # is the product of the three, or DeepSpeed does not begin; what is not given it completes
        split, given = s.keys.get("mesh.context", 1), (local or 1) * (accumulate or 1)
        most = f.batch // given if f.batch % given == 0 else 0
        fit = [most] * bool(most) if local and accumulate else [number for number in range(1, min(most, 1 << 20) + 1) if most % number == 0]
        if ranks not in [split * number for number in fit]:
            raise Refused(f"{s.path}: train_batch_size = {f.batch} on {ranks} ranks: DeepSpeed wants the product of microbatch, accumulation and "
                          f"ranks, which it is on {', '.join(str(split * number) for number in fit) or 'no number of'} ranks.")
        if not (local or of_trainer):
            local, accumulate = most // (ranks // split), accumulate or 1
    s.put_batch(None if accumulate else f.batch, local, ranks)
    s.put("train.accumulate", accumulate)
    said = (f.low, f.half)
    if "auto" in said and "true" not in said:
        s.ask_dtype("bf16.enabled = auto is what the Trainer is told", f.reduced)
    elif not any(said) and (of_trainer or "fsdp.param_dtype" in s.keys):
        s.ask_dtype("neither bf16 nor fp16 is in the file, which the Trainer fills in", f.reduced)
    else:
        s.lost("neither bf16 nor fp16 is in the file: fp32, as DeepSpeed computes then", not any(said))
        low = "fp16" if f.half == "true" else "bf16" if "true" in said else "fp32"
        s.put_dtypes(low, f.reduced or low)
    s.put("mesh.ranks", s.into.ranks)


def _read_trainer(s: Source) -> None:
    """What TrainingArguments have, of axolotl and LLaMA-Factory."""
    pure = s.values.get("pure_bf16") is True or s.values.get("bf16") == "full"
    cut = any("CutCrossEntropy" in str(value) for value in s.values.values())
    f = s.facts("Trainer")
    s.put("fsdp.state_dtype", "bf16" if pure else None)
    s.put("simulate.loss", "fused" if cut else None)
    is_low = f.low.lower() in ("true", "auto", "full", "1")
    if is_low or f.half.lower() in ("true", "1"):
        s.put_dtypes("bf16" if is_low else "fp16", "bf16")
    elif f.low.lower() == "false":
        s.put_dtypes("fp32", "fp32")
        s.lost("bf16 = false: fp32")
    else:
        s.ask_dtype("neither bf16 nor fp16 is in the file")
    file, others = f.deepspeed, s.into.others
    if file.lower() not in OFF and "DeepSpeed" not in others:
        stage = re.search(r"(?:zero|z|stage)[-_]?([0-3])", file.lower())
        if not stage:
            raise Refused(f"{s.path}: deepspeed = {file}: import that file, too.")
        number = stage.group(1)
        s.puts("fsdp", preset="fsdp2" if number == "0" else f"deepspeed-z{number}", strategy="no_shard" if number == "0" else None,
               cpu_offload=("all" if number == "3" else "optimizer") if "offload" in file else None)
        s.lost(f"deepspeed = {file}: its name says ZeRO-{number}; import that file, too, for its buckets and offload")
    elif not file and "fsdp.preset" not in s.keys and not others & {"DeepSpeed", "Accelerate"}:
        s.puts("fsdp", preset="fsdp2", strategy="no_shard")
        s.lost("neither FSDP nor DeepSpeed is in the file: whole models on each rank (DDP); import Accelerate's YAML or DeepSpeed's JSON, too, if there is one")


@Importer("axolotl", "YAML", 30, lambda f: f.format == "yaml" and f.has("base_model") and f.any(
    "sequence_len", "micro_batch_size", "datasets.", "adapter", "fsdp_config.", "output_dir"))
def read_axolotl(s: Source) -> None:
    f = s.facts("axolotl")
    adapter, recompute = f.adapter.lower(), f.recompute.lower() or "false"
    if adapter in ("lora", "qlora"):
        s.put_lora(f.lora_rank, f.lora_alpha, ["all"] if f.lora_all else f.lora_targets)
    s.lost(f"adapter = {adapter}: all parameters train here", adapter not in ("", "none", "lora", "qlora"))
    s.put("fsdp.activation_checkpointing", True if recompute != "false" else None)
    s.lost(f"gradient_checkpointing = {recompute}: inputs of blocks stay on the device here", recompute not in ("false", "true", "1"))
    s.put("mesh.expert", f.expert if f.expert > 1 else None)
    f.shard = f.shard and f.shard * f.expert  # ranks that split experts are ranks of data parallelism, too
    if f.fsdp or f.version or s.has("fsdp_config."):
        for word in map(str.lower, f.fsdp):
            name, value = {"auto_wrap": ("auto_wrap_policy", "TRANSFORMER_BASED_WRAP"), "offload": ("offload_params", True)}.get(word, ("sharding_strategy", word))
            if not s.has(f"fsdp_config.{name}"):
                s.values.setdefault(f"fsdp_config.fsdp_{name}", value)
        ranks = s.into.ranks or (f.shard * f.replicate * f.tensor * f.context if f.shard else None)
        _read_fsdp(s, ranks, 1, f, f.version)
    _read_trainer(s)


@Importer("LLaMA-Factory", "YAML", 30, lambda f: f.format == "yaml" and (
    f.has("model_name_or_path") and f.any("stage", "finetuning_type", "template") or f.has("model", "dist_config.name")))
def read_llama_factory(s: Source) -> None:
    f, newer = s.facts("LLaMA-Factory"), s.has("dist_config.name")
    if not newer and not f.trains:
        raise Refused(f"{s.path}: LLaMA-Factory's file trains nothing: do_train is not in it.")
    # Where a file does not say them: its own defaults, and those of TrainingArguments.
    s.puts("train", seq_len=f.length or (None if newer else 2048), batch_per_rank=f.local or (None if newer else 8))
    kind, rank = f.kind or ("full" if newer else "lora"), f.lora_rank or 8
    if kind == "lora":
        s.put_lora(rank, f.lora_alpha or 2.0 * rank, f.lora_targets or ["all"])
    s.lost(f"finetuning_type = {kind}: all parameters train here", kind not in ("full", "lora"))
    s.put("fsdp.activation_checkpointing", None if f.no_recompute or newer else True)
    f.expert = max(f.expert, f.experts)
    s.put_groups(f)
    if newer:
        engine = s.text("dist_config.name")
        s.put("fsdp.preset", "deepspeed-z3" if engine == "deepspeed" else "fsdp2")
        s.lost(f"dist_config.name = {engine}: FSDP2 stands for it", engine not in ("fsdp2", "deepspeed"))
        if engine != "deepspeed":
            s.put_mesh(s.into.ranks, f, True, f.mode == "ulysses")
        s.values.setdefault("bf16", True)  # its default
    elif s.flag("use_distributed_optimizer"):
        s.puts("fsdp", preset="megatron-v1", strategy="shard_grad_op")
        s.lost("use_distributed_optimizer: Megatron-FSDP with its optimizer sharded stands for it")
        s.ignored += ["overlap_param_gather", "overlap_grad_reduce"]
    _read_trainer(s)
