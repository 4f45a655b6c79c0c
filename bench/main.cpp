// The main program of benchmarks that need nothing of their own: as Google's, with a context that says what its library
// is.
#include <benchmark/benchmark.h>

#include "library_context.h"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  fsdpbench::bench::add_library_context();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
