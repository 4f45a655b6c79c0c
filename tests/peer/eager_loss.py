#!/usr/bin/env python3
"""Copies of the logits that PyTorch's eager cross entropy holds: src/model/outline.cpp [Note: eager loss] has it from here.

    eager_loss.py

Runs F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1)) and its backward on this processor, as
torchtitan's loss_fn did from 2024-12-18 to 2025-04-02, and follows PyTorch's allocator through its profiler. Prints each
allocation as bytes a logit. Exits with 1 if a peak is another than the simulation's.
"""

import sys

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

TOKENS, VOCABULARY, WIDTH = 512, 4096, 64
# bytes a logit: most in forward, kept between forward and backward, most in backward
SIMULATED = {torch.bfloat16: (10, 4, 12), torch.float32: (8, 4, 12)}


def changes(dtype: torch.dtype) -> list[list[float]]:
    """Bytes a logit that come and go, forward and backward; only what is as large as the logits."""
    hidden = torch.randn(1, TOKENS, WIDTH, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, VOCABULARY, (1, TOKENS))
    parts = []

    def forward() -> torch.Tensor:
        logits = F.linear(hidden, weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))

    loss = None
    for step in (forward, lambda: loss.backward()):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            loss = step()
        sizes = [event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
        parts.append([size / TOKENS / VOCABULARY for size in sizes if abs(size) >= TOKENS * VOCABULARY])
    return parts


def peak(start: float, part: list[float]) -> tuple[float, float]:
    now = most = start
    for change in part:
        now += change
        most = max(most, now)
    return most, now


def main() -> int:
    wrong = False
    for dtype, simulated in SIMULATED.items():
        forward, backward = changes(dtype)
        most, kept = peak(0, forward)
        found = (round(most), round(kept), round(peak(kept, backward)[0]))
        print(f"{dtype}: {found[0]} bytes a logit in forward, {found[1]} kept, {found[2]} in backward", forward, backward)
        wrong |= found != simulated
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
