// Emulated links between processes against the same ones between threads, where communicators share them: the same
// rounds, run alternately. The ratio should be one; both say how far they are above what the links' bytes alone take.
// The ranks are threads of this program that know each other through sockets only.
//
//   bench_link_processes

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/copy_backend.h"
#include "backend/cpu_processes.h"
#include "backend/link_rounds.h"

namespace fsdpbench::backend {
namespace {

constexpr int kRuns = 9;

double milliseconds(Backend& backend, const LinkCase& c) {
  return static_cast<double>(time_of_rounds(backend, c)) * 1e-6;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kRuns / 2);
  return values[kRuns / 2];
}

void compare() {
  const std::unique_ptr<Backend> threads = make_copy_backend();
  CpuProcesses processes;
  fmt::print("{:<44} {:>9} {:>9} {:>10} {:>7}\n", "medians of 9 runs", "bytes ms", "threads ms", "sockets ms", "ratio");
  std::vector<LinkCase> cases = link_cases();
  cases.push_back({"WhatAMemberDoesElsewhereIsKnownWhenItComes", {}, &stranger_rounds, 2 * 40});
  for (const LinkCase& c : cases) {
    std::vector<double> between_threads, between_processes, ratios;
    for (int run = 0; run < kRuns; ++run) {
      between_threads.push_back(milliseconds(*threads, c));
      between_processes.push_back(milliseconds(processes, c));
      ratios.push_back(between_processes.back() / between_threads.back());
    }
    fmt::print("{:<44} {:>9} {:>9.1f} {:>10.1f} {:>7.3f}\n", c.name, c.least_ms, median(between_threads),
               median(between_processes), median(ratios));
  }
}

}  // namespace
}  // namespace fsdpbench::backend

int main() { fsdpbench::backend::compare(); }
