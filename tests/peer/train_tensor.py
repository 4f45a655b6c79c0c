"""Trains the decoder of train.py, with a vocabulary that two ranks can split, under FSDP2 on ranks that split layers
(parallelize_module, then fully_shard on the other axis of the mesh), with SequenceParallel norms and without, and stores
every loss and every final parameter: `python train_tensor.py FOLDER`.
"""

import os
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from train import ADAMW, BATCH, RANKS, SEQ, STEPS, golden_file, initial_parameters, make_decoder

MODEL = make_decoder.MODEL | {"vocab": 60}
MESHES = {  # shard x tensor; tokens that two ranks split are of an even number
    "2x2": dict(shard=2, tensor=2, sequence_parallel=False, seq_len=SEQ),
    "1x2": dict(shard=1, tensor=2, sequence_parallel=False, seq_len=SEQ),
    "2x2-tokens": dict(shard=2, tensor=2, sequence_parallel=True, seq_len=SEQ - SEQ % 2),
    "1x2-tokens": dict(shard=1, tensor=2, sequence_parallel=True, seq_len=SEQ - SEQ % 2),
}
COLUMNS = ("wq", "wk", "wv", "w_gate", "w_up")
ROWS = ("wo", "w_down")


def linear(weight):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.clone())
    return layer


class Norm(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.clone())

    def forward(self, x):
        return make_decoder.rms_norm(x, self.weight)


class Block(nn.Module):
    def __init__(self, parameters):
        super().__init__()
        for name in ("norm1", "norm2"):
            setattr(self, name, Norm(parameters[name]))
        for name in COLUMNS + ROWS:
            setattr(self, name, linear(parameters[name]))

    def forward(self, x):
        head = x.shape[-1] // MODEL["heads"]
        split = lambda t: t.unflatten(-1, (-1, head)).transpose(1, 2)  # this rank's heads, of all tokens
        n1 = self.norm1(x)
        q, k, v = make_decoder.rotary(split(self.wq(n1))), make_decoder.rotary(split(self.wk(n1))), split(self.wv(n1))
        k, v = (t.repeat_interleave(MODEL["heads"] // MODEL["kv_heads"], 1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        h = x + self.wo(a)
        n2 = self.norm2(h)
        return h + self.w_down(F.silu(self.w_gate(n2)) * self.w_up(n2))


class Decoder(nn.Module):
    def __init__(self, parameters):
        super().__init__()
        of = lambda prefix: {n.removeprefix(prefix): v for n, v in parameters.items() if n.startswith(prefix)}
        self.embedding = nn.Embedding(MODEL["vocab"], MODEL["width"])
        self.embedding.weight = nn.Parameter(parameters["embedding.weight"].clone())
        self.blocks = nn.ModuleList(Block(of(f"blocks.{i}.")) for i in range(MODEL["layers"]))
        self.norm = Norm(parameters["head.norm"])
        self.head = linear(parameters["head.weight"])

    def forward(self, tokens):
        x = self.embedding(tokens)
        for one in self.blocks:
            x = one(x)
        return self.head(self.norm(x))


def our_name(name):
    """The canonical name of a parameter."""
    if name == "norm.weight":
        return "head.norm"
    return name.removesuffix(".weight") if name.startswith("blocks.") else name


def under(model, mesh, by_tokens):
    between = Shard(1) if by_tokens else Replicate()  # the residual stream, [batch, token, width]
    plan = {f"blocks.*.{name}": ColwiseParallel(input_layouts=between) for name in COLUMNS}
    plan |= {f"blocks.*.{name}": RowwiseParallel(output_layouts=between) for name in ROWS}
    plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    plan["head"] = ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)
    if by_tokens:
        plan |= {name: SequenceParallel() for name in ("blocks.*.norm1", "blocks.*.norm2", "norm")}
    parallelize_module(model, mesh["tensor"], plan)
    for one in model.blocks:
        fully_shard(one, mesh=mesh["shard"])
    return fully_shard(model, mesh=mesh["shard"])


def train(mesh, parameters, by_tokens, seq_len):
    shards, index = mesh["shard"].size(), mesh["shard"].get_local_rank()
    model = under(Decoder(parameters), mesh, by_tokens)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False, **ADAMW)
    each = BATCH // shards
    losses = []
    for step in range(STEPS):
        samples = range(step * BATCH + index * each, step * BATCH + (index + 1) * each)
        tokens = torch.tensor([[golden_file.token(s, i, MODEL["vocab"]) for i in range(seq_len + 1)] for s in samples])
        with loss_parallel():
            value = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].reshape(-1))
            value.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().double()
        dist.all_reduce(mean, group=mesh["shard"].get_group())
        losses.append(mean.item() / shards)
    return losses, {our_name(n): p.full_tensor().detach() for n, p in model.named_parameters()}


def work(rank, address, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    parameters = initial_parameters()
    for name in ("embedding.weight", "head.weight"):
        parameters[name] = parameters[name][: MODEL["vocab"]]
    version = torch.__version__.split("+")[0]
    out = golden_file.GoldenFile(dict(made_with=f"torch {version}", batch=BATCH, steps=STEPS, vocab=MODEL["vocab"], meshes=MESHES))
    for name, case in MESHES.items():
        shard, tensor = case["shard"], case["tensor"]
        # Fewer ranks than there are: the same mesh several times over, each on its own.
        mesh = init_device_mesh("cpu", (RANKS // (shard * tensor), shard, tensor), mesh_dim_names=("copy", "shard", "tensor"))
        losses, final = train(mesh, parameters, case["sequence_parallel"], case["seq_len"])
        out.add(f"{name}/losses", np.array(losses, np.float32))
        for parameter in parameters:
            out.add(f"{name}/{parameter}", final[parameter].numpy())
    if rank == 0:
        out.write(os.path.relpath(os.path.join(folder, f"tensor-{version}"), golden_file.Path(golden_file.__file__).parent))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as store:
        mp.spawn(work, args=(f"file://{store}/store", os.path.abspath(sys.argv[1])), nprocs=RANKS)
