"""fsdpbench.jax without JAX: what it reads of parameters and shardings, and which traces it takes."""

from __future__ import annotations

import unittest
from collections import OrderedDict
from typing import Any, Dict, Tuple

import support

from fsdpbench.jax import _traces, seen_of
from fsdpbench.torch.profile import profile_from


class Mesh:
    def __init__(self, **shape: int) -> None:
        self.shape = OrderedDict(shape)


class Sharding:
    def __init__(self, mesh: Mesh, *spec: Any) -> None:
        self.mesh, self.spec = mesh, spec


class Array:
    def __init__(self, shape: Tuple[int, ...], sharding: Any = None, dtype: str = "float32") -> None:
        self.shape, self.sharding, self.dtype = shape, sharding, dtype


def decoder(mesh: Mesh, layers: int = 0) -> Dict[str, Array]:
    """Of llama's names, unrolled; or stacked for a scan."""
    shapes = {"q_proj": (64, 64), "k_proj": (64, 64), "v_proj": (64, 64), "o_proj": (64, 64), "gate_proj": (64, 96), "up_proj": (64, 96),
              "down_proj": (96, 64)}
    if layers:
        return {f"['{name}']": Array((layers, *shape), Sharding(mesh, None, "fsdp", None)) for name, shape in shapes.items()}
    return {f"['layers'][{i}]['{name}']": Array(shape, Sharding(mesh, "fsdp", None)) for i in range(3) for name, shape in shapes.items()}


class Reading(unittest.TestCase):
    def test_unrolled_layers_are_blocks(self) -> None:
        seen, mesh = seen_of(decoder(Mesh(fsdp=8)), {"scans": [], "checkpointed": False})
        keys = profile_from(seen, mesh).keys
        self.assertEqual((keys["model.layers"], keys["model.width"], keys["model.ffn_width"], keys["mesh.ranks"]), (3, 64, 96, 8))
        self.assertNotIn("fsdp.activation_checkpointing", keys)

    def test_stacked_layers_are_as_many_as_the_scan_is_long(self) -> None:
        seen, mesh = seen_of(decoder(Mesh(data=2, fsdp=4), 5), {"scans": [5], "checkpointed": True})
        keys = profile_from(seen, mesh).keys
        self.assertEqual((keys["model.layers"], keys["model.width"], keys["mesh.shard"], keys["mesh.replicate"]), (5, 64, 4, 2))
        self.assertTrue(keys["fsdp.activation_checkpointing"])

    def test_axes_that_split_layers_are_tensor(self) -> None:
        self.assertEqual(seen_of(decoder(Mesh(fsdp=4, tensor=2)), {"scans": [], "checkpointed": False})[1], {"shard": 4, "tensor": 2})

    def test_parameters_without_shardings_leave_the_mesh_unread(self) -> None:
        seen, mesh = seen_of({"['w']": Array((4, 4))}, {"scans": [], "checkpointed": False})
        self.assertEqual(mesh, {})
        self.assertIn("the mesh: no parameter has a NamedSharding", seen["unread"])


class Traces(support.FolderTest):
    def test_a_process_is_there_when_its_json_is(self) -> None:
        for process, names in ((0, ("vm.xplane.pb", "vm.trace.json.gz")), (1, ("vm.xplane.pb",))):
            run = self.folder / f"process_{process}/plugins/profile/2026_01_01_00_00_00"
            run.mkdir(parents=True)
            for name in names:
                (run / name).touch()
        self.assertEqual(_traces(self.folder), [self.folder / "process_0"])


if __name__ == "__main__":
    unittest.main()
