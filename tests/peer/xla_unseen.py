"""Programs unlike those of xla_programs.py: what else people write, compiled for H100s and counted the same way.

    xla_unseen.py FOLDER PROGRAM [NAME …]    compiles what FOLDER does not have yet, asks `PROGRAM explain --hlo` about
                                             text and proto of each, and compares with xla_counts.py
"""
import functools
import json
import os
import pathlib
import subprocess
import sys

import xla_counts
import xla_programs

BLOCKS, WIDTH, WIDE, SEQ = 2, 2048, 8192, 512


def shape(jax, mesh, dims, *spec, dtype="float32", memory=None):
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec), memory_kind=memory)
    return jax.ShapeDtypeStruct(dims, dtype, sharding=sharding)


def sgd(jax, loss):
    def step(params, *rest):
        value, grads = jax.value_and_grad(loss)(params, *rest)
        return jax.tree.map(lambda p, g: p - 1e-3 * g.astype(p.dtype), params, grads), value
    return step


def decoder(jax, mesh, *, policy=None, names=(), offload=False, remat=True, donate=True, batch="fsdp", dtype="bfloat16", groups=1,
            accumulate=1, adam=False, spec=("fsdp", None), stored="float32"):
    """Embedding, blocks with norms and biases in a scan (of scans), head, cross entropy; flax's nnx makes the same tree."""
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name
    s = functools.partial(shape, jax, mesh)
    vocab, layers = 4096, BLOCKS * groups
    lead = (groups, BLOCKS) if groups > 1 else (layers,)
    none = (None,) * len(lead)
    kernel = lambda a, b: s((*lead, a, b), *none, *spec, dtype=stored)
    params = {"embed": s((vocab, WIDTH), None, "fsdp"), "head": s((WIDTH, vocab), "fsdp", None), "scale": s((WIDTH,)),
              "blocks": {"qkv": kernel(WIDTH, 3 * WIDTH), "out": kernel(WIDTH, WIDTH), "up": kernel(WIDTH, WIDE),
                         "down": kernel(WIDE, WIDTH), "bias": s((*lead, WIDE), *none), "norm": s((*lead, WIDTH), *none)}}

    def norm(h, scale):
        h32 = h.astype(jnp.float32)
        return (h32 * jax.lax.rsqrt(jnp.mean(h32 * h32, -1, keepdims=True) + 1e-6) * scale).astype(dtype)

    def block(h, p):
        w = jax.tree.map(lambda a: a.astype(dtype), p)
        q, k, v = jnp.split(norm(h, p["norm"]) @ w["qkv"], 3, -1)
        a = jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k).astype(jnp.float32) / 45).astype(dtype) @ v
        h = checkpoint_name(h + a @ w["out"], "mixed")
        return h + jax.nn.gelu(norm(h, p["norm"]) @ w["up"] + w["bias"]) @ w["down"], None

    policies = jax.checkpoint_policies
    if offload:
        chosen = policies.save_and_offload_only_these_names(names_which_can_be_saved=[], names_which_can_be_offloaded=list(names),
                                                            offload_src="device", offload_dst="pinned_host")
    else:
        chosen = policies.save_only_these_names(*names) if names else policy and getattr(policies, policy)
    body = jax.checkpoint(block, policy=chosen) if remat else block
    if groups > 1:
        body = jax.checkpoint(lambda h, p, inner=body: jax.lax.scan(inner, h, p))

    def loss(params, tokens):
        h = params["embed"][tokens].astype(dtype)
        h, _ = jax.lax.scan(lambda h, p: (body(h, p)[0], None), h, params["blocks"])
        logits = (norm(h, params["scale"]) @ params["head"].astype(dtype)).astype(jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0])

    def gradients(params, tokens):
        if accumulate == 1:
            return jax.value_and_grad(loss)(params, tokens)
        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        add = lambda carry, part: (jax.tree.map(jnp.add, carry, jax.value_and_grad(loss)(params, part)), None)
        return jax.lax.scan(add, zero, tokens.reshape(-1, accumulate, SEQ).swapaxes(0, 1))[0]

    def train(params, state, tokens):
        value, grads = gradients(params, tokens)
        size = jnp.sqrt(sum(jnp.sum(g.astype(jnp.float32) ** 2) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g / jnp.maximum(1, size).astype(g.dtype), grads)
        if adam:
            state = jax.tree.map(lambda m, g: (0.9 * m[0] + 0.1 * g, 0.95 * m[1] + 0.05 * g * g), state, grads,
                                 is_leaf=lambda x: isinstance(x, tuple))
            grads = jax.tree.map(lambda m: m[0] / (jnp.sqrt(m[1]) + 1e-8), state, is_leaf=lambda x: isinstance(x, tuple))
        return jax.tree.map(lambda p, g: p - (1e-3 * g).astype(p.dtype), params, grads), state, value

    state = jax.tree.map(lambda a: (a, a), params) if adam else ()
    tokens = s((mesh.devices.size * 2 * accumulate, SEQ), batch, dtype="int32")
    return jax.jit(train, donate_argnums=(0, 1) if donate else ()), (params, state, tokens)


def ring(jax, mesh, *, gather=False):
    """Keys go round a ring of sequence shards; the weights are gathered."""
    import jax.numpy as jnp
    P, n = jax.sharding.PartitionSpec, mesh.shape["sequence"]

    def local(w, x):
        full = jax.lax.all_gather(w.astype("bfloat16"), "fsdp", axis=0, tiled=True)
        q = x @ full
        def turn(carry, _):
            k, sum_ = carry
            sum_ = sum_ + jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k).astype(jnp.float32)).astype("bfloat16") @ k
            return (jax.lax.ppermute(k, "sequence", [(i, (i + 1) % n) for i in range(n)]), sum_), None
        (_, sum_), _ = jax.lax.scan(turn, (q, jnp.zeros_like(q)), None, length=n)
        return jax.lax.pmean(jnp.mean(sum_.astype(jnp.float32) ** 2), ("fsdp", "sequence"))

    mapped = jax.shard_map(local, mesh=mesh, in_specs=(P("fsdp", None), P("fsdp", "sequence")), out_specs=P(), check_vma=False)
    return jax.jit(sgd(jax, mapped)), (shape(jax, mesh, (WIDTH, WIDTH), "fsdp", None),
                                      shape(jax, mesh, (8, 4 * SEQ, WIDTH), "fsdp", "sequence", dtype="bfloat16"))


def experts(jax, mesh, *, ragged=False):
    """Tokens go to experts by all_to_all, and back."""
    import jax.numpy as jnp
    P, n = jax.sharding.PartitionSpec, mesh.shape["expert"]

    def local(params, x):
        w, up = params["router"], params["up"].astype("bfloat16")
        scores = jax.nn.softmax((x @ w.astype("bfloat16")).astype(jnp.float32))
        if ragged:
            even = jnp.full((n,), x.shape[0] // n, jnp.int32)
            at = jnp.arange(n, dtype=jnp.int32) * even[0]
            there = jax.lax.ragged_all_to_all(x, jnp.zeros_like(x), at, even, jax.lax.axis_index("expert") * even, even,
                                              axis_name="expert")
            return jax.lax.pmean(jnp.mean((there @ jax.lax.all_gather(up[0], "fsdp", axis=0, tiled=True)).astype(jnp.float32) ** 2) + jnp.mean(scores), ("fsdp", "expert"))
        parts = (x * scores.max(-1, keepdims=True).astype("bfloat16")).reshape(n, -1, x.shape[-1])
        there = jax.lax.all_to_all(parts, "expert", 0, 0)
        there = jnp.einsum("ntd,df->ntf", there, jax.lax.all_gather(up[0], "fsdp", axis=0, tiled=True))
        back = jax.lax.all_to_all(there, "expert", 0, 0)
        return jax.lax.pmean(jnp.mean(back.astype(jnp.float32) ** 2), ("fsdp", "expert"))

    params = {"router": shape(jax, mesh, (WIDTH, n)), "up": shape(jax, mesh, (n, WIDTH, WIDE), "expert", "fsdp", None)}
    mapped = jax.shard_map(local, mesh=mesh, in_specs=({"router": P(), "up": P("expert", "fsdp", None)}, P(("fsdp", "expert"))),
                           out_specs=P(), check_vma=False)
    step = mapped if ragged else sgd(jax, mapped)
    return jax.jit(step), (params, shape(jax, mesh, (8 * SEQ, WIDTH), ("fsdp", "expert"), dtype="bfloat16"))


def three_axes(jax, mesh):
    """fsdp x tensor x sequence: norms on a split sequence, products on split features."""
    import jax.numpy as jnp
    P, put = jax.sharding.PartitionSpec, jax.lax.with_sharding_constraint
    s = functools.partial(shape, jax, mesh)
    where = lambda *spec: jax.sharding.NamedSharding(mesh, P(*spec))

    def loss(params, x):
        def block(h, p):
            h = put(h, where("fsdp", ("sequence", "tensor"), None))
            mean = h - jnp.mean(h, -1, keepdims=True)
            wide = put(jax.nn.gelu(mean @ p["up"].astype("bfloat16")), where("fsdp", "sequence", "tensor"))
            return put(h + wide @ p["down"].astype("bfloat16"), where("fsdp", ("sequence", "tensor"), None)), None
        return jnp.mean(jax.lax.scan(jax.checkpoint(block), x, params)[0].astype(jnp.float32) ** 2)

    params = {"up": s((BLOCKS, WIDTH, WIDE), None, "fsdp", "tensor"), "down": s((BLOCKS, WIDE, WIDTH), None, "tensor", "fsdp")}
    return jax.jit(sgd(jax, loss), donate_argnums=0), (params, s((8, SEQ, WIDTH), "fsdp", "sequence", dtype="bfloat16"))


def llama(jax, mesh):
    """Llama's block in a scan with jax.checkpoint, everything split over fsdp, also its norms."""
    import jax.numpy as jnp
    s = functools.partial(shape, jax, mesh)
    width, kv, wide = 4096, 1024, 14336
    put = lambda h: jax.lax.with_sharding_constraint(h, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("fsdp")))

    def norm(h, scale):
        h32 = h.astype(jnp.float32)
        return (h32 * jax.lax.rsqrt(jnp.mean(h32 * h32, -1, keepdims=True) + 1e-6) * scale).astype(h.dtype)

    def block(h, p):
        w = {key: value.astype("bfloat16") for key, value in p.items() if key[0] == "w"}
        x = norm(h, p["norm1"])
        split = lambda y, heads: y.reshape(*y.shape[:2], heads, 128)
        q, k, v = split(x @ w["wq"], 32), split(x @ w["wk"], 8), split(x @ w["wv"], 8)
        q = q.reshape(*q.shape[:2], 8, 4, 128)
        scores = jnp.einsum("bsgrd,btgd->bgrst", q, k).astype(jnp.float32) / 11.3
        mixed = jnp.einsum("bgrst,btgd->bsgrd", jax.nn.softmax(scores).astype("bfloat16"), v)
        h = put(h + mixed.reshape(*h.shape[:2], width) @ w["wo"])
        x = norm(h, p["norm2"])
        return put(h + (jax.nn.silu(x @ w["w_gate"]) * (x @ w["w_up"])) @ w["w_down"]), None

    def loss(params, x):
        return jnp.mean(jax.lax.scan(jax.checkpoint(block), x, params)[0].astype(jnp.float32) ** 2)

    kernel = lambda a, b: s((4, a, b), None, "fsdp", None)
    params = {"wq": kernel(width, width), "wk": kernel(width, kv), "wv": kernel(width, kv), "wo": kernel(width, width),
              "w_gate": kernel(width, wide), "w_up": kernel(width, wide), "w_down": kernel(wide, width),
              "norm1": s((4, width), None, "fsdp"), "norm2": s((4, width), None, "fsdp")}
    return jax.jit(sgd(jax, loss), donate_argnums=0), (params, s((mesh.devices.size, 1024, width), "fsdp", dtype="bfloat16"))


def mapped(jax, mesh):
    """jax.lax.map over chunks of the batch."""
    import jax.numpy as jnp
    s = functools.partial(shape, jax, mesh)
    def loss(w, x):
        return jnp.mean(jax.lax.map(lambda part: jnp.mean(jax.nn.silu(part @ w["up"]) @ w["down"]), x))
    return jax.jit(sgd(jax, loss)), ({"up": s((WIDTH, WIDE), "fsdp", None), "down": s((WIDE, WIDTH), "fsdp", None)},
                                    s((4, 8 * SEQ, WIDTH), None, "fsdp"))


def quantised(jax, mesh):
    """int8 weights, multiplied by a scale where they are used: nothing is trained."""
    s = functools.partial(shape, jax, mesh)
    def forward(w, x):
        for one in w:
            x = jax.nn.silu(x @ (one["q"].astype("bfloat16") * one["scale"].astype("bfloat16")))
        return x
    weights = [{"q": s((WIDTH, WIDTH), "fsdp", None, dtype="int8"), "scale": s((WIDTH,), dtype="float32")} for _ in range(3)]
    return jax.jit(forward), (weights, s((8, SEQ, WIDTH), "fsdp", dtype="bfloat16"))


def dynamic(jax, mesh, *, fixed=False):
    """A while loop whose end only the data knows; or fori_loop."""
    import jax.numpy as jnp
    s = functools.partial(shape, jax, mesh)
    def solve(w, x):
        body = lambda x: jnp.tanh(x @ w) * 0.9
        if fixed:
            return jax.lax.fori_loop(0, 6, lambda i, x: body(x), x)
        return jax.lax.while_loop(lambda x: jnp.max(jnp.abs(x)) > 0.1, body, x)
    return jax.jit(solve), (s((WIDTH, WIDTH), "fsdp", None), s((8 * SEQ, WIDTH), "fsdp"))


def branches(jax, mesh):
    """lax.cond around a reduction: every hundredth step does more."""
    import jax.numpy as jnp
    s = functools.partial(shape, jax, mesh)
    def step(w, x, i):
        h = x @ w
        more = jax.lax.cond(i % 100 == 0, lambda h: jnp.linalg.norm(h @ w.T, axis=0), lambda h: jnp.mean(h, 0), h)
        return jnp.sum(more), h
    return jax.jit(step), (s((WIDTH, WIDTH), "fsdp", None), s((8 * SEQ, WIDTH), "fsdp"), s((), dtype="int32"))


def stages(jax, mesh, *, microbatches=4):
    """A pipeline: activations go to the next stage by ppermute, weights of a stage are split over fsdp."""
    import jax.numpy as jnp
    P, n = jax.sharding.PartitionSpec, mesh.shape["stage"]
    def local(w, x):
        full = jax.lax.all_gather(w[0].astype("bfloat16"), "fsdp", axis=0, tiled=True)
        def tick(h, part):
            h = jnp.where(jax.lax.axis_index("stage") == 0, part, h)
            return jax.lax.ppermute(jax.nn.silu(h @ full), "stage", [(i, i + 1) for i in range(n - 1)]), None
        h, _ = jax.lax.scan(tick, jnp.zeros_like(x[0]), x)
        return jax.lax.pmean(jnp.mean(h.astype(jnp.float32) ** 2), ("stage", "fsdp"))
    mapped_ = jax.shard_map(local, mesh=mesh, in_specs=(P("stage", "fsdp", None), P(None, "fsdp")), out_specs=P(), check_vma=False)
    return jax.jit(sgd(jax, mapped_)), (shape(jax, mesh, (n, WIDTH, WIDTH), "stage", "fsdp", None),
                                       shape(jax, mesh, (microbatches, 4 * SEQ, WIDTH), None, "fsdp", dtype="bfloat16"))


def odds(jax, mesh):
    """Other collectives: the largest of all, a permutation, whole numbers, an array of two axes."""
    import jax.numpy as jnp
    P = jax.sharding.PartitionSpec
    def local(a, b, c):
        most = jax.lax.pmax(a, "fsdp"), jax.lax.pmin(b, "fsdp")
        counts = jax.lax.all_gather(c, ("fsdp", "tensor"))
        parts = jax.lax.psum_scatter(a, "tensor", scatter_dimension=1, tiled=True)
        return most, counts, parts, jax.lax.pbroadcast(a, ("fsdp",), 1)
    spec = P("fsdp", None)
    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(spec, spec, P(("fsdp", "tensor"))),
                                 out_specs=((P(), P()), P(), P("fsdp", "tensor"), spec), check_vma=False)), (
        shape(jax, mesh, (1024, WIDTH), "fsdp", None), shape(jax, mesh, (1024, WIDTH), "fsdp", None, dtype="float16"),
        shape(jax, mesh, (4096,), ("fsdp", "tensor"), dtype="int64"))


def programs():
    """Name: what makes it, mesh, topology, keywords, flags."""
    eight = {"fsdp": 8}
    def one(make, mesh=None, topology="1x1x8", flags=None, **keywords):
        return make, mesh or eight, topology, flags, keywords
    return {
        "nnx": one(decoder, adam=True), "not-donated": one(decoder, donate=False), "no-remat": one(decoder, remat=False),
        "dots-saveable": one(decoder, policy="dots_saveable"), "names": one(decoder, names=("mixed",)),
        "offload": one(decoder, names=("mixed",), offload=True), "nested-scans": one(decoder, groups=2),
        "accumulate": one(decoder, accumulate=4, adam=True), "bf16-stored": one(decoder, stored="bfloat16"),
        "batch-by-mistake": one(decoder, batch=None), "float16": one(decoder, dtype="float16"),
        "columns": one(decoder, spec=(None, "fsdp")), "64-8-hosts": one(decoder, {"fsdp": 64}, "1x8x8", adam=True),
        "hsdp-8-hosts": one(decoder, {"replica": 8, "fsdp": 8}, "1x8x8", batch=("replica", "fsdp")),
        "o1-like": one(decoder, flags={"xla_gpu_enable_while_loop_double_buffering": "True",
                                       "xla_gpu_enable_pipelined_all_reduce": "True"}),
        "ring": one(ring, {"fsdp": 2, "sequence": 4}), "experts": one(experts, {"fsdp": 2, "expert": 4}),
        "ragged": one(experts, {"fsdp": 2, "expert": 4}, ragged=True),
        "three-axes": one(three_axes, {"fsdp": 2, "tensor": 2, "sequence": 2}), "map": one(mapped), "int8": one(quantised),
        "dynamic": one(dynamic), "fori": one(dynamic, fixed=True), "cond": one(branches),
        "llama": one(llama), "llama-pipelined": one(llama, flags={"xla_gpu_enable_pipelined_all_gather": "True"}),
        "stages": one(stages, {"stage": 4, "fsdp": 2}), "odds": one(odds, {"fsdp": 4, "tensor": 2}),
    }


def compile_into(folder, make, mesh, topology, flags, keywords):
    compiled = xla_programs.compiled_on(topology, mesh, flags, make, **keywords)
    proto = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    folder.mkdir(parents=True)
    (folder / "hlo.txt").write_text(compiled.as_text())
    (folder / "hlo.pb").write_bytes(proto)


def main():
    folder, program, names = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    wrong = 0
    for name, (make, mesh, topology, flags, keywords) in programs().items():
        if names and name not in names:
            continue
        own = folder / name
        try:
            if not own.exists():
                compile_into(own, make, mesh, topology, flags, keywords)
        except Exception as error:  # what this version of JAX does not have
            print(f"{name:18} does not compile with {jax.__version__}: {str(error).splitlines()[0][:120]}", flush=True)
            continue
        counts = xla_counts.counts((own / "hlo.pb").read_bytes())
        (folder / f"{name}.hlo.txt").write_text(xla_programs.trimmed((own / "hlo.txt").read_text()))  # xla_programs.py pack
        (folder / f"{name}.json").write_text(json.dumps(counts, sort_keys=True))
        found = []
        for form in ("hlo.txt", "hlo.pb"):
            answer = subprocess.run([program, "explain", "--hlo", own / form, "--format", "json"], capture_output=True, text=True)
            told = json.loads(answer.stdout) if answer.returncode == 0 else {}
            found += [f"{form}: {one}" for one in xla_programs.differences(counts, told)] if told else [answer.stderr.strip()]
        wrong += bool(found)
        kinds = {}
        for one in counts["collectives"]:
            kinds[one["kind"]] = kinds.get(one["kind"], 0) + 1
        print(f"{name:18} {jax.__version__:7} {len(counts['collectives']):3} collectives, {len(counts['loops'])} loops: {kinds} "
              f"{'equal' if not found else '; '.join(found)}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
