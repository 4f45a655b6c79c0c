"""Writes the golden files that tests/support/golden.h reads: NAME.bin with little-endian arrays one after another, and
NAME.json with "facts" (plain values) and "tensors" (name -> dtype, shape, byte offset)."""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
MASK = (1 << 64) - 1


def token(sample, i, vocabulary):
    """HashedBatches::tokens of tests/support/tiny_run.h."""
    z = (sample * 0x9E3779B97F4A7C15 + i * 0xD1B54A32D192ED03) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return (z ^ (z >> 31)) % vocabulary


def initial(name):
    """The initial parameters that the file NAME holds."""
    index = json.loads((FOLDER / f"{name}.json").read_text())
    data = (FOLDER / f"{name}.bin").read_bytes()
    return {key.removeprefix("initial/"): np.frombuffer(data, "<f4", int(np.prod(entry["shape"])), entry["offset"])
            .reshape(entry["shape"]).copy() for key, entry in index["tensors"].items() if key.startswith("initial/")}


class GoldenFile:
    def __init__(self, facts):
        self.facts = facts
        self.tensors = {}
        self.bytes = bytearray()

    def add(self, name, array):
        array = np.ascontiguousarray(array)
        dtype = {"float32": "f32", "int32": "i32"}[str(array.dtype)]
        self.tensors[name] = {"dtype": dtype, "shape": list(array.shape), "offset": len(self.bytes)}
        self.bytes += array.astype(array.dtype.newbyteorder("<")).tobytes()

    def write(self, name):
        (FOLDER / f"{name}.bin").write_bytes(self.bytes)
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in self.tensors.items())
        (FOLDER / f"{name}.json").write_text(
            f'{{"facts": {json.dumps(self.facts, indent=1)},\n"tensors": {{\n{lines}\n}}}}\n'
        )
        print(f"{name}: {len(self.bytes)} bytes, {len(self.tensors)} tensors")
