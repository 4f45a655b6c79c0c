"""What a torch module says of itself and of how it is sharded, as plain data: names, shapes, units, settings.

Nothing is decided here; profile.py makes keys of it. `read()` needs no accelerator, no weights (the meta device will do)
and no other rank (PyTorch's fake process group will do). It looks into private fields of PyTorch's FSDP, because there
are no public ones: what a version does not have is listed as not read.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch
from torch import nn

ModelReading = Dict[str, Any]

# Names that wrappers put between a module and its parent.
_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")
_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}

# What model configurations call the numbers that shapes do not tell.
_FACTS = {
    "heads": ("num_attention_heads", "n_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads", "n_kv_heads", "num_kv_heads"),
    "head_dim": ("head_dim",),
    "rope_theta": ("rope_theta",),
    "norm_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon", "layer_norm_eps"),
    "active_experts": ("num_experts_per_tok", "num_experts_per_token", "top_k"),
    "attention_window": ("sliding_window",),
}


def read(model: nn.Module, optimizer: Optional[torch.optim.Optimizer] = None) -> ModelReading:
    """Everything below, of one model."""
    seen: ModelReading = {"framework": "none", "units": [], "mesh": {}, "settings": {}, "unread": []}
    if isinstance(model, nn.parallel.DistributedDataParallel):
        _read_ddp(model, seen)
        model = model.module
    seen["parameters"] = {_clean(name): _parameter(p) for name, p in model.named_parameters()}
    if seen["framework"] == "none":
        _read_sharding(model, seen)
    embeddings = [name for name, module in _modules(model) if isinstance(module, nn.Embedding)]
    blocks = _blocks(model, seen["parameters"])
    seen["embeddings"] = [f"{name}.weight" for name in embeddings if not any(_inside(name, block) for block, _ in blocks)]
    seen["blocks"] = [name for name, _ in blocks]
    seen["linear_blocks"] = bool(blocks) and all(_is_linear_map(block) for _, block in blocks)
    seen["head"] = _head(model, seen)
    seen["checkpointed"], selective = _checkpointed(model, seen["blocks"])
    if selective:
        seen["unread"].append("selective activation checkpointing: which operations are kept is a function; say it as fsdp.checkpoint_keeps")
    seen["compiled"] = any(getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
                           for module in model.modules())
    seen["facts"] = _facts(model, blocks[0][1] if blocks else None)
    if optimizer is not None:
        seen["optimizer"] = _optimizer(optimizer)
    return seen


def _clean(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _modules(model: nn.Module) -> Iterable[Tuple[str, nn.Module]]:
    return ((_clean(name), module) for name, module in model.named_modules())


def _inside(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(folder + ".")


def _parameter(p: torch.Tensor) -> Dict[str, Any]:
    return {"shape": list(p.shape), "dtype": str(p.dtype).replace("torch.", ""), **({} if p.requires_grad else {"frozen": True})}


def _unwrapped(module: nn.Module) -> nn.Module:
    while True:
        inner = next((module._modules[name] for name in _WRAPPERS if module._modules.get(name) is not None), None)
        if inner is None:
            return module
        module = inner


def _class(module: nn.Module) -> type:
    """fully_shard makes a class of its own of each class; this is the one that was written."""
    kinds = type(module).__mro__
    return kinds[2] if len(kinds) > 2 and kinds[1].__name__ == "FSDPModule" else kinds[0]


def _numel(parameters: Dict[str, Any], folder: str) -> int:
    return sum(_product(p["shape"]) for name, p in parameters.items() if _inside(name, folder))


def _product(shape: Iterable[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def _is_linear_map(block: nn.Module) -> bool:
    """A layer of an mlp: one matrix, with or without bias."""
    owners = [module for module in block.modules() if any(True for _ in module.parameters(recurse=False))]
    return len(owners) == 1 and isinstance(owners[0], nn.Linear)


def _blocks(model: nn.Module, parameters: Dict[str, Any]) -> List[Tuple[str, nn.Module]]:
    """The repeated blocks in order of definition: of all lists of modules of one class the one with most parameters."""
    best: List[Tuple[str, nn.Module]] = []
    most = 0
    for name, module in _modules(model):
        module = _unwrapped(module)
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
            continue
        found = [(f"{name}.{key}" if name else key, _unwrapped(child)) for key, child in module.named_children()]
        inner = [one for folder, child in found for one in _expanded(folder, child)]
        if len({_class(child) for _, child in inner}) == 1 and any(True for _ in inner[0][1].children()):
            found = inner  # several blocks that are one unit are a list in the list
        if len({_class(child) for _, child in found}) != 1:
            continue
        size = sum(_numel(parameters, folder) for folder, _ in found)
        if size > most:
            best, most = found, size
    return best


def _expanded(name: str, module: nn.Module) -> List[Tuple[str, nn.Module]]:
    """The members of a list, or of a module that has nothing but one; else the module itself."""
    children = list(module.named_children())
    if len(children) == 1 and isinstance(children[0][1], nn.ModuleList) and not any(True for _ in module.parameters(recurse=False)):
        return _expanded(f"{name}.{children[0][0]}", children[0][1])
    if not isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
        return [(name, module)]
    return [one for key, child in module.named_children() for one in _expanded(f"{name}.{_clean(key)}", _unwrapped(child))]


def _head(model: nn.Module, seen: ModelReading) -> str:
    """The name of the output head's weight, or of the embedding's if they are one; empty if there is none."""
    vocabularies = {seen["parameters"][name]["shape"][0]: name for name in seen["embeddings"] if name in seen["parameters"]}
    for name, module in reversed(list(_modules(model))):
        if not isinstance(module, nn.Linear) or any(_inside(name, block) for block in seen["blocks"]):
            continue
        weight = f"{name}.weight"
        if weight in seen["parameters"]:
            if seen["parameters"][weight]["shape"][0] in vocabularies:
                return weight
        elif module.out_features in vocabularies:  # the same tensor is listed once, under its first name
            return vocabularies[module.out_features]
    return ""


def _checkpointed(model: nn.Module, blocks: List[str]) -> Tuple[List[str], bool]:
    """The blocks that are recomputed in backward, and whether a function says which of their operations are."""
    found, selective = set(), False
    for raw, module in model.named_modules():
        wrapped = "_checkpoint_wrapped_module" in module._modules
        composable = "checkpoint" in _registry(module)
        layer = getattr(module, "gradient_checkpointing", False) is True and hasattr(module, "_gradient_checkpointing_func")
        if not (wrapped or composable or layer):
            continue
        if wrapped:
            arguments = getattr(module, "checkpoint_fn", None)
            selective |= "context_fn" in (getattr(arguments, "keywords", None) or {})
        name = _clean(raw)
        inside = [block for block in blocks if _inside(block, name)] if not layer or name in blocks else blocks
        found.update(inside)
    return [block for block in blocks if block in found], selective


def _registry(module: nn.Module) -> Iterable[str]:
    try:
        from torch.distributed._composable.contract import _get_registry
        return _get_registry(module) or ()
    except ImportError:
        return ()


def _facts(model: nn.Module, block: Optional[nn.Module]) -> Dict[str, Any]:
    """Numbers that the model's configuration tells, or a module of a block."""
    sources: List[Any] = []
    for module in model.modules():
        sources += [getattr(module, name) for name in ("config", "model_args", "model_config", "args") if hasattr(module, name)]
    sources += [] if block is None else [module for module in block.modules() if any(hasattr(module, n) for n in _FACTS["heads"])]
    facts: Dict[str, Any] = {}
    for key, names in _FACTS.items():
        for source in sources:
            value = next((getattr(source, n) for n in names if isinstance(getattr(source, n, None), (int, float))), None)
            if value is None and key == "rope_theta":
                rope = getattr(source, "rope_parameters", None)
                value = rope.get("rope_theta") if isinstance(rope, dict) else None
            if value is not None and not isinstance(value, bool):
                facts[key] = value
                break
    for source in sources:
        kinds = getattr(source, "layer_types", None)
        if isinstance(kinds, (list, tuple)) and kinds:
            facts["layer_types"] = list(kinds)
            break
    return facts


def _optimizer(optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
    group = optimizer.param_groups[0]
    wanted = ("lr", "betas", "eps", "weight_decay", "momentum", "fused")
    return {"class": type(optimizer).__name__, "groups": len(optimizer.param_groups),
            **{name: list(group[name]) if isinstance(group[name], tuple) else group[name] for name in wanted if group.get(name) is not None}}


def _dtype(value: Any) -> Optional[str]:
    return None if value is None else _DTYPES.get(value, str(value).replace("torch.", ""))


# -- how it is sharded --------------------------------------------------------------------------------------------------


def _read_sharding(model: nn.Module, seen: ModelReading) -> None:
    try:
        from torch.distributed.fsdp import FullyShardedDataParallel
        if FullyShardedDataParallel.fsdp_modules(model):
            return _read_fsdp1(model, seen)
    except ImportError:
        pass
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        return None
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        _read_fsdp2(model, seen, FSDPModule)
    return None


def _read_ddp(model: nn.Module, seen: ModelReading) -> None:
    seen["framework"] = "ddp"
    seen["mesh"] = {"shard": 1, "replicate": model.process_group.size(), "tensor": 1}
    seen["settings"] = {"bucket_bytes": getattr(model, "bucket_bytes_cap", None), "reduces": bool(model.require_backward_grad_sync)}


def _read_fsdp1(model: nn.Module, seen: ModelReading) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel
    seen["framework"] = "fsdp1"
    parameters: Dict[str, Any] = {}
    flat = {_clean(name) for name, _ in model.named_parameters() if name.endswith("_flat_param")}
    for raw, module in model.named_modules():
        if not isinstance(module, FullyShardedDataParallel):
            continue
        name = _clean(raw)
        handle = module._handle
        names = []
        if handle is not None:
            flat_param = handle.flat_param
            dtype = str(getattr(handle, "_orig_param_dtype", flat_param.dtype)).replace("torch.", "")
            for fqn, shape in zip(flat_param._fqns, flat_param._shapes):
                full = _clean(f"{name}.{fqn}" if name else fqn)
                parameters[full] = {"shape": list(shape), "dtype": dtype}
                names.append(full)
        mixed = module.mixed_precision
        offload = module.cpu_offload
        seen["units"].append({
            "name": name, "parameters": names, "strategy": module.sharding_strategy.name,
            "backward_prefetch": None if module.backward_prefetch is None else module.backward_prefetch.name,
            "forward_prefetch": bool(module.forward_prefetch), "limit": module._free_event_queue._max_num_inflight_all_gathers
            if module.limit_all_gathers else None, "param_dtype": _dtype(mixed.param_dtype), "reduce_dtype": _dtype(mixed.reduce_dtype),
            "offload": bool(offload.offload_params), "reduces": bool(getattr(module, "_sync_gradients", True)),
        })
        replicas = getattr(module, "_inter_node_pg", None) if module.sharding_strategy.name in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2") else None
        mesh = {"shard": module.process_group.size(), "replicate": 1 if replicas is None else replicas.size(), "tensor": 1}
        if seen["mesh"] and seen["mesh"] != mesh:
            seen["unread"].append(f"unit {name!r} has another mesh than the root: {mesh['replicate']} x {mesh['shard']}")
        seen["mesh"] = seen["mesh"] or mesh
    # What FSDP does not manage stays as it is; its own flat parameters are in `parameters` already.
    for name, p in seen["parameters"].items():
        if name not in flat:
            parameters.setdefault(name, p)
    seen["parameters"] = parameters


def _read_fsdp2(model: nn.Module, seen: ModelReading, kind: Any) -> None:
    seen["framework"] = "fsdp2"
    names = {id(module): name for name, module in _modules(model)}
    states: Dict[int, Tuple[str, Any]] = {}
    for name, module in _modules(model):
        if isinstance(module, kind):
            state = module._get_fsdp_state()
            states.setdefault(id(state), (name, state))
    of_state = {key: name for key, (name, _) in states.items()}
    for name, state in states.values():
        groups = list(getattr(state, "_fsdp_param_groups", None) or filter(None, [getattr(state, "_fsdp_param_group", None)]))
        unit: Dict[str, Any] = {
            "name": name, "parameters": [],
            "forward": [of_state.get(id(s), "?") for s in state._states_to_forward_prefetch],
            "backward": [of_state.get(id(s), "?") for s in state._states_to_backward_prefetch],
        }
        if len(groups) > 1:
            seen["unread"].append(f"unit {name!r} has {len(groups)} groups of parameters with meshes of their own; the first one's is read")
        for group in groups:
            _read_group(group, unit, seen, names)
        if groups:
            _read_group_settings(groups[0], state, unit, seen)
        seen["units"].append(unit)


def _read_group(group: Any, unit: Dict[str, Any], seen: ModelReading, names: Dict[int, str]) -> None:
    for one in group.fsdp_params:
        info = one._module_info
        folder = names.get(id(info.module), "?")
        name = f"{folder}.{info.param_name}" if folder else info.param_name
        unit["parameters"].append(name)
        if name not in seen["parameters"]:  # by another name of a shared parameter
            seen["parameters"][name] = {"shape": list(one._orig_size), "dtype": str(one.sharded_param.dtype).replace("torch.", "")}


def _read_group_settings(group: Any, state: Any, unit: Dict[str, Any], seen: ModelReading) -> None:
    info, after = group.mesh_info, group.post_forward_mesh_info
    shard = getattr(info, "shard_mesh_size", 1)
    if after is None:
        reshard: Any = "auto" if unit["name"] == "" and state._auto_reshard_after_forward else False
    elif after is info or after.shard_mesh_size == shard:
        reshard = "auto" if unit["name"] == "" and state._auto_reshard_after_forward else True
    else:
        reshard = after.shard_mesh_size
    offload = group.offload_policy
    policy = group.mp_policy if hasattr(group, "mp_policy") else group.fsdp_params[0].mp_policy
    unit.update({
        "reshard": reshard, "param_dtype": _dtype(policy.param_dtype), "reduce_dtype": _dtype(policy.reduce_dtype),
        "offload": type(offload).__name__ == "CPUOffloadPolicy", "reduces": bool(group.reduce_grads),
        "all_reduces": bool(group.all_reduce_grads), "reshard_after_backward": bool(group.reshard_after_backward),
        "reduce_scatter_buffers": getattr(group, "reduce_scatter_max_input_buffers", 1),
        "separate_reduce_scatter": getattr(info, "reduce_scatter_process_group", None) is not None,
        "divide_factor": group.gradient_divide_factor, "sum": bool(group.force_sum_reduction_for_comms),
        "symmetric_memory": type(getattr(group, "_all_gather_comm", None)).__name__ not in ("DefaultAllGather", "NoneType"),
        "unshard_in_backward": bool(getattr(group, "unshard_in_backward", True)),
    })
    mesh = {"shard": shard, "replicate": getattr(info, "replicate_mesh_size", 1),
            "hybrid": hasattr(info, "replicate_mesh_size"), "tensor": _tensor_size(group)}
    if seen["mesh"] and seen["mesh"] != mesh:
        seen["unread"].append(f"unit {unit['name']!r} has another mesh than the root: {mesh['replicate']} x {mesh['shard']}")
    seen["mesh"] = seen["mesh"] or mesh
    seen["settings"] = {"last_backward": bool(state._state_ctx.is_last_backward)}


def _tensor_size(group: Any) -> int:
    """Ranks beside those of FSDP that split its parameters, by their own DTensors."""
    mine = group.mesh_info.mesh.size()
    sizes = [one._spmd_mesh.size() for one in group.fsdp_params if getattr(one, "is_dtensor", False)]
    return max([size // mine for size in sizes if size > mine] or [1])
