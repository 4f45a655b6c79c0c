// Comparisons in real time, on emulated steps of some 10 ms: forty of a configuration with itself, and of differences
// that were planted. What must be: at most two false ones of forty, a planted 5 % found in at least 19 of 20, and of
// planted 3 % never the wrong sign. tests/engine/compare_test.cpp asks the same of the computed clock.
//
//   bench_compare

#include <fmt/format.h>

#include <cstdio>

#include "support/compare_cases.h"

namespace fsdpbench {
namespace {

using account::Verdict;

void verdicts(const char* what, int comparisons, double factor) {
  const config::RunConfig a = testing::compared_step();
  const config::RunConfig b = testing::slower(a, factor);
  const testing::HashedBatches batches(static_cast<std::int32_t>(a.model.vocab));
  const auto run = [&](const engine::Setup& setup) {
    return engine::run(*backend::cpu::make_cpu_backend(), setup, batches, {});
  };
  int faster = 0, slower = 0;
  double lowest = 1e9, highest = 0, width = 0;
  for (int i = 0; i < comparisons; ++i) {
    const account::Difference c = testing::compare_in_turns(a, b, run);
    faster += c.verdict == Verdict::faster ? 1 : 0;
    slower += c.verdict == Verdict::slower ? 1 : 0;
    lowest = std::min(lowest, c.ratio);
    highest = std::max(highest, c.ratio);
    width += (c.high - c.low) / comparisons;
  }
  fmt::print("{:<24} {:>11} {:>7} {:>7} {:>13} {:>8.3f} to {:.3f} {:>9.1f} %\n", what, comparisons, faster, slower,
             comparisons - faster - slower, lowest, highest, 100 * width);
  std::fflush(stdout);
}

}  // namespace
}  // namespace fsdpbench

int main() {
  fmt::print("{:<24} {:>11} {:>7} {:>7} {:>13} {:>17} {:>11}\n", "B takes", "comparisons", "faster", "slower",
             "no difference", "ratios", "interval");
  fsdpbench::verdicts("as long as A", 40, 1.0);
  fsdpbench::verdicts("5 % longer", 20, 1.05);
  fsdpbench::verdicts("3 % longer", 20, 1.03);
  fsdpbench::verdicts("3 % shorter", 20, 1 / 1.03);
}
