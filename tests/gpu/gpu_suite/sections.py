"""All sections, in the calls in which they are done: each call is a command of less than ten minutes, with everything that
belongs together in it."""

from .checks import features, functional, gpu_tests, numerics, trace
from .speed import changes, gemm, kernels, offload, step, timers, torch, tracer_cost
from .suite import Section
from .tools import ncu, sanitizer

BUDGET = 540  # seconds of a call

CALLS = (
    (
        Section("tests", 120, gpu_tests),
        Section("numerics", 40, numerics),
        Section("trace", 40, trace),
        Section("functional", 80, functional),
        Section("features", 240, features),
    ),
    (
        Section("step", 90, step),
        Section("torch", 260, torch),
        Section("timers", 80, timers),
    ),
    (
        Section("changes", 300, changes),
        Section("gemm", 80, gemm),
        Section("kernels", 80, kernels),
    ),
    (
        Section("tracer_cost", 80, tracer_cost),
        Section("offload", 60, offload),
        Section("sanitizer", 140, sanitizer),
        Section("ncu", 200, ncu),
    ),
)
SECTIONS = tuple(section for call in CALLS for section in call)
