"""Trains the decoder of tests/golden under FSDP2, FSDP1 and DDP for eight AdamW steps on four CPU ranks, and stores every
loss and every final parameter: `python train.py FOLDER`. It begins with the stored parameters of decoder_untied; the
tokens are those of tests/support/tiny_run.h, computed from their number. With --trace, two ranks trace steps 5 to 7 under
FSDP2 instead, as FOLDER/rank_N.json.gz.
"""

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


def initial_parameters():
    return {name: torch.from_numpy(value) for name, value in golden_file.initial("decoder_untied").items()}


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
        tokens = torch.tensor([[golden_file.token(s, i, make_decoder.MODEL["vocab"]) for i in range(SEQ + 1)] for s in samples])
        value = model(tokens)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = value.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    return losses, final_parameters(engine, model)


def trace(rank, address, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    from torch.profiler import profile, schedule
    model = under("fsdp2", Decoder(initial_parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    with profile(schedule=schedule(wait=0, warmup=5, active=3, repeat=1), record_shapes=True,
                 on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/rank_{rank}.json.gz")) as profiler:
        for step in range(STEPS):
            samples = range(step * BATCH + rank * 4, step * BATCH + rank * 4 + 4)
            tokens = torch.tensor([[golden_file.token(s, i, make_decoder.MODEL["vocab"]) for i in range(SEQ + 1)] for s in samples])
            model(tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.destroy_process_group()


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
        traces = sys.argv[2:] == ["--trace"]
        mp.spawn(trace if traces else work, args=(f"file://{store}/store", os.path.abspath(sys.argv[1])), nprocs=2 if traces else RANKS)
