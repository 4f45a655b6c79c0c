"""The configurations that are recorded: each a dict of fsdpbench's own keys, `key = value`.

A key that is absent has the preset's value. What a key means to PyTorch is said once, in engines.py.
"""

import itertools
import random

DRAWN, DRAWN_WITH_EXPERTS, DRAWN_NESTED, SEED = 240, 120, 60, 20261122
FULL_FSDP1 = ("full_shard", "shard_grad_op")


def case(system, layers, ranks=2, **keys):
    result = {"fsdp.preset": system, "model.layers": layers, "mesh.ranks": ranks}
    result.update({key.replace("__", "."): value for key, value in keys.items()})
    return result


def meshes(strategy):
    """Mesh keys that suit a strategy: two ranks, or 2 x 2 where there are replicas."""
    if strategy.startswith("hybrid"):
        return {"ranks": 4, "mesh__shard": 2, "mesh__replicate": 2}
    return {"ranks": 2}


def fsdp1():
    prefetches = itertools.product(("pre", "post", "none"), ("implicit", 1))
    for backward, forward in prefetches:
        for strategy, limit, layers in itertools.product(
            ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_grad_op"),
            ("fsdp1_queue:2", "unlimited"),
            (2, 3, 5),
        ):
            # Limits and hybrid meshes are orthogonal: not every product of the two.
            if strategy.startswith("hybrid") and (limit == "unlimited" or layers == 2):
                continue
            yield case("fsdp1", layers, fsdp__strategy=strategy, fsdp__backward_prefetch=backward,
                       fsdp__forward_prefetch=forward, fsdp__all_gather_limit=limit, **meshes(strategy))
    # The fewest blocks: whose frees the limit waits for changes from step to step.
    for layers, strategy, backward, forward in itertools.product(
            (1, 2), ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_grad_op"),
            ("pre", "post", "none"), ("implicit", 1)):
        if layers == 1 or (layers == 2 and strategy.startswith("hybrid")):
            yield case("fsdp1", layers, fsdp__strategy=strategy, fsdp__backward_prefetch=backward,
                       fsdp__forward_prefetch=forward, fsdp__all_gather_limit="fsdp1_queue:2", **meshes(strategy))
    for count, forward, strategy in itertools.product((1, 3, 4, 7), ("implicit", 1), FULL_FSDP1):
        yield case("fsdp1", 5, fsdp__all_gather_limit=f"fsdp1_queue:{count}", fsdp__forward_prefetch=forward,
                   fsdp__strategy=strategy)
    for strategy, mode, forward, backward in itertools.product(
        ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_grad_op"),
        ("reduce_each", "no_sync"), ("implicit", 1), ("pre", "none"),
    ):
        yield case("fsdp1", 3, fsdp__strategy=strategy, train__accumulate=2, train__accumulate_mode=mode,
                   fsdp__forward_prefetch=forward, fsdp__backward_prefetch=backward, **meshes(strategy))
    for strategy, mode in itertools.product(FULL_FSDP1, ("reduce_each", "no_sync")):
        yield case("fsdp1", 2, fsdp__strategy=strategy, train__accumulate=3, train__accumulate_mode=mode)
    for forward, backward, strategy in itertools.product(("implicit", 1), ("pre", "post", "none"), FULL_FSDP1):
        yield case("fsdp1", 3, fsdp__activation_checkpointing=True, fsdp__forward_prefetch=forward,
                   fsdp__backward_prefetch=backward, fsdp__strategy=strategy)
        yield case("fsdp1", 4, fsdp__wrap="blocks:2", fsdp__forward_prefetch=forward,
                   fsdp__backward_prefetch=backward, fsdp__strategy=strategy)
        yield case("fsdp1", 3, model__kind="mlp", fsdp__forward_prefetch=forward,
                   fsdp__backward_prefetch=backward, fsdp__strategy=strategy)
    for forward, (param, reduce) in itertools.product(
            ("implicit", 1), (("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16"))):
        yield case("fsdp1", 3, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce, fsdp__forward_prefetch=forward)
    yield case("fsdp1", 2, fsdp__wrap="model")
    yield case("fsdp1", 2, fsdp__wrap="model", fsdp__forward_prefetch=1)
    for strategy, forward in itertools.product(FULL_FSDP1, ("implicit", 1)):
        yield case("fsdp1", 3, ranks=4, fsdp__strategy=strategy, fsdp__forward_prefetch=forward)
        yield case("fsdp1", 3, ranks=1, fsdp__strategy=strategy, fsdp__forward_prefetch=forward)
    yield case("fsdp1", 2, fsdp__strategy="hybrid_shard", mesh__shard=2, mesh__replicate=1)
    yield case("fsdp1", 3, ranks=1, train__accumulate=2, train__accumulate_mode="no_sync")
    yield case("fsdp1", 3, ranks=1, train__accumulate=2)


def fsdp2():
    strategies = ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_grad_op")
    reshards = ("auto", True, False)
    prefetches = ({}, {"fsdp__forward_prefetch": 1}, {"fsdp__forward_prefetch": 2}, {"fsdp__forward_prefetch": 3},
                  {"fsdp__backward_prefetch": 1}, {"fsdp__backward_prefetch": 2}, {"fsdp__backward_prefetch": 3},
                  {"fsdp__forward_prefetch": 2, "fsdp__backward_prefetch": 2})
    for reshard, prefetch, layers in itertools.product(reshards, prefetches, (2, 3, 5)):
        yield case("fsdp2", layers, fsdp__reshard_after_forward=reshard, **prefetch)
    for strategy, prefetch, layers in itertools.product(strategies, prefetches, (3, 5)):
        if strategy != "full_shard":
            yield case("fsdp2", layers, fsdp__strategy=strategy, **prefetch, **meshes(strategy))
    for prefetch, layers in itertools.product(prefetches, (3, 4)):
        yield case("fsdp2", layers, ranks=4, fsdp__reshard_after_forward=2, **prefetch)
    for buffers, separate, strategy, layers in itertools.product(
            (1, 2, 3), (False, True), ("full_shard", "shard_grad_op", "hybrid_shard"), (3, 5)):
        yield case("fsdp2", layers, fsdp__reduce_scatter_buffers=buffers, fsdp__separate_reduce_scatter_comm=separate,
                   fsdp__strategy=strategy, **meshes(strategy))
    for strategy, mode, kept, buffers in itertools.product(
            strategies, ("reduce_each", "no_sync", "reduce_scatter_only"), (False, True), (1, 2)):
        if mode == "reduce_scatter_only" and not strategy.startswith("hybrid"):
            continue
        yield case("fsdp2", 3, fsdp__strategy=strategy, train__accumulate=2, train__accumulate_mode=mode,
                   fsdp__reshard_after_backward=not kept, fsdp__reduce_scatter_buffers=buffers, **meshes(strategy))
        if buffers == 2:
            yield case("fsdp2", 2, fsdp__strategy=strategy, train__accumulate=3, train__accumulate_mode=mode,
                       fsdp__reshard_after_backward=not kept, fsdp__wait_each_backward=False, **meshes(strategy))
    for mode, reshard in itertools.product(("reduce_each", "no_sync"), (True, False, 2)):
        yield case("fsdp2", 3, ranks=4, train__accumulate=2, train__accumulate_mode=mode,
                   fsdp__reshard_after_forward=reshard, fsdp__forward_prefetch=2)
    for reshard, prefetch in itertools.product(reshards, prefetches[:6:2]):
        yield case("fsdp2", 3, fsdp__activation_checkpointing=True, fsdp__reshard_after_forward=reshard, **prefetch)
        yield case("fsdp2", 4, fsdp__wrap="blocks:2", fsdp__reshard_after_forward=reshard, **prefetch)
        yield case("fsdp2", 3, model__kind="mlp", fsdp__reshard_after_forward=reshard, **prefetch)
        yield case("fsdp2", 3, ranks=1, fsdp__reshard_after_forward=reshard, **prefetch)
        yield case("fsdp2", 3, ranks=2, fsdp__strategy="hybrid_shard", mesh__shard=1, mesh__replicate=2,
                   fsdp__reshard_after_forward=reshard, **prefetch)
    for param, reduce in (("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")):
        for strategy in strategies:
            yield case("fsdp2", 3, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce, fsdp__strategy=strategy,
                       **meshes(strategy))
        yield case("fsdp2", 3, ranks=1, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce)
    yield case("fsdp2", 2, fsdp__wrap="model")
    yield case("fsdp2", 2, fsdp__wrap="model", fsdp__reshard_after_forward=True)
    yield case("fsdp2", 3, ranks=4)
    for mode in ("reduce_each", "reduce_scatter_only"):
        yield case("fsdp2", 2, fsdp__strategy="hybrid_shard", mesh__shard=2, mesh__replicate=1, train__accumulate=2,
                   train__accumulate_mode=mode)
    for mode in ("reduce_each", "no_sync"):
        yield case("fsdp2", 3, ranks=1, train__accumulate=2, train__accumulate_mode=mode)
        yield case("fsdp2", 3, ranks=2, fsdp__strategy="hybrid_shard", mesh__shard=1, mesh__replicate=2,
                   train__accumulate=2, train__accumulate_mode=mode)
    yield case("fsdp2", 3, ranks=2, fsdp__strategy="hybrid_shard", mesh__shard=1, mesh__replicate=2,
               train__accumulate=2, train__accumulate_mode="reduce_scatter_only")


class Draw:
    """Keys of one configuration, each drawn by itself; what is drawn as None is left out."""

    def __init__(self, generator, **keys):
        self.generator, self.keys = generator, keys

    def one_of(self, **choices):
        for key, values in choices.items():
            value = self.generator.choice(values)
            if value is not None:
                self.keys[key] = value
        return self


def drawn_case(generator):
    """Any keys with any others, as no grid can have them."""
    system = generator.choice(("fsdp1", "fsdp2"))
    strategies = ("full_shard", "full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_grad_op")
    draw = Draw(generator).one_of(
        fsdp__strategy=strategies + (("no_shard",) if system == "fsdp1" else ()),
        model__kind=(None, None, "mlp"),
        fsdp__activation_checkpointing=(None, None, True),
        fsdp__wrap=(None, None, None, "blocks:2", "blocks:3", "model"),
        train__accumulate=(None, 2, 2, 3, 4))
    keys = draw.keys
    if "model__kind" in keys:
        keys.pop("fsdp__activation_checkpointing", None)  # our layers of an mlp keep nothing but their input
    hybrid = keys["fsdp__strategy"].startswith("hybrid")
    shapes = ((2, 2), (2, 2), (2, 1)) + (((1, 2), (1, 4)) if system == "fsdp2" else ())
    shard, replicate = generator.choice(shapes) if hybrid else (generator.choice((1, 2, 2, 3, 4)), 1)
    if hybrid:
        keys.update(mesh__shard=shard, mesh__replicate=replicate)
    dtypes = generator.choice((None, None, ("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")))
    if dtypes:
        keys["fsdp__param_dtype"], keys["fsdp__reduce_dtype"] = dtypes
    modes = ["reduce_each", "no_sync"] + ["reduce_scatter_only"] * (hybrid and system == "fsdp2")
    if "train__accumulate" in keys:
        draw.one_of(train__accumulate_mode=modes)
    if system == "fsdp1":
        draw.one_of(fsdp__forward_prefetch=("implicit", 1), fsdp__backward_prefetch=("pre", "pre", "post", "none"),
                    fsdp__all_gather_limit=(None, "unlimited", "fsdp1_queue:1", "fsdp1_queue:3", "fsdp1_queue:5"))
    else:
        draw.one_of(fsdp__forward_prefetch=(None, 1, 2, 3), fsdp__backward_prefetch=(None, None, 1, 2, 3),
                    fsdp__reduce_scatter_buffers=(None, 2, 3), fsdp__separate_reduce_scatter_comm=(None, True),
                    fsdp__reshard_after_forward=("auto", True, False) + ((2,) if shard % 2 == 0 else ()))
        if "train__accumulate" in keys:
            draw.one_of(fsdp__reshard_after_backward=(None, False), fsdp__wait_each_backward=(None, False))
    return case(system, generator.choice((2, 3, 4, 5, 7)), ranks=shard * replicate, **keys)


def frozen_fsdp1():
    """Units that train or do not, as a whole. (One that mixes has gradients of the size of the whole unit.)"""
    for strategy, backward, forward, blocks in itertools.product(
            ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard"), ("pre", "post", "none"), ("implicit", 1),
            ("0-0", "1-2", "3-3")):
        if strategy in ("no_shard", "hybrid_shard") and (backward == "post" or blocks == "3-3"):
            continue
        yield case("fsdp1", 4, fsdp__strategy=strategy, fsdp__backward_prefetch=backward, model__trainable=f"blocks:{blocks}",
                   fsdp__forward_prefetch=forward, **meshes(strategy))
    for mode, blocks in itertools.product(("reduce_each", "no_sync"), ("0-1", "2-2")):
        yield case("fsdp1", 3, train__accumulate=2, train__accumulate_mode=mode, model__trainable=f"blocks:{blocks}")
    for kind, checkpointing in (("mlp", None), ("decoder", True)):
        for blocks in ("0-1", "1-2", "2-2"):
            keys = {"fsdp__activation_checkpointing": True} if checkpointing else {}
            yield case("fsdp1", 3, model__kind=kind, model__trainable=f"blocks:{blocks}", **keys)


def frozen_fsdp2():
    """Adapters in every block or in some, and blocks that train or do not as a whole."""
    prefetches = ({}, {"fsdp__forward_prefetch": 1}, {"fsdp__forward_prefetch": 2}, {"fsdp__backward_prefetch": 1},
                  {"fsdp__backward_prefetch": 2}, {"fsdp__forward_prefetch": 2, "fsdp__backward_prefetch": 2})
    trained = ({"model__lora_rank": 2}, {"model__lora_rank": 2, "model__trainable": "blocks:1-2"},
               {"model__trainable": "blocks:0-1"}, {"model__trainable": "blocks:2-3"})
    for keys, reshard, prefetch in itertools.product(trained, ("auto", True, False), prefetches):
        yield case("fsdp2", 4, fsdp__reshard_after_forward=reshard, **keys, **prefetch)
    for keys in trained:
        for strategy in ("shard_grad_op", "hybrid_shard", "hybrid_shard_grad_op"):
            yield case("fsdp2", 4, fsdp__strategy=strategy, **keys, **meshes(strategy))
        for buffers, separate in ((2, False), (1, True), (3, True)):
            yield case("fsdp2", 5, fsdp__reduce_scatter_buffers=buffers, fsdp__separate_reduce_scatter_comm=separate,
                       **keys)
        for mode, kept in itertools.product(("reduce_each", "no_sync"), (False, True)):
            yield case("fsdp2", 4, train__accumulate=2, train__accumulate_mode=mode,
                       fsdp__reshard_after_backward=not kept, **keys)
        yield case("fsdp2", 4, fsdp__strategy="hybrid_shard", train__accumulate=2, **meshes("hybrid_shard"),
                   train__accumulate_mode="reduce_scatter_only", **keys)
        for reshard in ("auto", True, False):
            yield case("fsdp2", 4, fsdp__activation_checkpointing=True, fsdp__reshard_after_forward=reshard, **keys)
        yield case("fsdp2", 4, ranks=4, fsdp__reshard_after_forward=2, **keys)
        yield case("fsdp2", 4, ranks=1, **keys)
        for wrap in ("blocks:2", "blocks:3", "model"):
            yield case("fsdp2", 4, fsdp__wrap=wrap, **keys)
        for param, reduce in (("bf16", "bf16"), ("bf16", "f32")):
            yield case("fsdp2", 4, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce, **keys)
    for blocks, reshard in itertools.product(("0-1", "1-2", "2-2"), ("auto", True, False)):
        yield case("fsdp2", 3, model__kind="mlp", model__trainable=f"blocks:{blocks}",
                   fsdp__reshard_after_forward=reshard)


def reentrant_fsdp2():
    """Checkpoints that call the hooks of forward again in backward."""
    again = {"fsdp__activation_checkpointing": True, "fsdp__checkpoint_reentrant": True}
    ahead = ({}, {"fsdp__forward_prefetch": 1}, {"fsdp__forward_prefetch": 2})
    behind = ({}, {"fsdp__backward_prefetch": 1}, {"fsdp__backward_prefetch": 2})
    for forward, backward, reshard in itertools.product(ahead, behind, ("auto", True, False)):
        yield case("fsdp2", 4, fsdp__reshard_after_forward=reshard, **again, **forward, **backward)
    for forward in ahead:
        for every in (2, 3):
            yield case("fsdp2", 5, fsdp__checkpoint_every=every, **again, **forward)
        for mode, kept in itertools.product(("reduce_each", "no_sync"), (False, True)):
            yield case("fsdp2", 4, train__accumulate=2, train__accumulate_mode=mode,
                       fsdp__reshard_after_backward=not kept, **again, **forward)
        for strategy in ("shard_grad_op", "hybrid_shard"):
            yield case("fsdp2", 4, fsdp__strategy=strategy, **again, **forward, **meshes(strategy))
        yield case("fsdp2", 4, ranks=4, fsdp__reshard_after_forward=2, **again, **forward)
        yield case("fsdp2", 4, fsdp__param_dtype="bf16", fsdp__reduce_dtype="f32", **again, **forward)
        yield case("fsdp2", 5, fsdp__reduce_scatter_buffers=2, fsdp__separate_reduce_scatter_comm=True, **again,
                   **forward)


def with_experts(layers, shard, expert, replicate=1, **keys):
    """FSDP2 with the experts of a block as a parameter group of their own."""
    if replicate > 1:
        keys = {"fsdp__strategy": "hybrid_shard", "mesh__shard": shard, "mesh__replicate": replicate, **keys}
    return case("fsdp2", layers, ranks=shard * replicate, model__experts=4, model__active_experts=2,
                mesh__expert=expert, **keys)


def expert_grid():
    prefetches = ({}, {"fsdp__forward_prefetch": 1}, {"fsdp__forward_prefetch": 2}, {"fsdp__backward_prefetch": 1},
                  {"fsdp__backward_prefetch": 2}, {"fsdp__forward_prefetch": 1, "fsdp__backward_prefetch": 1},
                  {"fsdp__forward_prefetch": 2, "fsdp__backward_prefetch": 3})
    titan = {"fsdp__forward_prefetch": 1, "fsdp__backward_prefetch": 1, "fsdp__head_unit": True}
    meshes = ((2, 2, 1), (4, 2, 1), (4, 4, 1), (2, 2, 2))  # shard, expert, replicate
    for (shard, expert, replicate), reshard, prefetch in itertools.product(meshes, ("auto", True, False), prefetches):
        yield with_experts(3, shard, expert, replicate, fsdp__reshard_after_forward=reshard, **prefetch)
    for layers, prefetch in itertools.product((2, 5), prefetches):
        yield with_experts(layers, 4, 2, **prefetch)
    for layers, (shard, expert, replicate), checkpointing in itertools.product((2, 3, 5), meshes, (False, True)):
        yield with_experts(layers, shard, expert, replicate, fsdp__activation_checkpointing=checkpointing, **titan)
    for prefetch, told in itertools.product(prefetches, (False, True)):
        yield with_experts(3, 4, 2, fsdp__activation_checkpointing=True, mesh__expert_sync=told, **prefetch)
    for prefetch in prefetches[:6:2]:
        yield with_experts(3, 4, 2, mesh__expert_sync=False, **prefetch)
    for buffers, separate, layers in itertools.product((1, 2, 3, 4), (False, True), (3, 5)):
        yield with_experts(layers, 4, 2, fsdp__reduce_scatter_buffers=buffers, fsdp__separate_reduce_scatter_comm=separate)
    for strategy in ("shard_grad_op", "hybrid_shard_grad_op"):
        for prefetch in prefetches[::2]:
            replicate = 2 if strategy.startswith("hybrid") else 1
            yield with_experts(3, 4 // replicate, 2, replicate, **{"fsdp__strategy": strategy, **prefetch})
    for mode, kept, waits in itertools.product(("reduce_each", "no_sync"), (False, True), (True, False)):
        for prefetch in ({}, titan):
            yield with_experts(3, 4, 2, train__accumulate=2, train__accumulate_mode=mode,
                               fsdp__reshard_after_backward=not kept, fsdp__wait_each_backward=waits, **prefetch)
        yield with_experts(2, 4, 2, train__accumulate=3, train__accumulate_mode=mode,
                           fsdp__reshard_after_backward=not kept, fsdp__wait_each_backward=waits,
                           fsdp__reduce_scatter_buffers=2)
    for mode, kept in itertools.product(("reduce_each", "no_sync", "reduce_scatter_only"), (False, True)):
        yield with_experts(3, 2, 2, 2, train__accumulate=2, train__accumulate_mode=mode,
                           fsdp__reshard_after_backward=not kept)
    for param, reduce in (("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")):
        for shard, expert, replicate in meshes[1:]:
            yield with_experts(3, shard, expert, replicate, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce)
    # More ranks than experts: they are split along dimension 1.
    for experts, expert, prefetch in itertools.product((2,), (2,), ({}, titan)):
        for reshard in ("auto", True, False):
            yield {**with_experts(3, 4, expert, fsdp__reshard_after_forward=reshard, **prefetch), "model.experts": experts}


def nested(layers, shard, expert, replicate=1, **keys):
    """FSDP2 with the experts of a block as a module of their own."""
    return with_experts(layers, shard, expert, replicate, fsdp__expert_unit="module", **keys)


LISTED = {"fsdp__forward_prefetch": 1, "fsdp__backward_prefetch": 1, "fsdp__root_prefetches_forward": False}


def nested_grid():
    prefetches = ({}, {"fsdp__forward_prefetch": 1}, {"fsdp__forward_prefetch": 2}, {"fsdp__backward_prefetch": 1},
                  {"fsdp__backward_prefetch": 2}, {"fsdp__forward_prefetch": 2, "fsdp__backward_prefetch": 3}, LISTED)
    meshes = ((2, 2, 1), (4, 2, 1), (4, 4, 1), (2, 2, 2))  # shard, expert, replicate
    again = {"fsdp__activation_checkpointing": True}
    for (shard, expert, replicate), reshard, prefetch in itertools.product(meshes[1:], ("auto", True, False), prefetches):
        yield nested(3, shard, expert, replicate, fsdp__reshard_after_forward=reshard, **prefetch)
    for layers, prefetch, head in itertools.product((2, 5), prefetches, (False, True)):
        yield nested(layers, 4, 2, fsdp__head_unit=head, **prefetch)
    for frees, reshard, prefetch in itertools.product((False, True), ("auto", True, False), prefetches):
        yield nested(4, 4, 2, fsdp__reshard_after_forward=reshard, fsdp__recompute_frees=frees, **again, **prefetch)
    for frees, every, mesh in itertools.product((False, True), (1, 2), meshes):
        yield nested(5, *mesh, fsdp__recompute_frees=frees, fsdp__checkpoint_every=every, **again)
        yield nested(5, *mesh, fsdp__recompute_frees=frees, fsdp__checkpoint_every=every, **again, **LISTED)
    for buffers, separate, layers in itertools.product((1, 2, 3, 4), (False, True), (3, 5)):
        yield nested(layers, 4, 2, fsdp__reduce_scatter_buffers=buffers, fsdp__separate_reduce_scatter_comm=separate)
    for strategy, prefetch in itertools.product(("shard_grad_op", "hybrid_shard_grad_op"), prefetches[::3]):
        replicate = 2 if strategy.startswith("hybrid") else 1
        yield nested(3, 4 // replicate, 2, replicate, **{"fsdp__strategy": strategy, **prefetch})
    for mode, kept, waits in itertools.product(("reduce_each", "no_sync"), (False, True), (True, False)):
        keys = {"train__accumulate_mode": mode, "fsdp__reshard_after_backward": not kept, "fsdp__wait_each_backward": waits}
        for prefetch in ({}, LISTED):
            yield nested(3, 4, 2, train__accumulate=2, **keys, **prefetch)
            yield nested(3, 4, 2, train__accumulate=2, **again, **keys, **prefetch)
        yield nested(2, 4, 2, train__accumulate=3, fsdp__reduce_scatter_buffers=2, **keys)
    for mode, kept in itertools.product(("reduce_each", "no_sync", "reduce_scatter_only"), (False, True)):
        yield nested(3, 2, 2, 2, train__accumulate=2, train__accumulate_mode=mode, fsdp__reshard_after_backward=not kept)
    for (param, reduce), mesh in itertools.product((("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")), meshes[1:]):
        yield nested(3, *mesh, fsdp__param_dtype=param, fsdp__reduce_dtype=reduce)


def drawn_nested(generator):
    keys = drawn_with_experts(generator)
    draw = Draw(generator).one_of(fsdp__recompute_frees=(None, True), fsdp__root_prefetches_forward=(None, False),
                                  fsdp__checkpoint_every=(None, None, 2))
    if not keys.get("fsdp.activation_checkpointing"):
        draw.keys.pop("fsdp__recompute_frees", None)
        draw.keys.pop("fsdp__checkpoint_every", None)
    return {**keys, "fsdp.expert_unit": "module", **{key.replace("__", "."): value for key, value in draw.keys.items()}}


def drawn_with_experts(generator):
    shard, expert, replicate = generator.choice(((2, 2, 1), (4, 2, 1), (4, 2, 1), (4, 4, 1), (2, 2, 2)))
    hybrid = replicate > 1
    draw = Draw(generator).one_of(
        fsdp__strategy=("hybrid_shard", "hybrid_shard_grad_op") if hybrid else ("full_shard", "full_shard", "shard_grad_op"),
        fsdp__activation_checkpointing=(None, None, True), fsdp__head_unit=(None, True),
        fsdp__forward_prefetch=(None, 1, 2, 3), fsdp__backward_prefetch=(None, None, 1, 2, 3),
        fsdp__reduce_scatter_buffers=(None, 2, 3, 4), fsdp__separate_reduce_scatter_comm=(None, True),
        fsdp__reshard_after_forward=("auto", True, False), mesh__expert_sync=(None, False),
        train__accumulate=(None, None, 2, 3))
    dtypes = generator.choice((None, None, ("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")))
    if dtypes:
        draw.keys["fsdp__param_dtype"], draw.keys["fsdp__reduce_dtype"] = dtypes
    if "train__accumulate" in draw.keys:
        draw.one_of(train__accumulate_mode=("reduce_each", "no_sync") + ("reduce_scatter_only",) * hybrid,
                    fsdp__reshard_after_backward=(None, False), fsdp__wait_each_backward=(None, False))
    return with_experts(generator.choice((2, 3, 4, 5)), shard, expert, replicate, **draw.keys)


def drawn():
    generator = random.Random(SEED)
    return [drawn_case(generator) for _ in range(DRAWN)]


def each_once(*families):
    seen = []
    for keys in itertools.chain(*families):
        if keys not in seen:
            seen.append(keys)
    return seen


def cases():
    """All in which every parameter trains, each once."""
    return each_once(fsdp1(), fsdp2(), drawn())


def frozen_cases():
    """All in which some parameters are frozen, each once."""
    return each_once(frozen_fsdp1(), frozen_fsdp2())


def ignored():
    """Norms are excluded from sharding: they have 128 elements in our model, and all else has more."""
    prefetches = ({}, {"fsdp__forward_prefetch": 1}, {"fsdp__backward_prefetch": 2},
                  {"fsdp__forward_prefetch": 2, "fsdp__backward_prefetch": 1})
    small = {"fsdp__shard_threshold": 200}
    for reshard, prefetch in itertools.product(("auto", True, False), prefetches):
        yield case("fsdp2", 4, fsdp__reshard_after_forward=reshard, **small, **prefetch)
    for mode, kept in itertools.product(("reduce_each", "no_sync"), (False, True)):
        yield case("fsdp2", 3, train__accumulate=2, train__accumulate_mode=mode, fsdp__reshard_after_backward=not kept, **small)
    for prefetch in prefetches[:2]:
        yield case("fsdp2", 4, fsdp__activation_checkpointing=True, **small, **prefetch)
        yield case("fsdp2", 4, fsdp__wrap="blocks:2", **small, **prefetch)
    for buffers in (2, 3):
        yield case("fsdp2", 5, fsdp__reduce_scatter_buffers=buffers, **small)
    yield case("fsdp2", 4, fsdp__strategy="shard_grad_op", **small)
    yield case("fsdp2", 2, fsdp__wrap="model", **small)


def ignored_cases():
    """All in which FSDP2 is told to ignore some parameters, each once."""
    return each_once(ignored())


def tied():
    """The head has the embedding's weight, which both find in the root."""
    for system, reshard, layers in itertools.product(("fsdp1", "fsdp2"), ("auto", True, False), (2, 4)):
        keys = {} if system == "fsdp1" else {"fsdp__reshard_after_forward": reshard}
        yield case(system, layers, model__tied_head=True, **keys)
        for mode in ("reduce_each", "no_sync"):
            yield case(system, layers, model__tied_head=True, train__accumulate=2, train__accumulate_mode=mode, **keys)
    for system, strategy in itertools.product(("fsdp1", "fsdp2"), ("shard_grad_op", "hybrid_shard")):
        yield case(system, 3, model__tied_head=True, fsdp__strategy=strategy, **meshes(strategy))
        yield case(system, 3, model__tied_head=True, fsdp__activation_checkpointing=True, fsdp__forward_prefetch=1,
                   fsdp__strategy=strategy, **meshes(strategy))
    for system in ("fsdp1", "fsdp2"):
        yield case(system, 3, model__tied_head=True, fsdp__param_dtype="bf16", fsdp__reduce_dtype="f32")
        yield case(system, 2, model__tied_head=True, fsdp__wrap="model")


def tied_cases():
    """All with a tied head, each once."""
    return each_once(tied())


def reentrant_cases():
    """All with reentrant checkpoints, each once."""
    return each_once(reentrant_fsdp2())


def expert_cases():
    """All in which ranks split the experts of blocks, each once."""
    generator = random.Random(SEED + 1)
    return each_once(expert_grid(), [drawn_with_experts(generator) for _ in range(DRAWN_WITH_EXPERTS)])


def nested_cases():
    """All in which the experts of blocks are modules of their own, each once."""
    generator = random.Random(SEED + 2)
    return each_once(nested_grid(), [drawn_nested(generator) for _ in range(DRAWN_NESTED)])


if __name__ == "__main__":
    print(len(cases()), "configurations, with frozen parameters", len(frozen_cases()), "with reentrant checkpoints",
          len(reentrant_cases()), "with experts", len(expert_cases()), "with nested experts", len(nested_cases()))
