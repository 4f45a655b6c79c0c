#!/usr/bin/env python3
"""Predicted memory of published trainings against what they reserved.

    memory_sets.py PROGRAM FILE.csv ...

Reads tables with the columns of prime-rl's baselines (model, type, gpus, peak_memory_gib), fms-acceleration's full fine-tunings
(peak_torch_bytes) and llm-foundry's benchmarks (which all fitted). Prints measured and predicted GiB a row, the ratio, and
whether it is said to fit. Rows whose model or method is not known here are left out and counted.
"""

import csv
import json
import subprocess
import sys
import tempfile

QWEN = {"model.kind": "decoder", "model.heads": 32, "model.kv_heads": 8, "model.head_dim": 128, "model.vocab": 151936, "model.qk_norm": True}
MODELS = {
    "Qwen/Qwen3-0.6B": QWEN | {"model.layers": 28, "model.width": 1024, "model.heads": 16, "model.ffn_width": 3072, "model.tied_head": True},
    "Qwen/Qwen3-4B-Instruct-2507": QWEN | {"model.layers": 36, "model.width": 2560, "model.ffn_width": 9728, "model.tied_head": True},
    "mistralai/Mistral-7B-v0.1": {"model.kind": "decoder", "model.layers": 32, "model.width": 4096, "model.heads": 32, "model.kv_heads": 8, "model.ffn_width": 14336, "model.vocab": 32000},
    "meta-llama/Meta-Llama-3-8B": {"model.preset": "llama3-8b"},
}  # fmt: skip
CLUSTERS = {"NVIDIA H100 80GB HBM3": "dgx-h100", "NVIDIA H200": "hgx-h200", "NVIDIA B200": "hgx-b200", "h100_80gb": "dgx-h100", "a100_80gb": "dgx-a100", "a100_40gb": "roce-a100-40gb"}  # fmt: skip


def settings(row: dict) -> tuple[dict, str, float] | None:
    """Keys, cluster and measured bytes; 0 where only known to have fitted."""
    bf16 = {"fsdp.param_dtype": "bf16", "fsdp.activation_checkpointing": True}
    if "peak_memory_gib" in row:
        cluster = CLUSTERS.get(row["device"])
        if row["ok"] != "True" or row["lora_rank"] or row["model"] not in MODELS or not cluster or row["checkpointing"] != "Recompute":
            return None
        keys = MODELS[row["model"]] | bf16 | {"mesh.ranks": row["gpus"], "train.seq_len": row["seq_len"], "train.batch_per_rank": 1}
        keys |= {"train.accumulate": row["micro_batches"], "simulate.compiled": True, "simulate.expandable_segments": True, "train.clip_norm": 1}
        keys |= {"fsdp.preset": "fsdp2", "simulate.loss": "referenced_fp32" if row["type"] == "sft" else "chunked"}
        return keys, cluster, float(row["peak_memory_gib"]) * 2**30
    if "peak_torch_bytes" in row:
        if row["peft"] or row["model"] not in MODELS or not row["peak_torch_bytes"]:
            return None
        keys = MODELS[row["model"]] | bf16 | {"mesh.ranks": row["gpus"], "train.seq_len": 4096, "train.batch_per_rank": row["batch_per_device"]}
        keys |= {"fsdp.preset": "fsdp1", "simulate.fused_optimizer": False, "simulate.framework": "transformers"}
        # Newer versions of Accelerate upcast the shards.
        keys |= {"fsdp.reduce_dtype": "bf16", "fsdp.state_dtype": "fp32" if "liger" in row["file"] else "bf16"}
        if "fast-kernels" in row["framework_config"]:
            keys |= {"simulate.loss": "chunked" if "liger" in row["framework_config"] else "fused"}
        return keys, "dgx-a100", float(row["peak_torch_bytes"])
    keys = bf16 | {"model.preset": "mpt-" + row["Model"], "mesh.ranks": row["# GPUs"], "train.seq_len": row["SeqLen (T)"]}
    keys |= {"train.batch_per_rank": row["MicroBatchSize"], "train.accumulate": row["GradAccum"], "simulate.loss": "fused", "fsdp.preset": "fsdp1"}
    keys |= {"fsdp.activation_checkpointing": row["Activation Checkpointing"] == "True", "model.learned_positions": 0}
    keys |= {"fsdp.reduce_dtype": "bf16" if row["MP Mode"] == "PURE" else "fp32"}
    keys |= {"fsdp.strategy": {"FULL_SHARD": "full_shard", "SHARD_GRAD_OP": "shard_grad_op"}[row["Sharding Strategy"]]}
    return (keys, CLUSTERS[row["GPU"]], 0) if row["GPU"] in CLUSTERS else None


def predicted(program: str, keys: dict, cluster: str, allocated: bool) -> tuple[float, bool] | str:
    with tempfile.TemporaryDirectory() as out:
        sets = [f"--set={k}={json.dumps(v) if isinstance(v, bool) else v}" for k, v in keys.items()]
        command = [program, "simulate", "quickstart", "--cluster", cluster, "-o", out + "/result", *sets, "--set=train.warmup=1", "--set=train.steps=1"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
        with open(out + "/result/result.json", encoding="utf-8") as file:
            memory = json.load(file)["memory"]
        torch = memory["caching_allocator"]
        return torch["peak_allocated_bytes" if allocated else "peak_reserved_bytes"], memory["fits"]



def main() -> int:
    program, *files = sys.argv[1:]
    for name in files:
        left_out, fitting, ratios, known = 0, 0, [], 0
        for row in csv.DictReader(open(name, encoding="utf-8")):
            said = settings(row)
            answer = predicted(program, said[0], said[1], "peak_torch_bytes" in row) if said else ""
            if isinstance(answer, str):
                left_out += 1
                if answer:
                    print(f"  left out: {answer}")
                continue
            known += 1
            fitting += answer[1]
            title = " ".join(f"{row.get(k, '')}" for k in ("model", "Model", "type", "framework_config", "gpus", "# GPUs", "GPU", "seq_len", "SeqLen (T)", "batch_per_device", "MicroBatchSize") if row.get(k))
            ratio = answer[0] / said[2] if said[2] else 0
            ratios += [ratio] if ratio else []
            print(f"{title:80} measured {said[2] / 2**30:7.2f} predicted {answer[0] / 2**30:7.2f} GiB{f'  {ratio - 1:+.1%}' if ratio else ''}  {'fits' if answer[1] else 'does NOT fit'}")
        ratios.sort()
        print(f"{name}: {known} rows, {fitting} said to fit, {left_out} left out" + (f", median ratio {ratios[len(ratios) // 2]:.3f}" if ratios else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
