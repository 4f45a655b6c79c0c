#!/usr/bin/env python3
"""Bytes that PyTorch holds in a training step, by category, without a GPU and without memory: the real FSDP2, FSDP1, DDP and
autograd under fake tensors, with PyTorch's fake process group.

    memory.py FILE            records the configurations of cases() in FILE
    memory.py --blocks        prints what blocks keep for backward, in bf16 tensors of the width per token

Each case is a list of keys of fsdpbench; memory_peer_test.cpp compares ours. Bytes are those at the peak of the second step,
when the optimizer's moments exist.

FSDPMemTracker's own faults, and what is done about them: it books under optimizer state whatever is made while the optimizer
runs (so the step of the optimizer is left out of the peak: moments are counted from the optimizer itself), and sums of
unsharded gradients under temporaries (moved); it knows no all-reduce of hybrid sharding; it counts nothing of libraries' workspaces. Attention is called by the operator of CUDA's
flash kernel, and a fused norm is a function that keeps what CUDA's does, since CPU tensors would choose others. The tracker knows
neither FSDP1 nor DDP: there every live storage is added up after each operator, and a second step stops where the first was
largest. What is offloaded comes from CPU tensors to those of an imagined device, a back end in Python whose bytes these are then;
its backward ends the process where blocks are checkpointed, so none are.
"""

import contextlib
import itertools
import json
import sys
import warnings
import weakref

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import fsdp
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
BASE = {
    "model.kind": "decoder", "model.layers": 4, "model.width": 512, "model.heads": 8, "model.kv_heads": 8, "model.ffn_width": 1792,
    "model.vocab": 8192, "model.tied_head": False, "mesh.ranks": 8, "train.seq_len": 512, "train.batch_per_rank": 4,
    "fsdp.param_dtype": "bf16", "fsdp.reduce_dtype": "fp32", "simulate.framework": "pytorch",
}  # fmt: skip


def cases() -> list[dict]:
    """Changes of BASE, one or two at a time."""
    models = [
        {},
        {"model.kv_heads": 2},
        {"simulate.framework": "transformers"},
        {"model.feed_forward": "plain", "model.norm": "layer", "model.ffn_width": 2048},
    ]
    recomputed = [
        {},
        {"fsdp.activation_checkpointing": True},
        {"fsdp.activation_checkpointing": True, "fsdp.checkpoint_every": 2},
        {"fsdp.activation_checkpointing": True, "fsdp.checkpoint_keeps": "every_second_product"},
    ]
    losses = [{}, {"simulate.loss": "referenced_fp32"}]
    others = [
        {"fsdp.reshard_after_forward": False},
        {"fsdp.reshard_after_forward": True},
        {"train.accumulate": 4},
        {"train.accumulate": 4, "train.accumulate_mode": "no_sync"},
        {"fsdp.state_dtype": "bf16", "fsdp.reduce_dtype": "bf16"},
        {"fsdp.param_dtype": "fp32"},
        {"fsdp.reduce_dtype": "bf16"},
        {"mesh.ranks": 64},
        {"mesh.ranks": 1},
        {"model.layers": 8},
        {"train.batch_per_rank": 16},
        {"model.vocab": 65536, "train.batch_per_rank": 1},
        {"fsdp.wrap": "blocks:2"},
        {"train.optimizer": "sgd"},
    ]
    all_of = [dict(a | b | c) for a, b, c in itertools.product(models, recomputed, losses)]
    all_of += [dict(a | b) for a, b in itertools.product(others, recomputed[:3])]
    ddp = {"fsdp.strategy": "no_shard", "fsdp.param_dtype": "fp32"}
    engines = [{"fsdp.preset": "fsdp1"}, {"fsdp.preset": "fsdp1", "fsdp.strategy": "shard_grad_op"}, ddp]
    more = [{}, {"model.layers": 8}, {"train.batch_per_rank": 16}, {"model.vocab": 65536, "train.batch_per_rank": 1}]
    all_of += [dict(a | b | c) for a, b, c in itertools.product(engines, more, recomputed[:2])]
    offloaded = [*more, models[1], *others[:2], others[6], others[8]]
    all_of += [{"fsdp.cpu_offload": "all"} | a for a in offloaded]
    return all_of


class Nothing:
    """A stream or an event of a device on which nothing is computed."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: Nothing()


class Imagined(backend_registration._DummyBackendModule):
    """The module of a device beside the CPU, as torch.cuda is of GPUs."""

    Stream = Event = Nothing
    current_stream = default_stream = staticmethod(lambda *args: Nothing())
    stream = staticmethod(lambda stream: contextlib.nullcontext())
    set_device = staticmethod(lambda device: None)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    is_available = staticmethod(lambda: True)


class FusedNorm(torch.autograd.Function):
    """What CUDA's fused RMSNorm keeps (aten::_fused_rms_norm): its input and a number a row. On CPU tensors it is composed of others."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class Norm(nn.Module):
    def __init__(self, keys):
        super().__init__()
        self.kind = "layer" if keys.get("model.norm") == "layer" else keys["simulate.framework"]
        self.weight = nn.Parameter(torch.ones(keys["model.width"]))

    def forward(self, x):
        if self.kind == "layer":
            return torch.ops.aten.native_layer_norm(x, [x.shape[-1]], self.weight, None, 1e-5)[0]
        if self.kind == "pytorch":
            return FusedNorm.apply(x, self.weight)
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * h.to(x.dtype)


class Block(nn.Module):
    def __init__(self, keys):
        super().__init__()
        w, f = keys["model.width"], keys["model.ffn_width"]
        self.heads, self.kv = keys["model.heads"], keys["model.kv_heads"]
        self.size = w // self.heads
        self.gated = keys.get("model.feed_forward", "gated") == "gated"
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.norm1, self.norm2 = Norm(keys), Norm(keys)
        self.q, self.k, self.v, self.o = linear(w, w), linear(w, self.kv * self.size), linear(w, self.kv * self.size), linear(w, w)
        self.gate = linear(w, f) if self.gated else None
        self.up, self.down = linear(w, f), linear(f, w)

    def forward(self, x):
        b, s, w = x.shape
        h = self.norm1(x)
        q, k, v = (m(h).view(b, s, -1, self.size).transpose(1, 2) for m in (self.q, self.k, self.v))
        a = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]
        x = x + self.o(a.transpose(1, 2).reshape(b, s, w))
        h = self.norm2(x)
        h = F.silu(self.gate(h)) * self.up(h) if self.gated else F.gelu(self.up(h))
        return x + self.down(h)


def selective():
    """torchtitan's: products' and attention's outputs are kept, but of every second product, counted from 1 in a block."""
    count = {False: 0, True: 0}

    def policy(ctx, op, *args, **kwargs):
        if op == torch.ops.aten.mm.default:
            count[ctx.is_recompute] += 1
            return CheckpointPolicy.PREFER_RECOMPUTE if count[ctx.is_recompute] % 2 == 0 else CheckpointPolicy.MUST_SAVE
        kept = op == torch.ops.aten._scaled_dot_product_flash_attention.default
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Model(nn.Module):
    def __init__(self, keys):
        super().__init__()
        self.keys = keys
        self.embedding = nn.Embedding(keys["model.vocab"], keys["model.width"])
        self.blocks = nn.ModuleList(Block(keys) for _ in range(keys["model.layers"]))
        self.norm = Norm(keys)
        self.head = nn.Linear(keys["model.width"], keys["model.vocab"], bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        again = self.keys.get("fsdp.activation_checkpointing", False)
        every, keeps = self.keys.get("fsdp.checkpoint_every", 1), self.keys.get("fsdp.checkpoint_keeps", "nothing")
        context = {"context_fn": selective} if keeps != "nothing" else {}
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False, **context) if again and i % every == 0 else block(x)
        return self.head(self.norm(x))


def loss_of(model, tokens, labels, keys):
    logits = model(tokens)
    if keys.get("simulate.loss") == "referenced_fp32":
        logits = logits.float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
    return loss, None


def shard(model, keys, mesh):
    after = keys.get("fsdp.reshard_after_forward")
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[keys["fsdp.param_dtype"]], reduce_dtype=DTYPES[keys["fsdp.reduce_dtype"]])
    together = int(str(keys.get("fsdp.wrap", "blocks:1")).split(":")[1])
    blocks = list(model.blocks)
    options = {"mesh": mesh, "mp_policy": policy}
    if keys.get("fsdp.cpu_offload") == "all":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    for i in range(0, len(blocks), together):
        unit = blocks[i] if together == 1 else blocks[i : i + together]
        fully_shard(unit, reshard_after_forward=True if after is None else after, **options)
    fully_shard(model, reshard_after_forward=after, **options)


def accumulated(model):
    """Sums of unsharded gradients, which the tracker books under temporaries."""
    for module in model.modules():
        group = module._get_fsdp_state()._fsdp_param_group if hasattr(module, "_get_fsdp_state") else None
        for p in group.fsdp_params if group else []:
            if p.unsharded_accumulated_grad is not None:
                yield p.unsharded_accumulated_grad


def record(changes: dict) -> dict:
    keys = BASE | changes
    if "fsdp.preset" in keys or keys.get("fsdp.strategy") == "no_shard":
        return record_live(keys)
    ranks = keys["mesh.ranks"]
    device = "imagined" if "fsdp.cpu_offload" in keys else "cpu"
    if device == "imagined" and not hasattr(torch, device):
        backend_registration._setup_privateuseone_for_python_backend(device, Imagined())
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        mesh = init_device_mesh(device, (ranks,))
        with FakeTensorMode(), torch.autograd.set_multithreading_enabled(device == "cpu"):
            torch.set_default_dtype(DTYPES[keys.get("fsdp.state_dtype", "fp32")])
            with torch.device(device):
                model = Model(keys)
            torch.set_default_dtype(torch.float32)
            shard(model, keys, mesh)
            kind = torch.optim.SGD if keys.get("train.optimizer") == "sgd" else torch.optim.AdamW
            optimizer = kind(model.parameters(), lr=1e-3, foreach=False)
            size = (keys["train.batch_per_rank"], keys["train.seq_len"])
            micros = keys.get("train.accumulate", 1)
            no_sync = keys.get("train.accumulate_mode") == "no_sync"

            def drawn():
                return torch.randint(0, 9, size, device=device)

            def step():
                for micro in range(micros):
                    model.set_requires_gradient_sync(not no_sync or micro + 1 == micros)
                    tokens, labels = drawn(), drawn()
                    loss, held = loss_of(model, tokens, labels, keys)
                    loss.backward()
                    del loss, held

            step()
            optimizer.step()
            optimizer.zero_grad()
            tracker, summed = FSDPMemTracker(model, optimizer), 0
            with tracker:
                if micros == 1:
                    step()
                else:
                    for micro in range(micros):
                        summed = sum(g.numel() * g.element_size() for g in accumulated(model))
                        tracker.reset_mod_stats()
                        model.set_requires_gradient_sync(not no_sync or micro + 1 == micros)
                        loss, held = loss_of(model, drawn(), drawn(), keys)
                        loss.backward()
                        del loss, held
            peak = next(v for d, v in tracker.get_tracker_snapshot("peak").items() if d.type == device)
    finally:
        dist.destroy_process_group()
    bytes_of = {str(getattr(k, "value", k)): v for k, v in peak.items()}
    bytes_of["Unsharded Grad"] += summed
    bytes_of["Temp"] -= summed
    return bytes_of


class Live(TorchDispatchMode):
    """Bytes of all live storages after each operator; stops at one, if asked to."""

    def __init__(self, known, stop=None):
        super().__init__()
        self.live, self.calls, self.peak, self.at, self.stop = {}, 0, 0, 0, stop
        for tensor in known:
            self.add(tensor)

    def add(self, tensor):
        storage = tensor.untyped_storage()
        self.live.setdefault(storage._cdata, weakref.ref(storage))

    def storages(self) -> dict:
        alive = {key: ref() for key, ref in self.live.items()}
        self.live = {key: self.live[key] for key, storage in alive.items() if storage is not None}
        return {key: storage.nbytes() for key, storage in alive.items() if storage is not None}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        self.calls += 1
        held = sum(self.storages().values())
        if held > self.peak:
            self.peak, self.at = held, self.calls
        if self.calls == self.stop:
            self.held = self.storages()
            raise StopIteration
        return result


class SameBuckets:
    """A reducer that keeps its first buckets: it would ask the other ranks, in numbers that fake tensors have not."""

    def __init__(self, reducer):
        self.reducer = reducer

    def _rebuild_buckets(self):
        return False

    def __getattr__(self, name):
        return getattr(self.reducer, name)


def reduced(buckets, bucket):
    """The fake group's all-reduce has no result. Buckets are C++'s, and seen here alone."""
    buckets[bucket.index()] = bucket.buffer()
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def record_live(keys: dict) -> dict:
    """FSDP1 or DDP: the same categories as the tracker's, whose names these are."""
    of_ddp = keys.get("fsdp.strategy") == "no_shard"
    buckets = {}
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=keys["mesh.ranks"])
    try:
        with FakeTensorMode():
            model = Model(keys)
            if of_ddp:
                ddp._verify_param_shape_across_processes = ddp._sync_module_states = lambda *a, **k: None
                net = DistributedDataParallel(model)
                net.register_comm_hook(buckets, reduced)
                net.reducer = SameBuckets(net.reducer)
            else:
                precision = fsdp.MixedPrecision(DTYPES[keys["fsdp.param_dtype"]], DTYPES[keys["fsdp.reduce_dtype"]])
                net = fsdp.FullyShardedDataParallel(
                    model, auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=precision,
                    sharding_strategy=fsdp.ShardingStrategy[keys.get("fsdp.strategy", "full_shard").upper()],
                    device_id=torch.device("cpu"),
                )  # fmt: skip
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
            size = (keys["train.batch_per_rank"], keys["train.seq_len"])

            def step():
                loss, held = loss_of(net, torch.randint(0, 9, size), torch.randint(0, 9, size), keys)
                loss.backward()
                del loss, held

            for _ in range(2):
                step()
                optimizer.step()
                optimizer.zero_grad()
            flat = [] if of_ddp else [m._handle.flat_param for m in fsdp.FullyShardedDataParallel.fsdp_modules(net) if m._handle]
            state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
            owned = {
                "Sharded Param": list(net.parameters()) + [p._local_shard for p in flat],
                "Unsharded Param": [p._full_param_padded for p in flat if hasattr(p, "_full_param_padded")],
                "All Gather": [p._mp_shard for p in flat if hasattr(p, "_mp_shard")],
                "Reduce Scatter": list(buckets.values()),
                "OptState": state,
            }  # fmt: skip
            known = [t for tensors in owned.values() for t in tensors]
            with Live(known) as first:
                step()
            optimizer.zero_grad()
            with Live(known, first.at) as second:
                try:
                    step()
                except StopIteration:
                    pass
            held = second.held
            owned["Sharded Grad"] = [p._saved_grad_shard for p in flat if getattr(p, "_saved_grad_shard", None) is not None]
            owned["Sharded Grad"] += [p.grad for p in net.parameters() if p.grad is not None]
            names = {t.untyped_storage()._cdata: name for name, tensors in owned.items() for t in tensors}
    finally:
        dist.destroy_process_group()
    bytes_of = dict.fromkeys(
        ["Sharded Param", "Unsharded Param", "Buffer", "Sharded Grad", "Unsharded Grad", "Activation", "Temp", "All Gather",
         "Reduce Scatter", "OptState", "Inputs"], 0,
    )  # fmt: skip
    for key, size in held.items():
        bytes_of[names.get(key, "Temp")] += size
    return bytes_of | {"Total": sum(bytes_of.values())}


def blocks() -> None:
    for changes in cases()[:32:8]:
        keys = BASE | changes | {"model.layers": 1}
        found = {}

        def pack(t):
            found[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
            return t

        with FakeTensorMode():
            torch.set_default_dtype(torch.bfloat16)
            block = Block(keys)
            x = torch.randn(keys["train.batch_per_rank"], keys["train.seq_len"], keys["model.width"], dtype=torch.bfloat16, requires_grad=True)
            mine = {p.untyped_storage()._cdata for p in block.parameters()}
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                kept_alive = block(x)
            total = sum(n for s, n in found.items() if s not in mine)
            del kept_alive
        print(f"{total / (x.numel() * 2):8.3f}", changes)


def main() -> int:
    warnings.filterwarnings("ignore")
    if sys.argv[1] == "--blocks":
        blocks()
        return 0
    recorded = []
    for i, changes in enumerate(cases()):
        print(f"{i} {changes}", file=sys.stderr)
        recorded.append({"keys": {k: v for k, v in (BASE | changes).items()}, "bytes": record(changes)})
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(r) for r in recorded) + "\n]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
