#!/usr/bin/env python3
"""Records traces, step times, memory and flight-recorder dumps of real sharded PyTorch jobs whose ranks share one GPU.

    gpu_corpus.py --out FOLDER [--only GROUP,GROUP] [--budget SECONDS] [--device cpu]   (cpu: shows that it runs)

Ranks are processes with an NCCL_HOSTID each, so that NCCL takes them for nodes and talks over loopback sockets. Each case
writes NAME.json (what was set; the truth: milliseconds a step without profiler, peak bytes) and NAME.rankR.json (the trace).
"""
import argparse, functools, gc, json, os, signal, socket, subprocess, sys, time, traceback
from pathlib import Path

from gpu_cases import GROUPS, SHAPES

HERE = Path(__file__).resolve()


# ---------------------------------------------------------------- worker
def worker(rank, world, names, out, device_name, group):
    import torch, torch.distributed as dist
    cuda = device_name == "cuda"
    cases = [c for c in GROUPS[group][1] if c["name"] in names]
    if group == "jax":
        return jax_worker(rank, world, cases, out)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", rank=rank, world_size=world,
                            timeout=__import__("datetime").timedelta(seconds=90))
    if cuda:
        torch.cuda.set_device(0)
    for c in cases:
        if rank == 0:
            (out / f"progress-{group}").write_text(c["name"])
        begin = time.time()
        try:
            told = run_case(c, rank, world, out, cuda)
        except Exception as error:  # the same on all ranks, or the group's limit ends them
            told = {"error": f"{type(error).__name__}: {error}"[:2000], "trace": traceback.format_exc()[-1500:]}
        if rank == 0 or c["engine"] == "hang":
            told = dict(c, world=world, seconds=round(time.time() - begin, 1), torch=torch.__version__, **told)
            name = c["name"] if rank == 0 else f"{c['name']}.rank{rank}"
            (out / f"{name}.case.json").write_text(json.dumps(told, indent=1))
            if rank == 0:
                print(c["name"], told.get("error") or f"{told.get('step_ms_median')} ms, {told.get('peak_allocated')} B, {told['seconds']} s", flush=True)
        if "error" in told:
            os._exit(3)
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
    (out / f"done-{group}-{rank}").write_text("")
    os._exit(0)


def blocks_of():
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self, s):
            super().__init__()
            w = s["width"]
            self.head = w // s["heads"]
            self.norm1, self.norm2 = nn.RMSNorm(w), nn.RMSNorm(w)
            self.wq, self.wk, self.wv, self.wo = (nn.Linear(w, w, bias=False) for _ in range(4))
            self.gate, self.up = nn.Linear(w, s["ffn"], bias=False), nn.Linear(w, s["ffn"], bias=False)
            self.down = nn.Linear(s["ffn"], w, bias=False)
            self.exchange = None

        def forward(self, x):
            b, s, _ = x.shape
            h = self.norm1(x)
            split = lambda t: t.view(b, s, -1, self.head).transpose(1, 2)
            a = F.scaled_dot_product_attention(split(self.wq(h)), split(self.wk(h)), split(self.wv(h)), is_causal=True)
            x = x + self.wo(a.transpose(1, 2).reshape(b, s, -1))
            h = self.norm2(x)
            if self.exchange is not None:
                h = self.exchange(h)
            h = self.down(F.silu(self.gate(h)) * self.up(h))
            if self.exchange is not None:
                h = self.exchange(h)
            return x + h

    class Decoder(nn.Module):
        def __init__(self, s, tied=False):
            super().__init__()
            self.embedding = nn.Embedding(s["vocab"], s["width"])
            self.blocks = nn.ModuleList(Block(s) for _ in range(s["layers"]))
            self.norm = nn.RMSNorm(s["width"])
            self.head = nn.Linear(s["width"], s["vocab"], bias=False)
            if tied:
                self.head.weight = self.embedding.weight
            self.host_sync = False

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
                if self.host_sync:
                    x[0, 0, 0].item()
            return self.head(self.norm(x))

    return Block, Decoder


def run_case(c, rank, world, out, cuda):
    if c["engine"] == "hang":
        return hang(c, rank, world, out, cuda)
    import torch, torch.distributed as dist
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    s = dict(SHAPES[c.get("shape", "small") if cuda else "tiny"])
    torch.manual_seed(7)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    step = build(c, s, rank, world, device)
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for _ in range(3):
        step()
    sync()
    dist.barrier()
    count = 6
    marks = []
    begin = time.perf_counter()
    for _ in range(count):
        if cuda:
            e = torch.cuda.Event(enable_timing=True); e.record(); marks.append(e)
        step()
    host_ms = (time.perf_counter() - begin) * 1000 / count
    if cuda:
        e = torch.cuda.Event(enable_timing=True); e.record(); marks.append(e)
    sync()
    wall_ms = (time.perf_counter() - begin) * 1000 / count
    told = {"shape_used": s, "step_ms_wall_mean": round(wall_ms, 3), "host_ms_a_step": round(host_ms, 3)}
    if cuda:
        times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        told |= {"step_ms": [round(t, 3) for t in times], "step_ms_median": round(sorted(times)[count // 2], 3),
                 "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}
    else:
        told["step_ms_median"] = round(wall_ms, 3)
    dist.barrier()
    from torch.profiler import profile, ProfilerActivity, schedule
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    trace = out / f"{c['name']}.rank{rank}.json"
    with profile(activities=activities, schedule=schedule(wait=0, warmup=2, active=3, repeat=1), record_shapes=c.get("shapes", True),
                 with_stack=c.get("stack", False), on_trace_ready=lambda p: p.export_chrome_trace(str(trace))) as p:
        for _ in range(5):
            step()
            p.step()
        sync()
    if c.get("thin", True):
        trace.write_text(json.dumps(thin(json.loads(trace.read_text())), separators=(",", ":")))
    dist.barrier()
    if cuda:
        told["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return told


def build(c, s, rank, world, device):
    """The case's job; a function that does one optimizer step."""
    import torch, torch.distributed as dist, torch.nn.functional as F
    engine = c["engine"]
    if engine == "pipeline":
        return build_pipeline(c, s, rank, world, device)
    if engine == "accelerate":
        return build_accelerate(c, s, rank, world, device)
    Block, Decoder = blocks_of()
    bf16 = c.get("mixed", True)
    if engine == "deepspeed":
        return build_deepspeed(c, s, rank, world, device, Decoder)
    with device:
        model = Decoder(s, c.get("tied", False))
    model.host_sync = c.get("host_sync", False)
    if c.get("frozen"):
        for b in model.blocks[: c["frozen"]]:
            b.requires_grad_(False)
    if c.get("checkpoint") == "block":
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        for i, b in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(b)
    elif c.get("checkpoint") == "selective":
        from torch.utils.checkpoint import create_selective_checkpoint_contexts, CheckpointPolicy
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        save = {torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention.default,
                torch.ops.aten._scaled_dot_product_cudnn_attention.default}
        policy = lambda ctx, op, *a, **k: CheckpointPolicy.MUST_SAVE if op in save else CheckpointPolicy.PREFER_RECOMPUTE
        for i, b in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(b, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
    if engine == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy, CPUOffloadPolicy
        kind = device.type
        mesh = None
        if c.get("mesh"):
            mesh = init_device_mesh(kind, tuple(c["mesh"]), mesh_dim_names=("replicate", "shard"))
        elif c.get("tensor"):
            whole = init_device_mesh(kind, (world // c["tensor"], c["tensor"]), mesh_dim_names=("dp", "tp"))
            from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel
            for b in model.blocks:
                parallelize_module(b, whole["tp"], {"wq": ColwiseParallel(), "wk": ColwiseParallel(), "wv": ColwiseParallel(), "wo": RowwiseParallel(),
                                                    "gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
            mesh = whole["dp"]
        if c.get("experts"):
            from torch.distributed._functional_collectives import all_to_all_single_autograd
            group = dist.new_group(list(range(world)))
            for b in model.blocks:
                b.exchange = lambda h: all_to_all_single_autograd(h.contiguous().view(-1, h.shape[-1]), None, None, group).view(h.shape)
        kw = {}
        if mesh is not None:
            kw["mesh"] = mesh
        if bf16:
            kw["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if c.get("offload"):
            kw["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        if "reshard" in c:
            kw["reshard_after_forward"] = c["reshard"]
        wrap = c.get("wrap", 1)
        if c.get("compiled"):
            for b in model.blocks:
                b.compile()
        if wrap == 1:
            for b in model.blocks:
                fully_shard(b, **kw)
        elif wrap:
            for i in range(0, len(model.blocks), wrap):
                fully_shard(list(model.blocks[i : i + wrap]), **kw)
        fully_shard(model, **kw)
        blocks = list(model.blocks)
        for i, b in enumerate(blocks):
            if c.get("forward_depth"):
                b.set_modules_to_forward_prefetch(blocks[i + 1 : i + 1 + c["forward_depth"]])
            if c.get("backward_depth"):
                b.set_modules_to_backward_prefetch(blocks[max(0, i - c["backward_depth"]) : i][::-1])
        wrapped = model
    elif engine == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, BackwardPrefetch, ShardingStrategy, CPUOffload
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        kw = dict(device_id=device if device.type == "cuda" else None, use_orig_params=c.get("orig", False),
                  limit_all_gathers=c.get("limit", True), forward_prefetch=c.get("forward_prefetch", False),
                  sharding_strategy=getattr(ShardingStrategy, c.get("strategy", "FULL_SHARD")),
                  backward_prefetch={"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, None: None}[c.get("backward_prefetch", "pre")])
        if bf16:
            kw["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
        if c.get("offload"):
            kw["cpu_offload"] = CPUOffload(offload_params=True)
        if c.get("mesh"):
            from torch.distributed.device_mesh import init_device_mesh
            kw["device_mesh"] = init_device_mesh(device.type, tuple(c["mesh"]), mesh_dim_names=("replicate", "shard"))
        if c.get("wrap", 1):
            kw["auto_wrap_policy"] = ModuleWrapPolicy({Block})
        wrapped = FSDP(model, **kw)
    elif engine == "ddp":
        from torch.nn.parallel import DistributedDataParallel as DDP
        wrapped = DDP(model, device_ids=[0] if device.type == "cuda" else None, bucket_cap_mb=c.get("bucket_mb", 25), gradient_as_bucket_view=True)
    else:
        wrapped = model
    parameters = [p for p in wrapped.parameters() if p.requires_grad]
    if c.get("zero1"):
        from torch.distributed.optim import ZeroRedundancyOptimizer
        optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-4, foreach=True)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=device.type == "cuda" and not c.get("offload"))
    seq = s["seq"]
    if c.get("uneven") and rank == 1:
        seq = seq * 3 // 4
    tokens = torch.randint(0, s["vocab"], (s["batch"], seq + 1), device=device)
    autocast = functools.partial(torch.autocast, device.type, torch.bfloat16, enabled=engine in ("ddp", "plain"))
    number = [0]

    def one(last):
        with autocast():
            logits = wrapped(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        return loss

    def step():
        number[0] += 1
        if c.get("stall_ms") and number[0] % 2:
            time.sleep(c["stall_ms"] / 1000)
        if c.get("late_rank") == rank:
            time.sleep(c["late_ms"] / 1000)
        if c.get("slow_rank") == rank:
            with torch.no_grad():
                big = torch.ones(4096, 4096, device=device, dtype=torch.bfloat16)
                for _ in range(60):
                    big @ big
        n = c.get("accumulate", 1)
        how = c.get("accumulate_how")
        for i in range(n):
            last = i == n - 1
            if n > 1 and how != "sync":
                if engine == "fsdp2":
                    wrapped.set_requires_gradient_sync(last)
                    if how == "keep":
                        wrapped.set_reshard_after_backward(last)
                    loss = one(last)
                else:
                    if last:
                        loss = one(last)
                    else:
                        with wrapped.no_sync():
                            loss = one(last)
            else:
                loss = one(last)
        if c.get("clip"):
            torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if c.get("item"):
            loss.item()

    return step


def build_pipeline(c, s, rank, world, device):
    import torch, torch.nn.functional as F
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    Block, Decoder = blocks_of()
    mesh = init_device_mesh(device.type, (2, world // 2), mesh_dim_names=("pp", "dp"))
    stage_number = mesh["pp"].get_local_rank()
    with device:
        whole = Decoder(s)
    half = s["layers"] // 2
    layers = [whole.embedding, *whole.blocks[:half]] if stage_number == 0 else [*whole.blocks[half:], whole.norm, whole.head]
    part = nn.Sequential(*layers)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in part:
        if isinstance(layer, Block):
            fully_shard(layer, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
    fully_shard(part, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
    micro, chunks = s["batch"], 4
    batch = micro * chunks
    loss_of = lambda out, target: F.cross_entropy(out.flatten(0, 1).float(), target.flatten())
    stage = PipelineStage(part, stage_number, 2, device, group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, chunks, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4)
    tokens = torch.randint(0, s["vocab"], (batch, s["seq"] + 1), device=device)

    def step():
        if stage_number == 0:
            schedule.step(tokens[:, :-1].contiguous())
        else:
            schedule.step(target=tokens[:, 1:].contiguous(), losses=[])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def build_accelerate(c, s, rank, world, device):
    import torch
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=s["vocab"], hidden_size=s["width"], intermediate_size=s["ffn"], num_hidden_layers=s["layers"],
                         num_attention_heads=s["heads"], num_key_value_heads=s["heads"] // 2, max_position_embeddings=s["seq"])
    plugin = None
    if c["version"]:
        plugin = FullyShardedDataParallelPlugin(fsdp_version=c["version"], auto_wrap_policy="transformer_based_wrap",
                                                transformer_cls_names_to_wrap=["LlamaDecoderLayer"])
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = "LlamaDecoderLayer"
    accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin, cpu=device.type == "cpu")
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    tokens = torch.randint(0, s["vocab"], (s["batch"], s["seq"]), device=device)

    def step():
        loss = model(input_ids=tokens, labels=tokens).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    return step


def build_deepspeed(c, s, rank, world, device, Decoder):
    import torch, torch.nn.functional as F
    import deepspeed
    settings = {"train_micro_batch_size_per_gpu": s["batch"], "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": c["stage"], "overlap_comm": c.get("overlap", True), "contiguous_gradients": True,
                                      "stage3_param_persistence_threshold": 1000, "stage3_prefetch_bucket_size": 5000000,
                                      "reduce_bucket_size": 10000000}}
    with device:
        torch.manual_seed(7)
        model = Decoder(s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings, dist_init_required=False)
    tokens = torch.randint(0, s["vocab"], (s["batch"], s["seq"] + 1), device=device)

    def step():
        logits = engine(tokens[:, :-1])
        engine.backward(F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()))
        engine.step()

    return step


def hang(c, rank, world, out, cuda):
    """A job that stops, and what the flight recorder of each rank holds then."""
    import torch, torch.distributed as dist
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    culprit = c.get("culprit", 1)
    s = dict(SHAPES["small" if cuda else "tiny"])
    if c["how"] == "cycle":
        a, b = dist.new_group(list(range(world))), dist.new_group(list(range(world)))
        x = torch.ones(1 << 20, device=device)
        for _ in range(3):
            dist.all_reduce(x, group=a); dist.all_reduce(x, group=b)
        order = (a, b) if rank != culprit else (b, a)
        for g in order:
            w = dist.all_reduce(x, group=g, async_op=True)
            if cuda:
                torch.cuda.current_stream().wait_stream(torch.cuda.current_stream())
            w.wait()
    else:
        step = build(dict(c, engine="fsdp2"), s, rank, world, device)
        for _ in range(3):
            step()
        if cuda:
            torch.cuda.synchronize()
        if rank == culprit and c["how"] == "host":
            pass  # it never comes to its next step
        elif c["how"] == "skip":
            x = torch.ones(1 << 20, device=device)
            if rank != culprit:
                dist.all_reduce(x, async_op=True)
            step_async(step)
        else:
            step_async(step)
    time.sleep(6)
    if cuda:
        dump = torch._C._distributed_c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False)
        (out / f"{c['name']}.dump_{rank}").write_bytes(dump)
    time.sleep(3)
    return {"culprit": culprit, "how": c["how"]}


def step_async(step):
    import threading
    threading.Thread(target=step, daemon=True).start()


def jax_worker(rank, world, cases, out):
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = ".3"
    import jax, jax.numpy as jnp
    import numpy as np
    jax.distributed.initialize(coordinator_address=f"127.0.0.1:{os.environ['MASTER_PORT']}", num_processes=world, process_id=rank, local_device_ids=[0])
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()), ("fsdp",))
    for c in cases:
        begin = time.time()
        try:
            width, ffn, layers, batch, seq = (64, 128, 3, 2 * world, 32) if os.environ.get("JAX_PLATFORMS") == "cpu" else (1024, 4096, 6, 2 * world, 1024)
            key = jax.random.PRNGKey(0)
            make = lambda *shape: jax.jit(lambda k: jax.random.normal(k, shape, jnp.float32) * 0.02, out_shardings=NamedSharding(mesh, P(*([None] * (len(shape) - 2)), "fsdp", None)))(key)
            if c.get("scan"):
                params = {"up": make(layers, width, ffn), "down": make(layers, ffn, width), "q": make(layers, width, width), "o": make(layers, width, width)}
            else:
                params = [{"up": make(width, ffn), "down": make(ffn, width), "q": make(width, width), "o": make(width, width)} for _ in range(layers)]
            x = jax.make_array_from_callback((batch, seq, width), NamedSharding(mesh, P("fsdp")), lambda i: np.ones((batch, seq, width), np.float32)[i])

            def block(h, p):
                p = jax.tree.map(lambda a: a.astype(jnp.bfloat16), p)
                q = h @ p["q"]
                a = jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, q).astype(jnp.float32) / 32.0).astype(jnp.bfloat16) @ q
                h = h + a @ p["o"]
                return h + jax.nn.silu(h @ p["up"]) @ p["down"]

            def loss(params, x):
                h = x.astype(jnp.bfloat16)
                if c.get("scan"):
                    h, _ = jax.lax.scan(lambda h, p: (jax.checkpoint(block)(h, p), None), h, params)
                else:
                    for p in params:
                        h = jax.checkpoint(block)(h, p)
                return jnp.mean(h.astype(jnp.float32) ** 2)

            @jax.jit
            def train(params, x):
                value, grads = jax.value_and_grad(loss)(params, x)
                return jax.tree.map(lambda p, g: jax.lax.with_sharding_constraint(p - 1e-3 * g, p.sharding if hasattr(p, "sharding") and not isinstance(p, jax.core.Tracer) else NamedSharding(mesh, P(*([None] * (p.ndim - 2)), "fsdp", None))), params, grads), value

            for _ in range(3):
                params, value = train(params, x)
            jax.block_until_ready(params)
            t = time.perf_counter()
            for _ in range(5):
                params, value = train(params, x)
            jax.block_until_ready(params)
            ms = (time.perf_counter() - t) * 200
            folder = out / f"{c['name']}.rank{rank}.jaxprof"
            with jax.profiler.trace(str(folder)):
                for i in range(3):
                    with jax.profiler.StepTraceAnnotation("train", step_num=i):
                        params, value = train(params, x)
                jax.block_until_ready(params)
            hlo = train.lower(params, x).compile().as_text()
            if rank == 0:
                (out / f"{c['name']}.hlo.txt").write_text(hlo)
            told = {"step_ms_median": ms, "jax": jax.__version__}
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}"[:2000], "trace": traceback.format_exc()[-1500:]}
        if rank == 0:
            (out / f"{c['name']}.case.json").write_text(json.dumps(dict(c, world=world, seconds=time.time() - begin, **told), indent=1))
            print(c["name"], told.get("error") or told, flush=True)
    (out / f"done-jax-{rank}").write_text("")
    os._exit(0)


# ---------------------------------------------------------------- what is stored
DROPPED = {"Ev Idx", "Record function id", "cbid", "queued", "registers per thread", "shared memory", "blocks per SM", "warps per SM",
           "est. achieved occupancy %", "context", "memory bandwidth (GB/s)", "Input Strides"}
WAITS = ("Synchronize", "StreamWaitEvent", "EventRecord", "EventQuery", "Malloc", "Free")


def thin(trace):
    """Without arrows, Python functions, ops that launch nothing and arguments that nobody reads; no row has another time."""
    events = trace["traceEvents"]
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launched = {e["args"].get("correlation") for e in device}
    ops = {e["args"].get("External id") for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver") and "args" in e}

    def stays(e):
        kind, args = e.get("cat"), e.get("args", {})
        if kind in ("cuda_runtime", "cuda_driver"):
            return args.get("correlation") in launched or any(word in e["name"] for word in WAITS)
        if kind == "cpu_op" and e["name"].startswith("aten::"):
            return args.get("External id") in ops
        return kind not in ("ac2g", "python_function")

    def slim(e):
        return dict(e, args={k: v for k, v in e["args"].items() if k not in DROPPED}) if "args" in e else e

    return dict(trace, traceName=Path(trace.get("traceName", "")).name, traceEvents=[slim(e) for e in events if stays(e)])


# ---------------------------------------------------------------- parent
def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_group(group, out, device, deadline):
    world, cases = GROUPS[group]
    left = [c["name"] for c in cases]
    while left and time.time() < deadline - 5:
        port = free_port()
        (out / f"progress-{group}").write_text(left[0])
        children = []
        # one hang a start: its ranks do not come back
        names = left[:1] if group.startswith("hang") else left
        for rank in range(world):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                       NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_NET="Socket", NCCL_SOCKET_NTHREADS="2",
                       NCCL_NSOCKS_PERTHREAD="2", TORCH_NCCL_TRACE_BUFFER_SIZE="4000", TORCH_FR_BUFFER_SIZE="4000", TORCH_NCCL_DUMP_ON_TIMEOUT="0", TORCH_NCCL_ENABLE_MONITORING="0",
                       PYTORCH_CUDA_ALLOC_CONF="", OMP_NUM_THREADS="3", DS_BUILD_OPS="0", TOKENIZERS_PARALLELISM="false")
            log = open(out / f"log-{group}-{rank}.txt", "a")
            children.append(subprocess.Popen([sys.executable, "-u", str(HERE), "--worker", str(rank), "--group", group, "--names", ",".join(names),
                                              "--out", str(out), "--device", device], env=env, stdout=None if rank == 0 else log, stderr=log, start_new_session=True))
        limit = min(deadline, time.time() + (40 if group.startswith("hang") else 600))
        case_since, current = time.time(), left[0]
        while any(p.poll() is None for p in children) and time.time() < limit:
            time.sleep(0.3)
            now = (out / f"progress-{group}").read_text()
            if now != current:
                case_since, current = time.time(), now
            if time.time() - case_since > 75 or any(p.poll() not in (None, 0) for p in children):
                time.sleep(1)
                break
        for p in children:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
        if group.startswith("hang"):
            left = left[1:]
            continue
        if all((out / f"done-{group}-{r}").exists() for r in range(world)):
            return
        current = (out / f"progress-{group}").read_text()
        print(f"{group}: ended at {current}; codes {[p.returncode for p in children]}", flush=True)
        left = left[left.index(current) + 1:]
    if left:
        print(f"{group}: left out {left}", flush=True)


def pack(out, final):
    import concurrent.futures, tarfile, shutil
    for folder in out.glob("*.jaxprof"):
        for f in folder.rglob("*"):
            if f.is_file():
                shutil.copy(f, out / f"{folder.name}.{f.name}")
        shutil.rmtree(folder)
    files = sorted(f for f in out.iterdir() if f.is_file() and not f.name.endswith(".xz") and not f.name.startswith(("progress", "done")))
    with concurrent.futures.ThreadPoolExecutor(15) as pool:
        list(pool.map(lambda f: subprocess.run(["xz", "-2", "-f", str(f)], check=False), files))
    files = sorted(out.glob("*.xz"), key=lambda f: -f.stat().st_size)
    most, bins = 15 << 20, []
    for f in files:
        size = f.stat().st_size + 1024
        for b in bins:
            if b[0] + size < most:
                b[0] += size; b[1].append(f); break
        else:
            bins.append([size, [f]])
    for i, (size, members) in enumerate(bins[:7]):
        with tarfile.open(final / f"corpus-{i}.tar", "w") as t:
            for f in sorted(members):
                t.add(f, f.name)
    print(f"packed {len(files)} files in {len(bins)} archives, {sum(b[0] for b in bins) >> 20} MiB", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--final", type=Path)
    p.add_argument("--only", default=",".join(GROUPS))
    p.add_argument("--budget", type=float, default=420)
    p.add_argument("--device", default="cuda")
    p.add_argument("--worker", type=int)
    p.add_argument("--group")
    p.add_argument("--names", default="")
    a = p.parse_args()
    if a.worker is not None:
        return worker(a.worker, GROUPS[a.group][0], a.names.split(","), a.out, a.device, a.group)
    a.out.mkdir(parents=True, exist_ok=True)
    deadline = time.time() + a.budget
    for group in a.only.split(","):
        begin = time.time()
        run_group(group, a.out, a.device, deadline)
        print(f"== {group}: {time.time() - begin:.0f} s", flush=True)
    if a.final:
        a.final.mkdir(parents=True, exist_ok=True)
        pack(a.out, a.final)


if __name__ == "__main__":
    main()
