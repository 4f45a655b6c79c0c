"""Compiles FSDP programs ahead of time with XLA's GPU compiler for H100s, which needs no GPU, and stores what it wrote.

    xla_programs.py record FOLDER [NAME …]    compiles; writes NAME.hlo.txt and NAME.json
    xla_programs.py pack FOLDER               the same in one file, xla-programs-VERSION.tar.xz
    xla_programs.py check FILE PROGRAM        asks `PROGRAM explain --hlo` about each, and compares with NAME.json

The text is what `compiled.as_text()` gives, without the tables of the source's files and the bodies of fusions that
multiply no matrices: these hold neither collectives nor loops. NAME.json is made of the serialized
HloModuleProto, field by field, by xla_counts.py: it and the program's reader have nothing in common.
"""
import argparse
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import xla_counts

# What XLA needs to know of a GPU to compile for it: an H100 SXM.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 %s
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
SINCE_0_10 = """
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  device_vendor: "NVIDIA Corporation" platform_version: "Compute Capability 9.0"
  name: "NVIDIA H100 80GB HBM3" driver_version: "13.0.0" runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
"""

GIB = str(1 << 30)
PIPELINE = {"gather": "xla_gpu_enable_pipelined_all_gather", "reduce": "xla_gpu_enable_pipelined_all_reduce",
            "scatter": "xla_gpu_enable_pipelined_reduce_scatter"}
THRESHOLDS = {f"xla_gpu_{kind}_combine_threshold_bytes": GIB for kind in ("all_gather", "reduce_scatter", "all_reduce")}


def programs():
    """Name: keywords of train_step(), and of compile_for()."""
    scan, ckpt = {"scan": True}, {"checkpoint": True}
    both = scan | ckpt
    flag = lambda **flags: {"flags": {k: str(v) for k, v in flags.items()}}
    cases = {
        "unroll": {}, "unroll-ckpt": ckpt, "scan": scan, "scan-ckpt": both,
        "scan-dots": scan | {"checkpoint": "dots_with_no_batch_dims_saveable"},
        "scan-everything": scan | {"checkpoint": "everything_saveable"},
        "unroll-dots": {"checkpoint": "dots_with_no_batch_dims_saveable"},
        "scan-fp32": scan | {"dtype": "float32"}, "unroll-fp32": {"dtype": "float32"},
        "scan-ckpt-fp32": both | {"dtype": "float32"},
        "scan-cast-before": scan | {"cast": "before"},
        "scan-ckpt-two-hosts": both | {"topology": "1x2x8"}, "unroll-two-hosts": {"topology": "1x2x8"},
        "scan-ckpt-64": both | {"topology": "1x8x8"}, "unroll-ckpt-64": ckpt | {"topology": "1x8x8"},
        "hsdp": both | {"mesh": {"replica": 2, "fsdp": 4}}, "hsdp-unroll": {"mesh": {"replica": 2, "fsdp": 4}},
        "hsdp-two-hosts": both | {"mesh": {"replica": 2, "fsdp": 8}, "topology": "1x2x8"},
        "hsdp-64": both | {"mesh": {"replica": 8, "fsdp": 8}, "topology": "1x8x8"},
        "tensor": both | {"mesh": {"fsdp": 4, "tensor": 2}}, "tensor-unroll": {"mesh": {"fsdp": 4, "tensor": 2}},
        "tensor-two-hosts": both | {"mesh": {"fsdp": 4, "tensor": 4}, "topology": "1x2x8"},
        "accumulate": both | {"accumulate": 4}, "accumulate-unroll": {"accumulate": 2},
        "pipelined-gather": both | flag(**{PIPELINE["gather"]: True}),
        "pipelined-gather-no-ckpt": scan | flag(**{PIPELINE["gather"]: True}),
        "pipelined-both": both | flag(**{PIPELINE["gather"]: True, PIPELINE["reduce"]: True}),
        "double-buffered": both | flag(xla_gpu_enable_while_loop_double_buffering=True),
        "pipelined-double-buffered": both | flag(**{PIPELINE["gather"]: True}, xla_gpu_enable_while_loop_double_buffering=True),
        "thresholds": both | flag(**THRESHOLDS), "thresholds-unroll-ckpt": ckpt | flag(**THRESHOLDS),
        "thresholds-unroll": flag(**THRESHOLDS), "thresholds-none": both | flag(**dict.fromkeys(THRESHOLDS, 1)),
        "no-sol": both | flag(xla_gpu_enable_analytical_sol_latency_estimator=False),
        "no-sol-unroll": flag(xla_gpu_enable_analytical_sol_latency_estimator=False),
        "overlap-4": ckpt | flag(xla_gpu_experimental_parallel_collective_overlap_limit=4),
        "scan-overlap-4": both | flag(xla_gpu_experimental_parallel_collective_overlap_limit=4),
        "sync-gathers": both | flag(xla_gpu_disable_async_collectives="ALLGATHER"),
        "zero1": {"zero1": True}, "zero1-scan": scan | {"zero1": True},
        "ddp": {"replicated": True}, "ddp-scan": scan | {"replicated": True},
        "batch-replicated": both | {"batch_axes": ()}, "batch-replicated-unroll": {"batch_axes": ()},
        "shard-map": both | {"shard_map": True},
        "shard-map-unpipelined": both | {"shard_map": True} | flag(**{PIPELINE["scatter"]: False}),
        "shard-map-unroll": {"shard_map": True},
    }
    return cases


def train_step(jax, mesh, *, scan=False, checkpoint=False, dtype="bfloat16", cast="use", accumulate=1, zero1=False,
               replicated=False, batch_axes=None, shard_map=False, layers=4, width=4096, ffn=16384, batch=None, seq=4096):
    """A training step with momentum of blocks of attention and an MLP, and the shapes of its arguments."""
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec as P
    tensor = "tensor" if "tensor" in mesh.axis_names else None
    axes = tuple(a for a in mesh.axis_names if a != "tensor") if batch_axes is None else batch_axes
    batch = batch or mesh.devices.size // (mesh.shape["tensor"] if tensor else 1) * accumulate
    compute = jnp.dtype(dtype)
    lead = (None,) if scan else ()
    specs = {"q": P(*lead, "fsdp", None), "o": P(*lead, "fsdp", None),
             "up": P(*lead, "fsdp", tensor), "down": P(*lead, tensor or "fsdp", "fsdp" if tensor else None)}
    shapes = {"q": (width, width), "o": (width, width), "up": (width, ffn), "down": (ffn, width)}
    batch_spec = P(axes if axes else None)

    def cast_all(p):
        return jax.tree.map(lambda a: a.astype(compute), p)

    def block(h, p):
        if shard_map:
            p = {k: jax.lax.all_gather(v.astype(compute), "fsdp", axis=0, tiled=True) for k, v in p.items()}
        elif cast == "use":
            p = cast_all(p)
        q = h @ p["q"]
        scores = jnp.einsum("bsd,btd->bst", q, q).astype(jnp.float32) / 64.0
        h = h + (jax.nn.softmax(scores).astype(compute) @ q) @ p["o"]
        return h + jax.nn.silu(h @ p["up"]) @ p["down"]

    def loss(params, x):
        h = x.astype(compute)
        if cast == "before":
            params = cast_all(params)
        policy = getattr(jax.checkpoint_policies, checkpoint) if isinstance(checkpoint, str) else None
        body = jax.checkpoint(block, policy=policy) if checkpoint else block
        if scan:
            h, _ = jax.lax.scan(lambda h, p: (body(h, p), None), h, params)
        else:
            for p in params:
                h = body(h, p)
        value = jnp.mean(h.astype(jnp.float32) ** 2)
        return jax.lax.pmean(value, axes) if shard_map else value

    def tree(make):
        one = {k: make(k) for k in specs}
        return one if scan else [dict(one) for _ in range(layers)]

    stored = tree(lambda k: NamedSharding(mesh, P() if zero1 or replicated else specs[k]))
    state = tree(lambda k: NamedSharding(mesh, P() if replicated else specs[k]))
    gradients = jax.value_and_grad(loss)
    if shard_map:
        spec = tree(lambda k: specs[k])
        gradients = jax.shard_map(jax.value_and_grad(loss), mesh=mesh, in_specs=(spec, batch_spec), out_specs=(P(), spec),
                                  check_vma=False)

    def train(params, momentum, x):
        if accumulate > 1:
            def add(carry, part):
                value, grads = gradients(params, part)
                grads = jax.tree.map(jax.lax.with_sharding_constraint, grads, state)
                return jax.tree.map(jnp.add, carry, (value, grads)), None
            zero = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, params))
            parts = x.reshape(accumulate, x.shape[0] // accumulate, *x.shape[1:])
            parts = jax.lax.with_sharding_constraint(parts, NamedSharding(mesh, P(None, *batch_spec)))
            (value, grads), _ = jax.lax.scan(add, zero, parts)
        else:
            value, grads = gradients(params, x)
        grads = jax.tree.map(jax.lax.with_sharding_constraint, grads, state)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m, s: jax.lax.with_sharding_constraint(p - 1e-3 * m, s), params, momentum, stored)
        return params, momentum, value

    def arguments(shardings):
        if scan:
            return {k: jax.ShapeDtypeStruct((layers, *shapes[k]), jnp.float32, sharding=shardings[k]) for k in shapes}
        return [{k: jax.ShapeDtypeStruct(shapes[k], jnp.float32, sharding=one[k]) for k in shapes} for one in shardings]

    x = jax.ShapeDtypeStruct((batch, seq, width), jnp.float32, sharding=NamedSharding(mesh, batch_spec))
    return jax.jit(train, donate_argnums=(0, 1)), (arguments(stored), arguments(state), x)


def compiled_on(topology, mesh, flags, make, **keywords):
    """What make(jax, mesh, **keywords) gives, a jitted function and the shapes of its arguments, compiled for H100s."""
    import jax
    import numpy as np
    from jax.experimental import topologies
    target = H100 % (SINCE_0_10 if jax.__version_info__ >= (0, 10) else "")
    devices = topologies.get_topology_desc(platform="cuda", target_config=target, topology=topology).devices
    mesh = mesh or {"fsdp": len(devices)}
    grid = jax.sharding.Mesh(np.array(devices).reshape(*mesh.values()), tuple(mesh))
    step, arguments = make(jax, grid, **keywords)
    # Autotuning would time kernels on a GPU; it chooses kernels, and no collective.
    options = {"xla_gpu_autotune_level": "0"} | (flags or {})
    if jax.__version_info__ >= (0, 11, 1):
        renamed = {flag: flag.replace("enable_pipelined", "pipeline") for flag in options}
        options = {renamed[flag]: value if flag == renamed[flag] else "COLLECTIVE_PIPELINING_MODE_" + ("ON" if value == "True" else "OFF")
                   for flag, value in options.items()}
    return step.lower(*arguments).compile(compiler_options=options)


def compile_for(topology="1x1x8", mesh=None, flags=None, **keywords):
    return compiled_on(topology, mesh, flags, train_step, **keywords)


def trimmed(text):
    """The computations that run as sequences of their own and those of products, without the source's lines."""
    head, *blocks = re.sub(r" stack_frame_id=\d+", "", text).split("\n\n")
    own = {}
    for block in blocks:
        block = block.strip("\n")
        if match := re.match(r"(ENTRY )?%?([^ ]+) \(", block):
            own[match[2]] = block
    kept, open_ = set(), [name for name, block in own.items() if block.startswith("ENTRY")]
    while open_:
        name = open_.pop()
        if name in kept or name not in own:
            continue
        kept.add(name)
        for line in own[name].split("\n"):
            called = re.search(r" fusion\(.*calls=%?([\w.\-]+)", line)
            if called and " dot(" in own.get(called[1], ""):
                open_.append(called[1])
            elif re.search(r" (while|call|conditional|async-start)\(", line):
                open_ += re.findall(r"(?:body|condition|calls|to_apply|\w+_computation)=%?([\w.\-]+)", line)
                for branches in re.findall(r"branch_computations=\{([^}]*)\}", line):
                    open_ += re.findall(r"[\w.\-]+", branches)
    return "\n\n".join([head, *(block for name, block in own.items() if name in kept)]) + "\n"


def text_and_proto(jax, compiled, dump):
    """Before JAX 0.8 the plugin does not hand out the module: it is in what XLA wrote into the folder `dump`."""
    if jax.__version_info__ >= (0, 8):
        return compiled.as_text(), compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    path = max(dump.glob("*jit_train*after_optimizations.hlo.pb"), key=lambda p: p.stat().st_mtime_ns)
    return path.with_suffix("").with_suffix(".txt").read_text(), xla_counts.message(path.read_bytes())[1][0]


def record(folder, names):
    dump = pathlib.Path(tempfile.mkdtemp())
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={dump} --xla_dump_hlo_as_text --xla_dump_hlo_as_proto"
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # before 0.9 the plugin asks for a driver
    import jax
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in programs().items():
        if names and name not in names:
            continue
        compiled = compile_for(**case)
        text, proto = text_and_proto(jax, compiled, dump)
        counts = xla_counts.counts(proto) | {"case": case, "jax": jax.__version__}
        (folder / f"{name}.hlo.txt").write_text(trimmed(text))
        (folder / f"{name}.json").write_text(json.dumps(counts, sort_keys=True))
        print(name, len(counts["collectives"]), flush=True)


KINDS = {"all-gather": "all_gather", "all-reduce": "all_reduce", "reduce-scatter": "reduce_scatter",
         "all-to-all": "all_to_all", "collective-permute": "send", "ragged-all-to-all": "all_to_all",
         "collective-broadcast": "broadcast"}


def pack(folder):
    """One file of all of it: the texts are alike, and so take little room."""
    import jax
    with tarfile.open(folder / f"xla-programs-{jax.__version__}.tar.xz", "w:xz", preset=9) as archive:
        for path in sorted([*folder.glob("*.hlo.txt"), *folder.glob("*.json")]):
            entry = tarfile.TarInfo(path.name)
            data = path.read_bytes()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def differences(counts, told):
    """Between what XLA's own module has and what the program read of its text."""
    ours = [{"name": c["name"], "kind": c["kind"], "times": c["times"], "depth": c["depth"], "in": c["bytes_in"],
             "out": c["bytes_out"], "operands": c["operands"], "async": c["asynchronous"], "pipelined": c["pipelined"]}
            for c in told["collectives"]]
    theirs = [{"name": c["name"], "kind": KINDS[c["kind"]], "times": c["times"], "depth": c["depth"], "in": c["in"],
               "out": c["out"], "operands": c["operands"], "async": c["start"] and not c["sync"],
               "pipelined": c["pipelined"]} for c in counts["collectives"]]
    found = [f"{a} is read as {b}" for a, b in zip(theirs, ours) if a != b]
    if len(ours) != len(theirs):
        found.append(f"{len(theirs)} collectives, {len(ours)} are read")
    loops = [[loop["depth"], loop["trips"]] for loop in told["loops"]]
    return found + ([] if loops == counts["loops"] else [f"loops {counts['loops']} are read as {loops}"])


def check(archive, program):
    """Every stored program; prints a table, returns how many differ."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as stored:
        stored.extractall(folder)
        for path in sorted(pathlib.Path(folder).glob("*.json")):
            counts = json.loads(path.read_text())
            answer = subprocess.run([program, "explain", "--hlo", path.with_suffix(".hlo.txt"), "--format", "json"],
                                    capture_output=True, text=True, check=True)
            told = json.loads(answer.stdout)
            found = differences(counts, told)
            wrong += bool(found)
            gathers = [c for c in told["collectives"] if c["kind"] == "all_gather" and c["bytes_out"] > 256]
            reduces = [c for c in told["collectives"] if c["kind"] != "all_gather" and c["bytes_in"] > 256]
            total = lambda rows, key: sum(c["times"] * c[key] for c in rows) / 1e6
            print(f"{path.stem:28} {len(gathers):3} {sum(c['times'] for c in gathers):4} {total(gathers, 'bytes_out'):9.1f} MB"
                  f" | {len(reduces):3} {sum(c['times'] for c in reduces):4} {total(reduces, 'bytes_in'):9.1f} MB"
                  f" | {sum(not c['asynchronous'] for c in gathers + reduces):3} on the compute stream"
                  f" {'; '.join(found) if found else ''}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "pack", "check"])
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("rest", nargs="*")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if arguments.what == "record":
        record(arguments.path, arguments.rest)
    elif arguments.what == "pack":
        pack(arguments.path)
    else:
        sys.exit(1 if check(arguments.path, arguments.rest[0]) else 0)


if __name__ == "__main__":
    main()
