"""Accelerate, DeepSpeed, and what hands its settings to the Trainer of Hugging Face: axolotl and LLaMA-Factory."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from .models import name_model
from .settings import Refused, Settings
from .source import ADAM, Source, importer

_STRATEGIES = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard", "5": "hybrid_shard_grad_op", "true": "full_shard"}
_ALIKE = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_grad_op")
_BEFORE = {"backward_pre": "pre", "backward_post": "post"}


def _read_fsdp(s: Source, ranks: Optional[int], machines: int, mesh: "Optional[Tuple[int, Optional[int], int, int]]", name: str,
               version: Optional[int] = None) -> None:
    """fsdp_config. mesh: replicas, shards, and ranks that split layers and sequences; name: of the last."""
    def of(word: str) -> Tuple[str, str]:
        return f"fsdp_config.fsdp_{word}", f"fsdp_config.{word}"
    first = (s.integer(*of("version")) or version or 1) == 1
    s.put("fsdp.preset", "fsdp1" if first else "fsdp2")
    reshard = s.text(*of("reshard_after_forward"), default="FULL_SHARD" if first else "true").lower()
    strategy = s.text(*of("sharding_strategy"), default=reshard).lower().lstrip("_").replace("zero2", "grad_op")
    before, forward = s.text(*of("backward_prefetch"), default="BACKWARD_PRE").lower(), s.flag(*of("forward_prefetch"))
    if first:
        word = _STRATEGIES.get(strategy, strategy)
        if word not in _ALIKE:
            raise Refused(f"fsdp_sharding_strategy = {strategy}: no such strategy.")
        s.puts("fsdp", strategy=word, backward_prefetch=_BEFORE.get(before, "none"), forward_prefetch="explicit:1" if forward else None)
        if word.startswith("hybrid") and ranks:
            s.puts("mesh", shard=max(1, ranks // max(1, machines)), replicate=max(1, machines))
        s.lost("ranks that split layers or sequences: they need fsdp_version 2", mesh and max(mesh[2:]) > 1)
    else:
        frees = reshard in ("true", "full_shard")
        s.puts("fsdp", strategy="full_shard" if frees else "shard_grad_op", head_unit=True)
        if mesh:
            s.put_mesh(ranks, mesh[1], mesh[0], mesh[2], mesh[3], frees, name)
    wrap, least = s.text(*of("auto_wrap_policy"), default="NO_WRAP"), s.integer(*of("min_num_params"))
    s.put("fsdp.wrap", {"TRANSFORMER_BASED_WRAP": "block", "SIZE_BASED_WRAP": f"size:{least or 100_000_000}"}.get(wrap, "model"))
    s.on("fsdp.activation_checkpointing", True, *of("activation_checkpointing"))
    s.on("fsdp.cpu_offload", "all", *of("offload_params"))
    for word in ("state_dict_type", "final_state_dict_type", "cpu_ram_efficient_loading", "sync_module_states", "use_orig_params",
                 "transformer_layer_cls_to_wrap", "limit_all_gathers", "cpu_offload_pin_memory"):
        s.take(*of(word))


@importer("Accelerate", "the YAML of `accelerate config`", 20, lambda f: f.format == "yaml" and (
    f.has("distributed_type") or f.has("fsdp_config.", "mixed_precision")))
def read_accelerate(s: Source) -> None:
    ranks, machines, kind = s.integer("num_processes"), s.size("num_machines"), s.text("distributed_type", default="FSDP").upper()
    alone = kind in ("NO", "FALSE")
    ranks = 1 if alone else s.known.ranks or ranks
    precision = s.text("mixed_precision").lower().replace("false", "no")
    s.put_dtypes(precision, precision)
    s.put("fsdp.fp8_products", True if precision == "fp8" else None)
    if not precision:
        s.ask_dtype("mixed_precision is not in the file")
    s.lost(f"mixed_precision = no: fp32, unless the job loads the weights as they are stored, which is {s.into.dtype}",
           precision == "no" and s.into.dtype in ("bfloat16", "float16"))
    s.puts("train", accumulate_mode="no_sync", accumulate=s.integer("gradient_accumulation_steps"))
    if alone or kind.startswith("MULTI_"):
        s.puts("fsdp", preset="fsdp2", strategy="no_shard")
    elif kind == "FSDP":
        p = "parallelism_config.parallelism_config_"
        sizes = [s.integer(f"{p}{name}_size") for name in ("dp_replicate", "dp_shard", "tp", "cp")]
        s.take(p + "cp_comm_strategy")
        mesh = (sizes[0] or 1, sizes[1] or 1, sizes[2] or 1, sizes[3] or 1) if any(sizes) else None
        _read_fsdp(s, ranks, machines, mesh, p + "cp_size")
    elif kind == "DEEPSPEED" and s.has("deepspeed_config.zero_stage") and "DeepSpeed" not in s.known.systems:
        for theirs, json in (("zero_stage", "stage"), ("offload_optimizer_device", "offload_optimizer.device"), ("offload_param_device", "offload_param.device")):
            value = s.take(f"deepspeed_config.{theirs}")
            s.values.update({f"zero_optimization.{json}": value} if value is not None else {})
        s.lift("deepspeed_config.")
        heads = "parallelism_config.parallelism_config_sp_size"
        split = s.put_context(heads, s.size(heads), "")
        s.lost(f"{heads} = {split}: heads are exchanged there; gathers of keys and values stand for it", split > 1)
        s.ignore("parallelism_config.parallelism_config_dp_shard_size", "parallelism_config.parallelism_config_sp_backend")
        s.values["bf16.enabled"] = "auto"  # what mixed_precision has put
        read_deepspeed(s)
        s.ignore("zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher")
    elif kind != "DEEPSPEED" or "DeepSpeed" not in s.known.systems:
        raise Refused(f"{s.path}: distributed_type = {kind}: FSDP, MULTI_GPU and NO can be imported; for DEEPSPEED, import its JSON.")
    s.put("mesh.ranks", ranks)


@importer("DeepSpeed", "JSON", 10, lambda f: f.format == "json" and f.any("zero_optimization.", "train_micro_batch_size_per_gpu", "train_batch_size"))
def read_deepspeed(s: Source) -> None:
    z, of_trainer = "zero_optimization.", "auto" in s.values.values()
    stage = s.integer(z + "stage") or 0
    if not 0 <= stage <= 3:
        raise Refused(f"zero_optimization.stage = {stage}: 0, 1, 2 or 3.")
    secondary = s.size(z + "zero_hpz_partition_size")
    s.keys.pop("fsdp.strategy", None)  # of a trainer's file, which names this one
    s.put("fsdp.preset", f"deepspeed-z{stage}" + "-hpz" * (stage == 3 and secondary > 1) if stage else "fsdp2")
    if stage == 3:
        s.puts("fsdp", reshard_after_forward=secondary if secondary > 1 else None)
        for name in ("zero_quantized_weights", "zero_quantized_gradients"):
            s.lost(f"{name}: fewer bits on the wire are not known here", s.flag(z + name))
    elif not stage:
        s.puts("fsdp", strategy="no_shard")
        s.put("train.accumulate_mode", "no_sync")
    # The Trainer makes these of the model's width, and others of its own arguments.
    auto = sorted(name for name, value in s.values.items() if value == "auto" and name.startswith(z))
    given = {"train_micro_batch_size_per_gpu": "train.batch_per_rank", "gradient_accumulation_steps": "train.accumulate", "train_batch_size": "train.batch_per_rank"}
    s.ignore(*auto, *(name for name, value in s.values.items() if value == "auto" and (
        given.get(name) in s.keys or re.match(r"optimizer\.params|scheduler|gradient_clipping", name))))
    s.lost(f"{', '.join(name[len(z):] for name in auto)} = auto: DeepSpeed's defaults stand for what the Trainer makes of the model's width", auto)
    bucket, overlap = s.integer(z + "reduce_bucket_size"), s.boolean(z + "overlap_comm")
    whole, scatter = s.boolean(z + "use_multi_rank_bucket_allreduce"), s.boolean(z + "reduce_scatter")
    if stage:
        s.puts("fsdp", reduce_bucket=bucket, reduce_lane=None if overlap is None else "reduce_scatter" if overlap else "compute")
    s.put("fsdp.reduce_by", None if whole is None else "all_reduce" if whole else "reduce_scatter")
    if stage == 3:
        s.put("fsdp.reduce_by", None if scatter is None else "reduce_scatter" if scatter else "all_reduce")
        rate = s.integer(z + "stage3_prefetch_bucket_size")
        prefetch = None if rate is None else f"rate:{rate}" if rate > 0 else "none"
        s.puts("fsdp", forward_prefetch=prefetch, backward_prefetch=prefetch)
        s.copy({"fsdp.max_live_parameters": "stage3_max_live_parameters", "fsdp.max_reuse_distance": "stage3_max_reuse_distance",
                "fsdp.persistence_threshold": "stage3_param_persistence_threshold"}, z)
    places = [s.text(z + f"offload_{what}.device", default="none") for what in ("optimizer", "param")]
    s.lost("offload to nvme: memory of the host stands for it", "nvme" in places)
    s.put("fsdp.cpu_offload", "all" if places[1] != "none" and stage == 3 else "optimizer" if places[0] != "none" else None)
    local, accumulate, batch = (s.integer(name) for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"))
    parts = s.known.ranks and s.known.ranks * (accumulate or 1)
    if batch and not (local or of_trainer) and parts and batch % parts == 0:  # as DeepSpeed completes the three
        local, accumulate = batch // parts, accumulate or 1
    s.put_batch(None if accumulate else batch, local, s.known.ranks)
    s.puts("train", accumulate=accumulate, clip_norm=s.number("gradient_clipping"))
    enabled, half, reduced = s.text("bf16.enabled", "bfloat16.enabled"), s.text("fp16.enabled"), s.text("communication_data_type")
    s.lost("fp16.enabled: bf16, which is as large, stands for it", half == "true")
    if "auto" in (enabled, half) and "true" not in (enabled, half):
        s.ask_dtype("bf16.enabled = auto is what the Trainer is told", reduced)
    elif not (enabled or half) and (of_trainer or "fsdp.param_dtype" in s.keys):
        s.ask_dtype("neither bf16 nor fp16 is in the file, which the Trainer fills in", reduced)
    else:
        s.lost("neither bf16 nor fp16 is in the file: fp32, as DeepSpeed computes then", not (enabled or half))
        low = "bf16" if "true" in (enabled, half) else "fp32"
        s.put_dtypes(low, reduced or low)
    optimizer = s.text("optimizer.type")
    if optimizer or "train.optimizer" not in s.keys:
        s.put_optimizer(optimizer)
    s.copy(ADAM, "optimizer.params.")
    s.put("mesh.ranks", s.known.ranks)


def _read_trainer(s: Source) -> None:
    """What TrainingArguments have, of axolotl and LLaMA-Factory."""
    s.copy({"train.learning_rate": "learning_rate", "train.beta1": "adam_beta1", "train.beta2": "adam_beta2", "train.epsilon": "adam_epsilon",
            "train.weight_decay": "weight_decay", "train.accumulate": "gradient_accumulation_steps"})
    norm = s.number("max_grad_norm")
    s.puts("train", accumulate_mode="no_sync", clip_norm=1.0 if norm is None else norm)
    s.put_optimizer(s.text("optimizer", "optim"), "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused")
    s.put("fsdp.state_dtype", "bf16" if s.values.get("pure_bf16") is True or s.values.get("bf16") == "full" else None)
    low, half = s.text("bf16", "pure_bf16", "bfloat16").lower(), s.text("fp16", "float16").lower()
    if low in ("true", "auto", "full", "1") or half in ("true", "1"):
        s.put_dtypes("bf16" if low in ("true", "auto", "full", "1") else "fp16", "bf16")
    elif low == "false":
        s.put_dtypes("fp32", "fp32")
        s.lost("bf16 = false: fp32")
    else:
        s.ask_dtype("neither bf16 nor fp16 is in the file")
    s.on("simulate.compiled", True, "torch_compile")
    for name in ("liger_fused_linear_cross_entropy", "liger_cross_entropy", "enable_liger_kernel", "use_liger_kernel", "cut_cross_entropy"):
        s.on("simulate.loss", "chunked" if "linear" in name or "enable" in name or "use_liger" in name or "cut" in name else "fused", name)
    if any("CutCrossEntropy" in str(value) for value in s.values.values()):
        s.put("simulate.loss", "fused")
    for name in ("load_in_4bit", "load_in_8bit", "quantization_bit"):
        s.lost(f"{name}: frozen weights are quantized there, and bf16 here", s.text(name, default="false").lower() not in ("false", "none", "0"))
    file, others = s.text("deepspeed"), s.known.systems
    if file.lower() not in ("", "none", "false") and "DeepSpeed" not in others:
        stage = re.search(r"(?:zero|z|stage)[-_]?([0-3])", file.lower())
        if not stage:
            raise Refused(f"{s.path}: deepspeed = {file}: import that file, too.")
        number = stage.group(1)
        s.puts("fsdp", preset="fsdp2" if number == "0" else f"deepspeed-z{number}", strategy="no_shard" if number == "0" else None,
               cpu_offload=("all" if number == "3" else "optimizer") if "offload" in file else None)
        s.lost(f"deepspeed = {file}: its name says ZeRO-{number}; import that file, too, for its buckets and offload")
    elif not file and "fsdp.preset" not in s.keys and not others & {"DeepSpeed", "Accelerate"}:
        s.puts("fsdp", preset="fsdp2", strategy="no_shard")
        s.lost("neither FSDP nor DeepSpeed is in the file: whole models on each rank (DDP); import Accelerate's YAML or DeepSpeed's JSON, too, "
               "if there is one")


@importer("axolotl", "YAML", 30, lambda f: f.format == "yaml" and f.has("base_model") and f.any(
    "sequence_len", "micro_batch_size", "datasets.", "adapter", "fsdp_config.", "output_dir"))
def read_axolotl(s: Source) -> None:
    name_model(s.into, s.text("base_model"))
    s.puts("train", seq_len=s.integer("sequence_len"), batch_per_rank=s.integer("micro_batch_size"))
    adapter, rank, alpha = s.text("adapter").lower(), s.integer("lora_r"), s.number("lora_alpha")
    targets = s.list("lora_target_modules")
    if s.flag("lora_target_linear"):
        targets = ["all"]
    if adapter in ("lora", "qlora"):
        s.put_lora(rank, alpha, targets)
    s.lost(f"adapter = {adapter}: all parameters train here", adapter not in ("", "none", "lora", "qlora"))
    recompute = s.text("gradient_checkpointing", default="false").lower()
    s.put("fsdp.activation_checkpointing", True if recompute != "false" else None)
    s.lost(f"gradient_checkpointing = {recompute}: inputs of blocks stay on the device here", recompute not in ("false", "true", "1"))
    shard, replicate, tensor = s.integer("dp_shard_size"), s.size("dp_replicate_size"), s.size("tensor_parallel_size")
    context, expert = s.size("context_parallel_size", "sequence_parallel_degree"), s.size("expert_parallel_size")
    s.put_groups(1, expert)
    shard = shard and shard * expert  # ranks that split experts are ranks of data parallelism, too
    fsdp, version = [word.lower() for word in s.list("fsdp")], s.integer("fsdp_version")
    if fsdp or version or s.has("fsdp_config."):
        for word in fsdp:
            name, value = {"auto_wrap": ("auto_wrap_policy", "TRANSFORMER_BASED_WRAP"), "offload": ("offload_params", True)}.get(word, ("sharding_strategy", word))
            if not s.has(f"fsdp_config.{name}"):
                s.values.setdefault(f"fsdp_config.fsdp_{name}", value)
        ranks = s.known.ranks or (shard * replicate * tensor * context if shard else None)
        _read_fsdp(s, ranks, 1, (replicate, shard, tensor, context), "context_parallel_size", version)
    _read_trainer(s)
    s.on("fsdp.fp8_products", True, "fp8")


def _of_factory(f: Settings) -> bool:
    return f.format == "yaml" and (f.has("model_name_or_path") and f.any("stage", "finetuning_type", "template") or f.has("model", "dist_config.name"))


@importer("LLaMA-Factory", "YAML", 30, _of_factory)
def read_llama_factory(s: Source) -> None:
    newer = s.has("dist_config.name")
    if not newer and not s.flag("do_train"):
        raise Refused(f"{s.path}: LLaMA-Factory's file trains nothing: do_train is not in it.")
    name_model(s.into, s.text("model_name_or_path", "model"))
    # Where a file does not say them: its own defaults, and those of TrainingArguments.
    s.puts("train", seq_len=s.integer("cutoff_len") or (None if newer else 2048),
           batch_per_rank=s.integer("per_device_train_batch_size", "micro_batch_size") or (None if newer else 8))
    kind, rank, alpha = s.text("finetuning_type", default="full" if newer else "lora"), s.integer("lora_rank") or 8, s.number("lora_alpha")
    if kind == "lora":
        s.put_lora(rank, alpha or 2.0 * rank, s.list("lora_target") or ["all"])
    s.lost(f"finetuning_type = {kind}: all parameters train here", kind not in ("full", "lora"))
    s.put("fsdp.activation_checkpointing", None if s.flag("disable_gradient_checkpointing") or newer else True)
    tensor, expert = (s.size(f"{name}_model_parallel_size") for name in ("tensor", "expert"))
    s.stages("pipeline_model_parallel_size")
    context, expert = s.size("context_parallel_size", "cp_size"), max(expert, s.size("dist_config.ep_size"))
    s.put_groups(tensor, expert)
    if newer:
        engine = s.text("dist_config.name")
        s.put("fsdp.preset", "deepspeed-z3" if engine == "deepspeed" else "fsdp2")
        s.lost(f"dist_config.name = {engine}: FSDP2 stands for it", engine not in ("fsdp2", "deepspeed"))
        if engine != "deepspeed":
            s.put_mesh(s.known.ranks, None, 1, tensor, context, name="cp_size", heads=s.text("cp_mode") == "ulysses")
        s.values.setdefault("bf16", True)  # its default
    elif s.flag("use_distributed_optimizer"):
        s.puts("fsdp", preset="megatron-v1", strategy="shard_grad_op")
        s.lost("use_distributed_optimizer: Megatron-FSDP with its optimizer sharded stands for it")
        s.ignore("overlap_param_gather", "overlap_grad_reduce")
    _read_trainer(s)
