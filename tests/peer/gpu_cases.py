"""The jobs that gpu_corpus.py runs, in groups that share processes: a name, an engine, and what differs from its defaults."""


def case(name, engine, **kw):
    return dict(name=name, engine=engine, **kw)


W2 = [
    case("fsdp2", "fsdp2"),
    case("fsdp1", "fsdp1"),
    case("ddp", "ddp"),
    case("fsdp2-busy", "fsdp2", shape="busy"),
    case("fsdp1-busy", "fsdp1", shape="busy"),
    case("fsdp1-busy-bwd-none", "fsdp1", shape="busy", backward_prefetch=None),
    case("fsdp1-busy-bwd-post", "fsdp1", shape="busy", backward_prefetch="post"),
    case("fsdp1-busy-fwd-prefetch", "fsdp1", shape="busy", forward_prefetch=True),
    case("fsdp1-busy-unlimited", "fsdp1", shape="busy", limit=False),
    case("fsdp2-busy-fwd2-bwd2", "fsdp2", shape="busy", forward_depth=2, backward_depth=2),
    case("fsdp2-busy-host-sync", "fsdp2", shape="busy", host_sync=True),
    case("fsdp2-loss-item", "fsdp2", item=True),
    case("fsdp2-keep", "fsdp2", reshard=False),
    case("fsdp2-accumulate4-nosync", "fsdp2", accumulate=4, accumulate_how="no_sync"),
    case("fsdp2-accumulate4-sync", "fsdp2", accumulate=4, accumulate_how="sync"),
    case("fsdp2-accumulate4-keep", "fsdp2", accumulate=4, accumulate_how="keep"),
    case("fsdp2-checkpoint", "fsdp2", checkpoint="block"),
    case("fsdp2-checkpoint-selective", "fsdp2", checkpoint="selective"),
    case("fsdp2-busy-checkpoint", "fsdp2", shape="busy", checkpoint="block"),
    case("fsdp2-pairs-of-blocks", "fsdp2", wrap=2),
    case("fsdp2-root-only", "fsdp2", wrap=0),
    case("fsdp2-fp32", "fsdp2", mixed=False),
    case("fsdp2-clip", "fsdp2", clip=True),
    case("fsdp2-offload", "fsdp2", offload=True),
    case("fsdp2-stack", "fsdp2", stack=True),
    case("fsdp2-no-shapes", "fsdp2", shapes=False),
    case("fsdp2-late-host", "fsdp2", late_rank=1, late_ms=40),
    case("fsdp2-slow-gpu", "fsdp2", shape="busy", slow_rank=1),
    case("fsdp2-loader-stall", "fsdp2", stall_ms=120),
    case("fsdp2-uneven-sequences", "fsdp2", shape="busy", uneven=True),
    case("fsdp2-frozen-half", "fsdp2", frozen=3),
    case("fsdp2-tied", "fsdp2", tied=True),
    case("fsdp1-grad-op", "fsdp1", strategy="SHARD_GRAD_OP"),
    case("fsdp1-no-shard", "fsdp1", strategy="NO_SHARD"),
    case("fsdp1-bwd-none", "fsdp1", backward_prefetch=None),
    case("fsdp1-orig-params", "fsdp1", orig=True),
    case("fsdp1-accumulate4-nosync", "fsdp1", accumulate=4, accumulate_how="no_sync"),
    case("fsdp1-checkpoint", "fsdp1", checkpoint="block"),
    case("fsdp1-offload", "fsdp1", offload=True),
    case("fsdp1-root-only", "fsdp1", wrap=0),
    case("ddp-accumulate4-nosync", "ddp", accumulate=4, accumulate_how="no_sync"),
    case("ddp-bucket4", "ddp", bucket_mb=4),
    case("ddp-zero1", "ddp", zero1=True),
    case("fsdp2-compiled", "fsdp2", compiled=True),
]
W4 = [
    case("fsdp2-4", "fsdp2"),
    case("fsdp2-hsdp-2x2", "fsdp2", mesh=[2, 2]),
    case("fsdp2-reshard-2", "fsdp2", reshard=2),
    case("fsdp1-hybrid-2x2", "fsdp1", strategy="HYBRID_SHARD", mesh=[2, 2]),
    case("fsdp1-hybrid-grad-op-2x2", "fsdp1", strategy="_HYBRID_SHARD_ZERO2", mesh=[2, 2]),
    case("fsdp2-tp-2x2", "fsdp2", tensor=2),
    case("fsdp2-experts-4", "fsdp2", experts=True),
    case("fsdp2-pipeline-2x2", "pipeline"),
    case("ddp-4", "ddp"),
    case("fsdp2-busy-4-late-host", "fsdp2", shape="busy", late_rank=2, late_ms=60),
]
HF = [
    case("hf-accelerate-fsdp2", "accelerate", version=2),
    case("hf-accelerate-fsdp1", "accelerate", version=1),
    case("hf-accelerate-ddp", "accelerate", version=0),
]
DS = [
    case("deepspeed-zero3", "deepspeed", stage=3),
    case("deepspeed-zero3-busy", "deepspeed", stage=3, shape="busy"),
    case("deepspeed-zero3-no-overlap", "deepspeed", stage=3, overlap=False),
    case("deepspeed-zero2", "deepspeed", stage=2),
    case("deepspeed-zero1", "deepspeed", stage=1),
]
HANG2 = [case("hang-host-rank1", "hang", how="host"), case("hang-skip-rank1", "hang", how="skip")]
HANG4 = [case("hang-cycle-4", "hang", how="cycle"), case("hang-host-rank2-4", "hang", how="host", culprit=2)]
JAX = [case("jax-fsdp", "jax"), case("jax-fsdp-scan", "jax", scan=True)]
ONE = [case("fsdp2-1", "fsdp2", shape="one"), case("fsdp1-1", "fsdp1", shape="one"), case("plain-1", "plain", shape="one"),
       case("fsdp2-1-compiled", "fsdp2", shape="one", compiled=True), case("fsdp2-1-checkpoint", "fsdp2", shape="one", checkpoint="block")]
GROUPS = {"w2": (2, W2), "w4": (4, W4), "hf": (2, HF), "ds": (2, DS), "hang2": (2, HANG2), "hang4": (4, HANG4), "jax": (2, JAX), "one": (1, ONE)}
SHAPES = {"small": dict(width=1024, heads=16, ffn=2816, layers=6, vocab=32000, batch=2, seq=1024),
          "busy": dict(width=512, heads=8, ffn=1408, layers=6, vocab=8192, batch=1, seq=32768),
          "one": dict(width=2048, heads=16, ffn=5632, layers=12, vocab=32000, batch=4, seq=2048),
          "tiny": dict(width=64, heads=4, ffn=128, layers=4, vocab=128, batch=2, seq=32)}
