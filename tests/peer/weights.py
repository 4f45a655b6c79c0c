"""Exchanges weights with transformers: `python weights.py FSDPBENCH`.

A training is saved, written as one safetensors file, and gone on with by transformers' own Llama and torch's AdamW, and
by us: the losses must be the same. Then a model that transformers saved becomes a checkpoint, and our first loss must be
that of transformers. Skipped, with the reason, where transformers is not installed (`make peer-parsers` installs it).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
from byte_text import batch_of  # noqa: E402

LAYERS, WIDTH, HEADS, KV_HEADS, FFN, VOCAB, SEQ, BATCH, RANKS = 2, 32, 4, 2, 64, 256, 16, 2, 2
BEFORE, ALL = 4, 8
TOLERANCE = 1e-5  # relative; fp32 sums in another order
KEYS = [f"model.layers={LAYERS}", f"model.width={WIDTH}", f"model.heads={HEADS}", f"model.kv_heads={KV_HEADS}",
        f"model.ffn_width={FFN}", f"model.vocab={VOCAB}", f"train.seq_len={SEQ}", f"train.batch_per_rank={BATCH}",
        f"mesh.ranks={RANKS}", "train.warmup=0", "train.optimizer=adamw", "train.learning_rate=0.01",
        "train.weight_decay=0.1", "emulate.link_gb_per_s=none", "emulate.link_latency_us=0"]


def call(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, arguments))}: {done.stderr}")


def train(program, folder, out, steps, *more):
    sets = [word for key in [*KEYS, f"data.path={folder / 'text'}", f"train.steps={steps}"] for word in ("--set", key)]
    call(program, "run", "quickstart", *sets, "--out", folder / out, "-q", *more)
    return json.loads((folder / out / "result.json").read_text())["train"]["loss"]


def llama():
    import transformers
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, attn_implementation="eager"))


def loss_of(model, text, step):
    import torch
    count = RANKS * BATCH
    rows = torch.tensor([list(row) for row in batch_of(text, step, 0, 1, count, SEQ + 1)])
    logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def compare(what, ours, theirs):
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if abs(a - b) > TOLERANCE * abs(b):
            raise AssertionError(f"{what}: the loss of step {step} is {a} here and {b} there")
    print(f"{what}: {len(ours)} losses within {max(abs(a / b - 1) for a, b in zip(ours, theirs)):.1e}")


def gone_on_by_transformers(program, folder, text):
    import torch
    from safetensors.torch import load_file
    train(program, folder, "first", BEFORE, "--set", f"checkpoint.folder={folder / 'saved'}")
    ours = train(program, folder, "rest", ALL, "--resume", folder / "saved")
    file = folder / "weights.safetensors"
    call(program, "checkpoint", "export", folder / "saved", file, "--names", "hugging-face", "--moments")
    tensors = load_file(file)
    model = llama()
    model.load_state_dict({name: value for name, value in tensors.items() if not name.split("/")[0].endswith("moment")})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {"step": torch.tensor(float(BEFORE)),
                                      "exp_avg": tensors[f"first_moment/{name}"],
                                      "exp_avg_sq": tensors[f"second_moment/{name}"]}
    theirs = []
    for step in range(BEFORE, ALL):
        loss = loss_of(model, text, step)
        theirs.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    compare("gone on by transformers' Llama and torch's AdamW", ours, theirs)


def begun_by_transformers(program, folder, text):
    import torch
    from safetensors.torch import save_file
    torch.manual_seed(1)
    model = llama()
    file = folder / "theirs.safetensors"
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, file)
    sets = [word for key in KEYS for word in ("--set", key)]
    call(program, "checkpoint", "import", file, "quickstart", "--into", folder / "imported", *sets)
    ours = train(program, folder, "begun", 2, "--resume", folder / "imported")
    compare("begun with transformers' parameters", ours[:1], [loss_of(model, text, 0).item()])


def exchanged_in_parts(program, folder):
    """bf16 in several files, as save_pretrained writes them and from_pretrained reads them, both ways."""
    import torch
    import transformers
    torch.manual_seed(2)
    theirs, ours = folder / "theirs", folder / "ours"
    model = llama().to(torch.bfloat16)
    model.save_pretrained(theirs, max_shard_size="20KB")
    if not (theirs / "model.safetensors.index.json").exists():
        raise AssertionError("transformers wrote one file where several were asked for")
    sets = [word for key in KEYS for word in ("--set", key)]
    call(program, "checkpoint", "import", theirs, "quickstart", "--into", folder / "parts", *sets)
    call(program, "checkpoint", "export", folder / "parts", ours, "--names", "hugging-face", "--dtype", "bf16", "--split",
         "20KiB")
    (ours / "config.json").write_text((theirs / "config.json").read_text())
    back = transformers.LlamaForCausalLM.from_pretrained(ours, dtype=torch.bfloat16)
    for (name, a), (_, b) in zip(model.state_dict().items(), back.state_dict().items(), strict=True):
        if not torch.equal(a, b):
            raise AssertionError(f"{name} came back changed")
    print(f"bf16 in {len(list(theirs.glob('*.safetensors')))} files and back: the same bits")


def main():
    try:
        import safetensors, torch, transformers  # noqa: F401, E401
    except ImportError as missing:
        print(f"weights: skipped, {missing}; make peer-parsers installs it")
        return
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = bytes((i * i // 7 + i // 3) % 251 + 1 for i in range(20_000))
        for form in ("false", "true"):  # files have the same weights in either
            KEYS.append(f"model.fused_projections={form}")
            own = folder / f"fused-{form}"
            own.mkdir()
            (own / "text").write_bytes(text)
            gone_on_by_transformers(program, own, text)
            begun_by_transformers(program, own, text)
            exchanged_in_parts(program, own)


main()
