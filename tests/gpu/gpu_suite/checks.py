"""Sections that say whether it is right: tests, numbers, traces, several ranks on this one GPU, and single features."""

import re

from .suite import Absent, Clock, Failed, Figures, Problems, Suite, compare_losses

NO_LINK = {"emulate.link_gb_per_s": "none", "emulate.link_latency_us": 0}


def gpu_tests(suite: Suite, seconds: float, figures: Figures) -> None:
    """The GoogleTest programs of the label gpu."""
    programs = sorted(suite.programs.glob("*_gpu_test"))
    if not programs:
        raise Absent(f"{suite.programs} holds no *_gpu_test; the tests were not built")
    clock, failures = Clock(seconds), []
    for index, program in enumerate(programs):
        done = suite.command([program, "--gtest_color=no"], clock.left((len(programs) - 1 - index) * 5), program.name, partial=True)
        told = {}
        for verdict, name in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:, where .*)? \(\d+ ms\)$", done.stdout, re.MULTILINE):
            told.setdefault(verdict, []).append(name)
        figures[program.name] = ", ".join(f"{len(told.get(verdict, []))} {word}" for verdict, word in
                                          (("OK", "passed"), ("SKIPPED", "skipped"), ("FAILED", "failed")))
        failures += told.get("FAILED", [])
        if told.get("SKIPPED") and len(told) == 1:  # one that finds no GPU, here where there is one
            failures.append(f"{program.name}: all tests were skipped, see {program.name}.log")
        if done.returncode != 0 and not told.get("FAILED"):
            begun = re.findall(r"^\[ RUN +\] (\S+)", done.stdout, re.MULTILINE)
            how = "had not ended in its time" if done.returncode == 124 else f"ended with code {done.returncode}"
            failures.append(f"{program.name} {how} in {begun[-1] if begun else 'its start'}")
    if failures:
        raise Failed(f"{len(failures)} failed: {', '.join(failures[:5])}")


def numerics(suite: Suite, seconds: float, figures: Figures) -> None:
    """Losses of the same training on the GPU and on the CPU backend."""
    common = NO_LINK | {"mesh.ranks": 1, "train.steps": 8, "train.warmup": 0}
    clock = Clock(seconds)
    for dtype, allowed in (("fp32", 1e-4), ("bf16", 2e-2)):
        losses = {}
        for backend in ("cpu", "cuda"):
            result = suite.train("quickstart", f"numerics-{dtype}-{backend}", clock.left(),
                                 common | {"device.backend": backend, "fsdp.param_dtype": dtype})
            losses[backend] = result["train"]["loss"]
        compare_losses(figures, dtype, losses["cuda"], losses["cpu"], allowed)


def trace(suite: Suite, seconds: float, figures: Figures) -> None:
    """A trace with CUPTI: valid, every kernel under its op, nothing dropped."""
    clock = Clock(seconds)
    result = suite.train("gpu-100m", "trace", clock.left(), {"train.steps": 5, "device.timer": "cupti"})
    folder = suite.files / "runs" / "trace"
    for file in (folder / "trace.json", folder / "trace" / "rank_0.json.gz"):
        done = suite.command([suite.program("check_trace"), file], clock.left(), f"trace-{file.name}")
        if done.returncode != 0:
            raise Failed(f"check_trace finds faults in {file.name}, see trace-{file.name}.log")
    device = result["world"]["devices"][0]
    if not device["timer"].startswith("CUPTI"):
        raise Failed(f"the timer was {device['timer']}")
    figures.add({name: value for name, value in device.items() if "record" in name or name == "timer"})


def functional(suite: Suite, seconds: float, figures: Figures) -> None:
    """2 and 4 ranks as processes on this one GPU, over sockets: that they agree with one rank, never how fast. And what
    launching a collective takes of the host, by communicators of both kinds."""
    common = NO_LINK | {"train.steps": 4, "train.warmup": 0, "device.backend": "cuda"}
    clock = Clock(seconds)
    alone = suite.train("quickstart", "functional-1", clock.left(),
                        common | {"train.batch_per_rank": 4, "nccl.blocking": "false", "mesh.ranks": 1})["train"]["loss"]
    for ranks, blocking in ((2, False), (2, True), (4, False)):
        kind = "blocking" if blocking else "non-blocking"
        result = suite.train_ranks("quickstart", f"functional-{ranks}-{kind}", clock.left(), common | {
            "train.batch_per_rank": 4 // ranks, "nccl.blocking": str(blocking).lower(), "mesh.ranks": ranks}, ranks)
        figures[f"{ranks} ranks, {kind} communicators"] = result["world"]["devices"][0].get("nccl launches", "not told")
        compare_losses(figures, f"{ranks} ranks, {kind}", result["train"]["loss"], alone, 1e-3)


def features(suite: Suite, seconds: float, figures: Figures) -> None:
    """Offload, tensor parallelism and registered buffers: numbers as without."""
    clock, problems = Clock(seconds), Problems()
    common = NO_LINK | {"train.steps": 4, "train.warmup": 2, "device.timer": "events", "device.deterministic": "true"}
    gpu = {"device.backend": "cuda"}
    whole, half = {"mesh.ranks": 1, "train.batch_per_rank": 4}, {"mesh.ranks": 2, "train.batch_per_rank": 2}

    def alone(log: str, overrides: dict) -> dict:
        return suite.train("quickstart", f"features-{log}", clock.left(), common | gpu | whole | overrides)

    def two(log: str, overrides: dict) -> dict:
        return suite.train_ranks("quickstart", f"features-{log}", clock.left(), common | gpu | half | overrides, 2)

    def same_bits(what: str, log: str, overrides: dict, told: str) -> None:
        result = alone(log, overrides)
        if told not in result["world"]["devices"][0]:
            raise Failed(f"{what}: world.devices does not say {told!r}, so it was not used")
        mine, expected = result["train"].get("params_digest"), reference["train"].get("params_digest")
        figures[f"{what}: parameters"] = "the same bits" if mine == expected is not None else "OTHER BITS"
        if mine != expected or expected is None:
            raise Failed(f"{what}: the digest is {mine}, and {expected} without")

    def same_losses(what: str, log: str, overrides: dict, expected: list) -> None:
        compare_losses(figures, what, two(log, overrides)["train"]["loss"], expected, 1e-3)

    reference = alone("plain", {})
    problems.part(same_bits, "fsdp.cpu_offload = all", "offload", {"fsdp.cpu_offload": "all"}, "pinned host memory")
    problems.part(same_losses, "mesh.tensor = 2", "tensor", {"mesh.tensor": 2, "train.batch_per_rank": 4}, reference["train"]["loss"])
    problems.part(same_losses, "2 ranks, nccl.register_buffers = local", "registered", {"nccl.register_buffers": "local"},
                  reference["train"]["loss"])
    problems.raise_all()
