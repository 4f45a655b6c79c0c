"""The model: Hugging Face's config.json, the adapters of its peft, and names of published models."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import List, Optional, Tuple

from .settings import Refused, parse_settings, read_file, tomllib
from .source import Import, Known, Source, find_importer, importer

_NAMES = tomllib.loads((Path(__file__).parent / "names.toml").read_text())


def _bare(name: str) -> str:
    word = re.sub(r"\.(yaml|toml)$", "", name.rstrip("/").split("/")[-1].lower()).replace("_", "-")
    return re.sub(r"(-(instruct|base|hf|chat|it|bf16|\d{4}|v0\.1|unsloth|nf4|bnb|dynamic))+$", "", word)


def preset_of(name: str) -> Tuple[str, str]:
    """ "meta-llama/Meta-Llama-3.1-8B-Instruct" -> "llama3-8b", and what its weights are stored in; empty if not known."""
    found = ((re.fullmatch(pattern, _bare(name)), preset, dtype) for pattern, preset, dtype in _NAMES["models"])
    return next(((match.expand(preset), dtype) for match, preset, dtype in found if match), ("", ""))


def vocabulary_of(tokenizer: str) -> Optional[int]:
    return next((rows for pattern, rows in _NAMES["vocabularies"] if re.search(pattern, _bare(tokenizer))), None)


def name_model(found: Import, name: str) -> None:
    """What a file calls its model, or --model: a name, a model's config.json, or a file of profiles/models."""
    if name.endswith(".json") and os.path.isfile(name):
        source = Source(parse_settings(*read_file(name)), found, Known())
        if find_importer(source.settings).read is not read_hugging_face:
            raise Refused(f"{name}: is no config.json of a model.")
        found.systems.append("Hugging Face")
        read_hugging_face(source)
        source.list_the_rest()
    elif not found.model and "model.layers" not in found.keys:
        preset, dtype = preset_of(name)
        found.model, found.dtype = name, found.dtype or dtype
        if preset:
            found.keys["model.preset"] = preset


def _read_experts(s: Source, kind: str, width: Optional[int]) -> None:
    """Routers, and what is beside the routed experts, which are `width` wide."""
    experts = s.integer("num_local_experts", "num_experts", "n_routed_experts")
    if not experts or experts <= 1:
        return
    s.puts("model", experts=experts, active_experts=s.integer("num_experts_per_tok", "experts_per_token"))
    for each in ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"):
        every = s.integer(each)
        s.lost(f"{each} = {every}: every block has experts here", every not in (None, 1))
    dense = s.integer("first_k_dense_replace")
    s.lost(f"first_k_dense_replace = {dense}: those blocks have experts here, too", dense)
    # Qwen2-MoE's and Qwen3-Next's shared expert has a width of its own, and a gate by which what it gives is multiplied.
    own, shared = s.integer("shared_expert_intermediate_size"), 1 if kind == "llama4_text" else s.integer("n_shared_experts")
    fits = own and width and own % width == 0
    s.put("model.shared_experts", own // width if fits and own and width else shared or None)
    s.lost("shared_expert_gate: the shared expert has no gate here", fits)
    s.lost(f"shared_expert_intermediate_size = {own}: no multiple of an expert's width", own and not fits)
    s.lost("topk_method = noaux_tc: the router's bias and groups of experts", s.text("topk_method") == "noaux_tc")


@importer("Hugging Face", "a model's config.json", 50, lambda f: f.format == "json" and f.any("model_type", "architectures."))
def read_hugging_face(s: Source) -> None:
    if not s.has("hidden_size") and s.has("text_config.hidden_size"):
        s.take("model_type")
        s.lift("text_config.")
        s.ignore("vision_config.", "audio_config.")
        s.lost("all but text_config: the model of the text alone is read")
    kind = s.text("model_type")
    gpt2 = kind == "gpt2"
    layers, width = s.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers"), s.integer("hidden_size", "n_embd", "d_model")
    if not layers or not width:
        raise Refused(f"{s.path}: no {'hidden_size' if layers else 'num_hidden_layers'}: this is no configuration of a language model "
                      "that can be read.")
    s.into.dtype = s.text("torch_dtype", "dtype") or s.into.dtype
    for key in [key for key in s.keys if key.startswith("model.")]:
        del s.keys[key]  # of a model that was only named
    heads, expert_width = s.integer("num_attention_heads", "n_head", "n_heads"), s.integer("moe_intermediate_size")
    head_dim, inner, tied = s.integer("head_dim"), s.integer("intermediate_size", "n_inner", "ffn_dim"), s.boolean("tie_word_embeddings")
    s.puts("model", kind="decoder", layers=layers, width=width, heads=heads, kv_heads=s.integer("num_key_value_heads", "n_kv_heads") or heads,
           ffn_width=expert_width or inner or (4 * width if gpt2 else None), vocab=s.integer("vocab_size"),
           head_dim=head_dim if head_dim and heads and head_dim * heads != width else None,
           tied_head=gpt2 or kind.startswith("gemma") or kind == "opt" if tied is None else tied,
           rope_theta=s.number("rope_theta", "rope_parameters.rope_theta"), norm_epsilon=s.number("rms_norm_eps", "layer_norm_epsilon"))
    _read_experts(s, kind, expert_width or inner)
    latent = s.integer("kv_lora_rank")
    if latent and heads:
        s.puts("model", kv_heads=max(1, heads // 16), head_dim=s.integer("v_head_dim"))
        s.ignore("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
        s.lost(f"kv_lora_rank = {latent}: latent attention; attention whose queries share {max(1, heads // 16)} heads of keys and values "
               "stands for it")
    windows, window = s.boolean("use_sliding_window"), s.integer("sliding_window")
    if window and windows is not False:
        s.puts("model", attention_window=window, full_attention_every=2 if kind == "gpt_oss" else None)
    if gpt2:
        s.puts("model", feed_forward="plain", norm="layer", bias=True, fused_projections=True,
               learned_positions=s.integer("n_positions", "n_ctx") or 1024)
    s.puts("model", qk_norm=True if kind in ("qwen3", "qwen3_moe") else None, attention_sinks=True if kind == "gpt_oss" else None)
    s.put("model.fused_projections" if kind == "phi3" else "model.bias", True if kind in ("phi3", "gpt_oss") else None)
    s.lost("biases of queries, keys and values", kind == "qwen2")
    s.lost(f"model_type = {kind or 'none'}: its blocks are read as those of a Llama", kind not in (
        "gpt2", "qwen3", "qwen3_moe", "phi3", "gpt_oss", "qwen2", "llama", "mistral", "mixtral", "llama4_text"))
    s.lost("attention_bias = true", s.flag("attention_bias") and kind != "gpt_oss")
    s.lost("mlp_bias = true", s.flag("mlp_bias"))


def _neighbours(blocks: List[str]) -> Optional[str]:
    """ "blocks:4-7", if all from the first to the last are listed."""
    numbers = sorted(int(block) for block in blocks if block.isdigit())
    whole = numbers and len(numbers) == len(blocks) and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"blocks:{numbers[0]}-{numbers[-1]}" if whole else None


@importer("Hugging Face's peft", "adapter_config.json", 45, lambda f: f.format == "json" and f.has("peft_type"))
def read_peft(s: Source) -> None:
    kind = s.text("peft_type")
    if kind != "LORA":
        return s.lost(f"peft_type = {kind}: of peft's adapters LORA alone is read")
    rank, alpha = s.integer("r") or 8, s.number("lora_alpha") or 8.0
    # lora_alpha / sqrt(r) in place of lora_alpha / r.
    s.put_lora(rank, alpha * math.sqrt(rank) if s.flag("use_rslora") else alpha, s.list("target_modules"))
    blocks, bias, dropout = s.list("layers_to_transform"), s.text("bias", default="none"), s.number("lora_dropout")
    s.put("model.trainable", _neighbours(blocks))
    s.lost(f"layers_to_transform = {', '.join(blocks)}: blocks that are no neighbours; all have adapters here", blocks and not _neighbours(blocks))
    s.lost(f"bias = {bias}: no bias trains here", bias != "none")
    s.lost(f"lora_dropout = {dropout!r}: adapters have no dropout here", dropout)
    for other in ("use_dora", "use_qalora", "lora_bias", "ensure_weight_tying"):
        s.lost(f"{other} = true", s.flag(other))
