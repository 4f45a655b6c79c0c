"""Trains the decoder of tests/golden under FSDP2, FSDP1 and DDP for eight AdamW steps on four CPU ranks, and stores every
loss and every final parameter: `python train.py FOLDER`. It begins with the stored parameters of decoder_untied; the
tokens are those of tests/support/tiny_run.h, computed from their number.
"""

import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
sys.path.append(str(GOLDEN))

import golden_file  # noqa: E402
import make_decoder  # noqa: E402

RANKS, BATCH, SEQ, STEPS = 4, 8, 17, 8
ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
ENGINES = ("fsdp2", "fsdp1", "ddp")
MASK = (1 << 64) - 1


def token(sample, i, vocabulary):
    """HashedBatches::tokens of tests/support/tiny_run.h."""
    z = (sample * 0x9E3779B97F4A7C15 + i * 0xD1B54A32D192ED03) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return (z ^ (z >> 31)) % vocabulary


def initial_parameters():
    index = json.loads((GOLDEN / "decoder_untied.json").read_text())
    data = (GOLDEN / "decoder_untied.bin").read_bytes()
    result = {}
    for name, entry in index["tensors"].items():
        if name.startswith("initial/"):
            count = int(np.prod(entry["shape"]))
            values = np.frombuffer(data, "<f4", count, entry["offset"]).reshape(entry["shape"])
            result[name.removeprefix("initial/")] = torch.from_numpy(values.copy())
    return result


class Parameters(nn.Module):
    """Parameters by name, and what to compute with them."""

    def __init__(self, parameters, prefix, compute):
        super().__init__()
        for name, value in parameters.items():
            if name.startswith(prefix):
                self.register_parameter(name.removeprefix(prefix), nn.Parameter(value.clone()))
        self.compute = compute

    def forward(self, *inputs):
        return self.compute(self, *inputs)


class Block(Parameters):
    """A unit."""


def embed(p, tokens):
    return F.embedding(tokens, p.weight)


def block(p, x):
    heads, kv_heads = make_decoder.MODEL["heads"], make_decoder.MODEL["kv_heads"]
    batch, seq, _ = x.shape
    split = lambda t, n: t.view(batch, seq, n, -1).transpose(1, 2)
    n1 = make_decoder.rms_norm(x, p.norm1)
    q = make_decoder.rotary(split(n1 @ p.wq.T, heads))
    k = make_decoder.rotary(split(n1 @ p.wk.T, kv_heads))
    v = split(n1 @ p.wv.T, kv_heads)
    k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq, -1)
    h = x + a @ p.wo.T
    n2 = make_decoder.rms_norm(h, p.norm2)
    return h + (F.silu(n2 @ p.w_gate.T) * (n2 @ p.w_up.T)) @ p.w_down.T


def loss(p, x, targets):
    logits = make_decoder.rms_norm(x, p.norm) @ p.weight.T
    return F.cross_entropy(logits.reshape(targets.numel(), -1), targets.reshape(-1))


class Decoder(nn.Module):
    def __init__(self, parameters):
        super().__init__()
        self.embedding = Parameters(parameters, "embedding.", embed)
        self.blocks = nn.ModuleList(
            Block(parameters, f"blocks.{i}.", block) for i in range(make_decoder.MODEL["layers"]))
        self.head = Parameters(parameters, "head.", loss)

    def forward(self, tokens):
        x = self.embedding(tokens[:, :-1])
        for one in self.blocks:
            x = one(x)
        return self.head(x, tokens[:, 1:])


def under(engine, model):
    if engine == "fsdp2":
        for one in model.blocks:
            fully_shard(one)
        return fully_shard(model)
    if engine == "fsdp1":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True,
                                        auto_wrap_policy=ModuleWrapPolicy({Block}))
    return nn.parallel.DistributedDataParallel(model)


def final_parameters(engine, model):
    if engine == "fsdp2":
        return {name: value.full_tensor().detach() for name, value in model.named_parameters()}
    if engine == "fsdp1":
        with FullyShardedDataParallel.summon_full_params(model):
            return {name.replace("_fsdp_wrapped_module.", ""): value.detach().clone()
                    for name, value in model.named_parameters()}
    return {name.removeprefix("module."): value.detach() for name, value in model.named_parameters()}


def train(engine, rank, parameters):
    model = under(engine, Decoder(parameters))
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    each = BATCH // RANKS
    losses = []
    for step in range(STEPS):
        samples = range(step * BATCH + rank * each, step * BATCH + (rank + 1) * each)
        tokens = torch.tensor([[token(s, i, make_decoder.MODEL["vocab"]) for i in range(SEQ + 1)] for s in samples])
        value = model(tokens)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = value.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    return losses, final_parameters(engine, model)


def work(rank, address, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    parameters = initial_parameters()
    version = torch.__version__.split("+")[0]
    out = golden_file.GoldenFile(dict(
        made_with=f"torch {version}", ranks=RANKS, batch=BATCH, seq_len=SEQ, steps=STEPS, engines=list(ENGINES)))
    for engine in ENGINES:
        losses, final = train(engine, rank, parameters)
        out.add(f"{engine}/losses", np.array(losses, np.float32))
        for name in parameters:
            out.add(f"{engine}/{name}", final[name].numpy())
    if rank == 0:
        out.write(os.path.relpath(os.path.join(folder, f"training-{version}"), GOLDEN))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as store:
        mp.spawn(work, args=(f"file://{store}/store", os.path.abspath(sys.argv[1])), nprocs=RANKS)
