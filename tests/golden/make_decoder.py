"""Exports a small Llama-style decoder trained for three AdamW steps in plain PyTorch, fp32 on CPU: initial parameters,
tokens, the loss of each step, every gradient of step 1 and the parameters after the last step. Once with a tied head,
once without. Prints how far the same training in float64 is from it: the rounding error that a tolerance must allow.

    python make_decoder.py [NAME ...]       (needs torch and numpy; see README.md); without names all
"""

import platform
import sys

import numpy as np
import torch
import torch.nn.functional as F

from golden_file import GoldenFile

MODEL = dict(layers=3, width=32, heads=4, kv_heads=2, ffn_width=56, vocab=61, rope_theta=10000.0, norm_epsilon=1e-5)
BATCH, SEQ, STEPS = 8, 17, 3
ADAMW = dict(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.1)


def parameter_shapes(model, tied):
    """Canonical names, order and shapes, as src/plan/model_shapes.h states them."""
    d, f, v = model["width"], model["ffn_width"], model["vocab"]
    kv = d // model["heads"] * model["kv_heads"]
    shapes = {"embedding.weight": (v, d)}
    for i in range(model["layers"]):
        of_block = dict(
            norm1=(d,), wq=(d, d), wk=(kv, d), wv=(kv, d), wo=(d, d), norm2=(d,), w_gate=(f, d), w_up=(f, d), w_down=(d, f)
        )
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in of_block.items()}
    shapes["head.norm"] = (d,)
    if not tied:
        shapes["head.weight"] = (v, d)
    return shapes


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + MODEL["norm_epsilon"]) * weight


def rotary(x):
    """x [batch, heads, seq, head_dim], halves rotated."""
    half = x.shape[-1] // 2
    frequency = MODEL["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), frequency)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def loss_of(model, p, tokens, targets):
    """The cross-entropy."""
    heads, kv_heads = model["heads"], model["kv_heads"]
    batch, seq = tokens.shape
    split = lambda t, n: t.view(batch, seq, n, -1).transpose(1, 2)
    x = p["embedding.weight"][tokens]
    for i in range(model["layers"]):
        w = lambda name: p[f"blocks.{i}.{name}"]

        def product(x, name):
            return x @ w(name).T

        n1 = rms_norm(x, w("norm1"))
        q, k = rotary(split(product(n1, "wq"), heads)), rotary(split(product(n1, "wk"), kv_heads))
        v = split(product(n1, "wv"), kv_heads)
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq, -1)
        h = x + product(a, "wo")
        n2 = rms_norm(h, w("norm2"))
        x = h + product(F.silu(product(n2, "w_gate")) * product(n2, "w_up"), "w_down")
    logits = rms_norm(x, p["head.norm"]) @ p.get("head.weight", p["embedding.weight"]).T
    return F.cross_entropy(logits.reshape(batch * seq, -1), targets.reshape(-1))


def initial_parameters(model, tied):
    """Large enough for every gradient to matter; norms away from 1."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(shape, generator=generator) * 0.2 + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in parameter_shapes(model, tied).items()
    }


def train(model, initial, tokens, dtype):
    p = {name: value.to(dtype, copy=True).requires_grad_() for name, value in initial.items()}
    optimizer = torch.optim.AdamW(
        p.values(), lr=ADAMW["learning_rate"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["epsilon"],
        weight_decay=ADAMW["weight_decay"], foreach=False,
    )
    losses, first_gradients = [], {}
    for step in range(len(tokens)):
        optimizer.zero_grad()
        loss = loss_of(model, p, tokens[step, :, :-1], tokens[step, :, 1:])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            first_gradients = {name: value.grad.clone() for name, value in p.items()}
        optimizer.step()
    return losses, first_gradients, {name: value.detach() for name, value in p.items()}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model, steps = MODEL, STEPS
    for name, tied in (("decoder_tied", True), ("decoder_untied", False)):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        initial = initial_parameters(model, tied)
        tokens = torch.randint(model["vocab"], (steps, BATCH, SEQ + 1), generator=torch.Generator().manual_seed(2))
        losses, gradients, final = train(model, initial, tokens, torch.float32)
        exact_losses, exact_gradients, exact_final = train(model, initial, tokens, torch.float64)

        file = GoldenFile(
            dict(
                made_with=f"torch {torch.__version__}, numpy {np.__version__}, python {platform.python_version()}",
                model=model | dict(tied_head=tied), batch=BATCH, seq_len=SEQ, steps=steps, adamw=ADAMW,
                parameters=list(initial),
            )
        )
        file.add("inputs", tokens[:, :, :-1].to(torch.int32).numpy())
        file.add("targets", tokens[:, :, 1:].to(torch.int32).numpy())
        file.add("losses", np.array(losses, np.float32))
        for kind, values in (("initial", initial), ("gradient", gradients), ("final", final)):
            for parameter, value in values.items():
                file.add(f"{kind}/{parameter}", value.detach().numpy())
        file.write(name)

        relative = lambda a, b: ((a.double() - b).abs().max() / b.abs().max()).item()
        print("  float32 against float64: loss", max(abs(a / b - 1) for a, b in zip(losses, exact_losses)),
              "gradients (of the tensor's largest)", max(relative(gradients[n], exact_gradients[n]) for n in gradients),
              "final parameters (absolute)", max((final[n].double() - exact_final[n]).abs().max().item() for n in initial))


if __name__ == "__main__":
    main()
