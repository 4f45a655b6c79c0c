// All-gather and reduce-scatter between processes against what the same processes reach when each moves as many bytes
// within its own memory: memcpy for the gather, a plain vectorised add for the reduction. Both sides of a ratio are
// measured alternately in the same run. Times are those of the slowest rank; all are on one host.
//
//   mpirun -n 2 bench_collectives_processes        (2 or 4)

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "against_plain.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/lane_worker.h"
#include "in_job.h"
#include "library_context.h"

namespace fsdpbench::backend {
namespace {

using bench::Measured;

launch::Session* session = nullptr;

struct Buffers {
  std::byte* shard;
  std::byte* full;
  std::byte* peers;  ///< as large as `full`: stands for the other ranks' memory
};

using PlainWork = void (*)(const Buffers& buffers, int ranks, std::int64_t bytes);

void plain_copy(const Buffers& buffers, int ranks, std::int64_t bytes) {
  std::memcpy(buffers.full, buffers.peers, static_cast<std::size_t>(ranks * bytes));
}

void plain_add(const Buffers& buffers, int ranks, std::int64_t bytes) {
  const auto source = [&](int r) { return reinterpret_cast<const float*>(buffers.peers + r * bytes); };
  auto* target = reinterpret_cast<float*>(buffers.shard);
  const std::int64_t count = bytes / 4;
  std::vector<const float*> sources;
  for (int r = 0; r < ranks; ++r) sources.push_back(source(r));
  bench::plain_sum(sources, target, count);
}

Measured measure(std::int64_t bytes, Collective kind, PlainWork plain) {
  Measured measured;
  BackendOptions options;
  options.session = session;
  options.ranks = session->placement().ranks;
  cpu::CpuBackend backend([] { return std::make_unique<cpu::EmulatedKernels>(1e12); });
  backend.run(options, [&](RankContext& context) {
    const int ranks = options.ranks;
    Device& device = context.device;
    const auto make = [&](std::int64_t size) {
      std::byte* memory = device.allocate(size, MemoryCategory::communication_buffers, Lane::all_gather);
      std::memset(memory, 0, static_cast<std::size_t>(size));
      return memory;
    };
    const Buffers mine{make(bytes), make(ranks * bytes), make(ranks * bytes)};
    Stamp stamp;
    const auto timed = [&](const auto& enqueue, std::vector<double>& seconds, bool keep) {
      context.world.barrier();
      enqueue();
      device.synchronize();
      const double took = bench::seconds_of_slowest(*session, stamp);
      if (keep) seconds.push_back(took);
    };
    const auto collective = [&] {
      if (kind == Collective::all_gather) {
        context.world.all_gather(Lane::all_gather, mine.shard, mine.full, bytes / 4, DType::f32, &stamp);
      } else {
        context.world.reduce_scatter(Lane::all_gather, mine.full, mine.shard, bytes / 4, DType::f32, 1.0F, &stamp);
      }
    };
    const auto plain_op = [&] {
      device.enqueue(
          Lane::all_gather, "plain", [&](Kernels&) { plain(mine, ranks, bytes); }, &stamp);
    };
    bench::measure_rounds(timed, plain_op, collective, measured);
  });
  return measured;
}

void report(benchmark::State& state, Collective kind, PlainWork plain) {
  const int ranks = session->placement().ranks;
  const std::int64_t bytes = state.range(0) << 20;
  bench::report_against_plain(state, ranks, bytes, [&] { return measure(bytes, kind, plain); });
}

void all_gather(benchmark::State& state) { report(state, Collective::all_gather, plain_copy); }
void reduce_scatter(benchmark::State& state) { report(state, Collective::reduce_scatter, plain_add); }

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("MiB_per_rank")->ArgsProduct({{1, 4, 16, 64}});
  b->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

BENCHMARK(all_gather)->Apply(sizes);
BENCHMARK(reduce_scatter)->Apply(sizes);

/// Reporter of the ranks that only take part.
class SilentReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  return bench::in_job(argv[0], [](launch::Session& joined) {
    session = &joined;
    bench::add_library_context();
    SilentReporter silent;
    joined.placement().rank == 0 ? benchmark::RunSpecifiedBenchmarks() : benchmark::RunSpecifiedBenchmarks(&silent);
  });
}

}  // namespace
}  // namespace fsdpbench::backend

int main(int argc, char** argv) { return fsdpbench::backend::run(argc, argv); }
