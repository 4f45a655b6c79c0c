#!/usr/bin/env python3
"""The step time of PyTorch's FSDP2 (fully_shard) for the decoder of one of our result.json files: same shapes, tokens,
dtypes and optimizer, one process a GPU. Writes the median, all steps and their losses as JSON. (Initial parameters are
PyTorch's, so losses are near ours and not equal.)

    python3 torch_fsdp2.py --config result.json --mode eager|compiled --out torch.json      (one GPU)
    torchrun --nproc-per-node 8 torch_fsdp2.py …                                              (several)
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from byte_text import batch_of, text_of

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv_heads, self.head = m["heads"], m["kv_heads"], m["width"] // m["heads"]
        kv = self.head * self.kv_heads
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.norm1 = nn.RMSNorm(m["width"], eps=m["norm_epsilon"])
        self.wq, self.wk, self.wv = linear(m["width"], m["width"]), linear(m["width"], kv), linear(m["width"], kv)
        self.gate, self.up = linear(m["width"], m["ffn_width"]), linear(m["width"], m["ffn_width"])
        self.wo = linear(m["width"], m["width"])
        self.norm2 = nn.RMSNorm(m["width"], eps=m["norm_epsilon"])
        self.down = linear(m["ffn_width"], m["width"])

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        h = self.norm1(x)
        split = lambda t, n: t.view(batch, seq, n, self.head).transpose(1, 2)
        q, k, v = split(self.wq(h), self.heads), split(self.wk(h), self.kv_heads), split(self.wv(h), self.kv_heads)
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        x = x + self.wo(a.transpose(1, 2).reshape(batch, seq, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Decoder(nn.Module):
    def __init__(self, m, seq):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab"], m["width"])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.norm = nn.RMSNorm(m["width"], eps=m["norm_epsilon"])
        self.head = nn.Linear(m["width"], m["vocab"], bias=False)
        if m["tied_head"]:
            self.head.weight = self.embedding.weight
        half = m["width"] // m["heads"] // 2
        angle = torch.outer(torch.arange(seq).float(), m["rope_theta"] ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="a result.json of fsdpbench run")
    parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu only shows that the script runs")
    arguments = parser.parse_args()
    with open(arguments.config, encoding="utf-8") as file:
        config = json.load(file)["config"]
    m, train, fsdp = config["model"], config["train"], config["fsdp"]
    if m["kind"] != "decoder" or train["accumulate"] != 1 or fsdp["activation_checkpointing"]:
        raise SystemExit("This comparison knows decoders without accumulation and without checkpointing only.")
    if not config["data"]["path"]:
        raise SystemExit("The result must say which text it was trained on: run it with --set data.path=FILE_OR_FOLDER.")
    text = text_of(config["data"]["path"])

    alone = "RANK" not in os.environ
    cuda = arguments.device == "cuda"
    device = torch.device("cuda", 0 if alone else int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    wait = torch.cuda.synchronize if cuda else lambda: None
    if cuda:
        torch.cuda.set_device(device)
    network = "nccl" if cuda else "gloo"
    if alone:
        store = tempfile.mktemp(prefix="torch-fsdp2-")
        torch.distributed.init_process_group(network, init_method=f"file://{store}", rank=0, world_size=1)
    else:
        torch.distributed.init_process_group(network)
    torch.manual_seed(1)
    with device:
        model = Decoder(m, train["seq_len"])
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[fsdp["param_dtype"]], reduce_dtype=DTYPES[fsdp["reduce_dtype"]])
    for block in model.blocks:
        if arguments.mode == "compiled":
            block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=train["learning_rate"], betas=(train["beta1"], train["beta2"]),
                                  eps=train["epsilon"], weight_decay=train["weight_decay"], fused=True)

    def loss_of(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    if arguments.mode == "compiled":
        loss_of = torch.compile(loss_of)

    def step(number):
        rows = batch_of(text, number, torch.distributed.get_rank(), torch.distributed.get_world_size(), train["batch_per_rank"],
                        train["seq_len"] + 1)
        tokens = torch.tensor([list(row) for row in rows], device=device)
        wait()
        begin = time.perf_counter()
        loss = loss_of(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        return (time.perf_counter() - begin) * 1000, loss.item()

    for number in range(train["warmup"]):
        step(number)
    times, losses = zip(*(step(train["warmup"] + number) for number in range(train["steps"])))
    if torch.distributed.get_rank() == 0:
        told = {"torch": torch.__version__, "mode": arguments.mode, "device": torch.cuda.get_device_name(device) if cuda else "cpu",
                "median_ms": statistics.median(times), "steps_ms": times, "losses": losses,
                "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if cuda else None}
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=2)
        print(f"{told['median_ms']:.2f} ms a step")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
