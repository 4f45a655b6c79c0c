// Compiled for any x86-64 processor, as nothing else of a build for x86-64-v3 is (FSDPBENCH_NATIVE=OFF).

#include <unistd.h>

namespace {

constexpr char kWhy[] =
    "error: This fsdpbench was built for x86-64-v3, which are Intel's processors since Haswell (2013) and AMD's since "
    "Excavator (2015), and this processor lacks some of its instructions (AVX2, BMI2, FMA). Build fsdpbench from "
    "source "
    "on this machine: `make build`.\n";

void check_cpu() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v3") != 0) return;
  (void)!write(STDERR_FILENO, kWhy, sizeof kWhy - 1);
  _exit(1);
}

/// Called before everything else, initialisers of globals included: they may use what the processor lacks.
[[gnu::used, gnu::section(".preinit_array")]] void (*const kFirst)() = check_cpu;

}  // namespace
