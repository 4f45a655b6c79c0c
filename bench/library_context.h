#pragma once

#include <benchmark/benchmark.h>

namespace fsdpbench::bench {

/// Google Benchmark warns "Library was built as DEBUG" if it was built without NDEBUG, as Debian's is. Adds to the
/// context of the output what that touches. Once, before RunSpecifiedBenchmarks().
inline void add_library_context() {
  benchmark::AddCustomContext(
      "google_benchmark",
      "Debian builds it without NDEBUG (\"Library was built as DEBUG\"): its checks cost nanoseconds when the timing "
      "of "
      "a case starts and ends; the loop is inline and built with the program, and manual times are not touched");
}

}  // namespace fsdpbench::bench
