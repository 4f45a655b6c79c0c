"""Trains the decoder of tests/golden under FSDP of JAX for eight AdamW steps, on one process with eight devices and on two
processes over gloo, and stores every loss and every final parameter: `python train_xla.py FOLDER`. Parameters and tokens
are those of train.py. With --trace, two processes trace steps 5 to 7 instead, as FOLDER/rank_N.xplane.pb.gz; train.py
--trace does the same under FSDP2.
"""

import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
sys.path.append(str(GOLDEN))

import golden_file  # noqa: E402

BATCH, SEQ, STEPS = 8, 17, 8
TRACED = range(5, 8)
RANKS = {"devices": 8, "processes": 2}
FACTS = json.loads((GOLDEN / "decoder_untied.json").read_text())["facts"]
MODEL = FACTS["model"]


def loss(params, tokens, whole):
    """`whole`: the sharding of activations, in the batch alone."""
    import jax
    import jax.numpy as jnp
    heads, kv_heads, batch, half = MODEL["heads"], MODEL["kv_heads"], tokens.shape[0], MODEL["width"] // MODEL["heads"] // 2
    angle = np.outer(np.arange(SEQ), MODEL["rope_theta"] ** (-np.arange(half) / half))
    cos, sin = np.cos(angle).astype("float32"), np.sin(angle).astype("float32")

    def norm(x, weight):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + MODEL["norm_epsilon"]) * weight

    def rotary(x):
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)

    @jax.checkpoint
    def block(x, w):
        split = lambda t, n: t.reshape(batch, SEQ, n, -1).swapaxes(1, 2)
        h = norm(x, w["norm1"])
        q, k = rotary(split(h @ w["wq"].T, heads)), rotary(split(h @ w["wk"].T, kv_heads))
        k, v = (jnp.repeat(t, heads // kv_heads, 1) for t in (k, split(h @ w["wv"].T, kv_heads)))
        scores = jnp.where(np.tril(np.ones((SEQ, SEQ), bool)), q @ k.swapaxes(-1, -2) / np.sqrt(2 * half), -jnp.inf)
        x = x + (jax.nn.softmax(scores) @ v).swapaxes(1, 2).reshape(batch, SEQ, -1) @ w["wo"].T
        h = norm(x, w["norm2"])
        x = x + (jax.nn.silu(h @ w["w_gate"].T) * (h @ w["w_up"].T)) @ w["w_down"].T
        return jax.lax.with_sharding_constraint(x, whole)

    x = jax.lax.with_sharding_constraint(params["embedding.weight"][tokens[:, :-1]], whole)
    for i in range(MODEL["layers"]):
        prefix = f"blocks.{i}."
        x = block(x, {name.removeprefix(prefix): w for name, w in params.items() if name.startswith(prefix)})
    logits = norm(x, params["head.norm"]) @ params["head.weight"].T
    chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def adamw(params, first, second, step, grads):
    import jax
    import jax.numpy as jnp
    a = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.1}
    assert a == FACTS["adamw"]
    first = jax.tree.map(lambda m, g: a["beta1"] * m + (1 - a["beta1"]) * g, first, grads)
    second = jax.tree.map(lambda v, g: a["beta2"] * v + (1 - a["beta2"]) * g * g, second, grads)
    scale1, scale2 = 1 - a["beta1"] ** step, 1 - a["beta2"] ** step
    update = lambda p, m, v: (p * (1 - a["learning_rate"] * a["weight_decay"])
                              - a["learning_rate"] * (m / scale1) / (jnp.sqrt(v / scale2) + a["epsilon"]))
    return jax.tree.map(update, params, first, second), first, second


@contextlib.contextmanager
def traced(path):
    import jax
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            yield
        raw = next(pathlib.Path(folder).rglob("*.xplane.pb")).read_bytes()
    pathlib.Path(path).write_bytes(gzip.compress(raw, 9, mtime=0))


def train(folder, name, rank, port, trace):
    ranks = RANKS[name]
    os.environ["JAX_PLATFORMS"] = "cpu"
    if name == "devices":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
    import jax
    from jax.sharding import NamedSharding, PartitionSpec as P
    if name == "processes":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", ranks, rank)
    jax.config.update("jax_default_matmul_precision", "highest")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("fsdp",))

    def put(value, spec):
        return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])

    def spec(value):  # the first dimension that the devices divide
        at = next(i for i, size in enumerate(value.shape) if size % ranks == 0)
        return P(*(None,) * at, "fsdp")

    initial = golden_file.initial("decoder_untied")
    params = {key: put(value, spec(value)) for key, value in initial.items()}
    first = {key: put(np.zeros_like(value), spec(value)) for key, value in initial.items()}
    second = {key: put(np.zeros_like(value), spec(value)) for key, value in initial.items()}
    whole = {key: NamedSharding(mesh, spec(value)) for key, value in initial.items()}

    @jax.jit
    def step(params, first, second, number, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens, NamedSharding(mesh, P("fsdp")))
        made = adamw(params, first, second, number, jax.tree.map(jax.lax.with_sharding_constraint, grads, whole))
        return *(jax.tree.map(jax.lax.with_sharding_constraint, one, whole) for one in made), value

    losses = []
    profiler = contextlib.ExitStack()
    for number in range(STEPS):
        if trace and number == TRACED[0]:
            profiler.enter_context(traced(f"{folder}/rank_{rank}.xplane.pb.gz"))
        tokens = np.array([[golden_file.token(s, i, MODEL["vocab"]) for i in range(SEQ + 1)]
                           for s in range(number * BATCH, (number + 1) * BATCH)], np.int32)
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, first, second, value = step(params, first, second, np.float32(number + 1), put(tokens, P("fsdp")))
            losses.append(float(value))
    profiler.close()
    if trace:
        return
    assert all(p.addressable_shards[0].data.size == p.size // ranks for p in params.values())
    gathered = jax.jit(lambda p: p, out_shardings={key: NamedSharding(mesh, P()) for key in params})(params)
    if rank == 0:
        out = golden_file.GoldenFile(dict(made_with=f"jax {jax.__version__}", ranks=ranks, batch=BATCH, seq_len=SEQ,
                                          steps=STEPS, engines=["xla"]))
        out.add("xla/losses", np.array(losses, np.float32))
        for key, value in gathered.items():
            out.add(f"xla/{key}", np.asarray(value.addressable_shards[0].data))
        out.write(os.path.relpath(os.path.join(folder, f"training-jax-{name}-{jax.__version__}"), GOLDEN))


def main():
    folder, trace = os.path.abspath(sys.argv[1]), sys.argv[-1] == "--trace"
    if len(sys.argv) > 3:
        return train(folder, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), trace)
    port = 20000 + os.getpid() % 20000
    for name, processes in ([] if trace else [("devices", 1)]) + [("processes", RANKS["processes"])]:
        words = [sys.executable, __file__, folder, name]
        jobs = [subprocess.Popen([*words, str(rank), str(port), *sys.argv[2:]]) for rank in range(processes)]
        if any([job.wait() for job in jobs]):
            sys.exit(f"{name}: a job failed")


if __name__ == "__main__":
    main()
