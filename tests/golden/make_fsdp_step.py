"""Exports one SGD step of a linear layer made by Flax nnx, computed by JAX: W, b, x, y, the loss before the update and
the updated W and b. Sizes where in+1 or out does not divide by 8, too. W is stored as Flax has it, [in, out].

    python make_fsdp_step.py      (needs jax, flax and numpy; see README.md)
"""

import platform

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from golden_file import GoldenFile

# (in, out): both divide by 8 counting the bias row; out does not; neither does; fewer outputs than shards.
CASES = [(7, 16), (15, 6), (12, 13), (5, 3)]
BATCH, SEED, LEARNING_RATE = 16, 42, 0.1


def fsdp_step(w, b, x, y, lr):
    loss_of = lambda w, b: jnp.mean((x @ w + b - y) ** 2)
    loss, (d_w, d_b) = jax.value_and_grad(loss_of, argnums=(0, 1))(w, b)
    return loss, w - lr * d_w, b - lr * d_b


def main():
    jax.config.update("jax_platforms", "cpu")
    file = GoldenFile(
        dict(
            made_with=f"jax {jax.__version__}, flax {flax.__version__}, numpy {np.__version__}, "
            f"python {platform.python_version()}",
            seed=SEED, batch=BATCH, learning_rate=LEARNING_RATE,
            cases=[dict(name=f"{i}x{o}", in_features=i, out_features=o) for i, o in CASES],
        )
    )
    for in_features, out_features in CASES:
        layer = nnx.Linear(in_features, out_features, rngs=nnx.Rngs(SEED))
        w, b = layer.kernel[...], layer.bias[...]
        key_x, key_y = jax.random.split(jax.random.key(SEED))
        x = jax.random.normal(key_x, (BATCH, in_features))
        y = jax.random.normal(key_y, (BATCH, out_features))
        loss, new_w, new_b = fsdp_step(w, b, x, y, LEARNING_RATE)
        for name, value in dict(w=w, b=b, x=x, y=y, loss=loss[None], new_w=new_w, new_b=new_b).items():
            file.add(f"{in_features}x{out_features}/{name}", np.asarray(value, np.float32))
    file.write("fsdp_step")


if __name__ == "__main__":
    main()
