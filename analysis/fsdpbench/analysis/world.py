"""The world of a measurement as rows of the page."""

from __future__ import annotations

import json
import shlex
from typing import Any, Dict, List, Tuple

from .text import size

_NAMES = {
    "date": "date",
    "version": "fsdpbench",
    "git_revision": "git revision",
    "build_type": "build",
    "compiler": "compiler",
    "backend": "backend",
    "cpu": "CPU",
    "threads": "hardware threads",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "realtime": "scheduling",
}
_SAID_ELSEWHERE = {"command_line", "devices", "git_dirty", "emulated_link", "emulated_compute"}


def world_rows(world: Dict[str, Any]) -> List[Tuple[str, str]]:
    rows = []
    command = world.get("command_line")
    if isinstance(command, list) and command:
        rows.append(("command line", " ".join(shlex.quote(str(a)) for a in command)))
    for key, name in _NAMES.items():
        if world.get(key) is not None:
            rows.append((name, _value(world, key)))
    rows += [(key.replace("_", " "), _plain(value)) for key, value in world.items()
             if key not in _NAMES and key not in _SAID_ELSEWHERE and value is not None]
    return rows + _device_rows(world)


def beside(a: List[Tuple[str, str]], b: List[Tuple[str, str]], names: Tuple[str, str]) -> List[Tuple[str, str]]:
    """What is the same once; what differs with both values."""
    left, right = dict(a), dict(b)
    rows = []
    for name in {**left, **right}:
        both = left.get(name, "–"), right.get(name, "–")
        rows += [(name, both[0])] if both[0] == both[1] else [(f"{name}, {of}", value) for of, value in zip(names, both)]
    return rows


def machine(world: Dict[str, Any]) -> str:
    """What computed: the GPU where there is one, else the CPU; empty if nobody says."""
    gpus = [str(device["GPU"]) for device in _devices(world) if "GPU" in device]
    return gpus[0].split(",")[0] if gpus else str(world.get("cpu") or "")


def _devices(world: Dict[str, Any]) -> List[Dict[str, Any]]:
    devices = world.get("devices")
    return [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []


def _device_rows(world: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Ranks whose devices say the same share a row."""
    ranks: Dict[str, List[str]] = {}
    for device in _devices(world):
        said = _plain({key: value for key, value in device.items() if key != "rank"})
        ranks.setdefault(said, []).append(str(device.get("rank", "?")))
    return [(f"device of rank {', '.join(who)}", said) for said, who in ranks.items() if said]


def _value(world: Dict[str, Any], key: str) -> str:
    value = world[key]
    if key == "memory_bytes" and isinstance(value, (int, float)):
        return size(value)
    if key == "git_revision" and world.get("git_dirty") is True:
        return f"{value} with changes that were not committed"
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def emulation_badges(world: Dict[str, Any]) -> List[str]:
    badges = []
    if world.get("emulated_link") is True:
        badges.append("Emulated links: transfers took a modelled time")
    if world.get("emulated_compute") is True:
        badges.append("Emulated compute: kernels took a modelled time and computed nothing")
    if world.get("backend") == "virtual":
        badges.append("Virtual clock: all times are modelled")
    return badges
