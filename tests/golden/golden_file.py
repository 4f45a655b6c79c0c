"""Writes the golden files that tests/support/golden.h reads: NAME.bin with little-endian arrays one after another, and
NAME.json with "facts" (plain values) and "tensors" (name -> dtype, shape, byte offset)."""

import json
from pathlib import Path

import numpy as np


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
        folder = Path(__file__).parent
        (folder / f"{name}.bin").write_bytes(self.bytes)
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in self.tensors.items())
        (folder / f"{name}.json").write_text(
            f'{{"facts": {json.dumps(self.facts, indent=1)},\n"tensors": {{\n{lines}\n}}}}\n'
        )
        print(f"{name}: {len(self.bytes)} bytes, {len(self.tensors)} tensors")
