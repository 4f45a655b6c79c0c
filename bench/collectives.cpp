// Shared-memory all-gather and reduce-scatter against what the same threads reach when they move the same bytes without
// any coordination: plain memcpy for the gather, a plain vectorised add for the reduction. Both sides of a ratio are
// measured alternately in the same run. Times are those of the slowest rank; the ratio (limit / collective) should be
// at least 0.8 at 16 MiB per rank.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "against_plain.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/lane_worker.h"
#include "base/clock.h"

namespace fsdpbench::backend {
namespace {

using bench::Measured;

struct Buffers {
  std::byte* shard;
  std::byte* full;
};

/// The limit's counterpart of a collective, called on every rank: no barrier within, the same reads and writes.
using PlainWork = void (*)(int rank, const std::vector<Buffers>& buffers, std::int64_t bytes);

void plain_copy(int rank, const std::vector<Buffers>& buffers, std::int64_t bytes) {
  const int n = static_cast<int>(buffers.size());
  for (int step = 0; step < n; ++step) {
    const int from = (rank + step) % n;
    std::memcpy(buffers[static_cast<std::size_t>(rank)].full + from * bytes,
                buffers[static_cast<std::size_t>(from)].shard, static_cast<std::size_t>(bytes));
  }
}

void plain_add(int rank, const std::vector<Buffers>& buffers, std::int64_t bytes) {
  const auto source = [&](std::size_t r) { return reinterpret_cast<const float*>(buffers[r].full + rank * bytes); };
  auto* target = reinterpret_cast<float*>(buffers[static_cast<std::size_t>(rank)].shard);
  const std::int64_t count = bytes / 4;
  std::vector<const float*> sources;
  for (std::size_t r = 0; r < buffers.size(); ++r) sources.push_back(source(r));
  bench::plain_sum(sources, target, count);
}

/// Seconds from the first rank's begin to the last one's end.
double seconds_of_slowest(const std::vector<Stamp>& stamps) {
  std::int64_t begin = stamps.front().begin_ns;
  std::int64_t end = 0;
  for (const Stamp& stamp : stamps) {
    begin = std::min(begin, stamp.begin_ns);
    end = std::max(end, stamp.end_ns);
  }
  return static_cast<double>(end - begin) * 1e-9;
}

Measured measure(int ranks, std::int64_t bytes, Collective kind, PlainWork plain) {
  Measured measured;
  std::vector<Buffers> buffers(static_cast<std::size_t>(ranks));
  std::vector<Stamp> stamps(static_cast<std::size_t>(ranks));
  BackendOptions options;
  options.ranks = ranks;
  cpu::CpuBackend backend([] { return std::make_unique<cpu::EmulatedKernels>(1e12); });
  backend.run(options, [&](RankContext& context) {
    const int rank = context.rank;
    Buffers& mine = buffers[static_cast<std::size_t>(rank)];
    Stamp* const stamp = &stamps[static_cast<std::size_t>(rank)];
    Device& device = context.device;
    mine.shard = device.allocate(bytes, MemoryCategory::communication_buffers, Lane::all_gather);
    mine.full = device.allocate(ranks * bytes, MemoryCategory::communication_buffers, Lane::all_gather);
    std::memset(mine.shard, 0, static_cast<std::size_t>(bytes));
    std::memset(mine.full, 0, static_cast<std::size_t>(ranks * bytes));

    const auto timed = [&](const auto& enqueue, std::vector<double>& seconds, bool keep) {
      context.world.barrier();
      enqueue();
      device.synchronize();
      context.world.barrier();
      if (rank == 0 && keep) seconds.push_back(seconds_of_slowest(stamps));
    };
    const auto collective = [&] {
      if (kind == Collective::all_gather) {
        context.world.all_gather(Lane::all_gather, mine.shard, mine.full, bytes / 4, DType::f32, stamp);
      } else {
        context.world.reduce_scatter(Lane::all_gather, mine.full, mine.shard, bytes / 4, DType::f32, 1.0F, stamp);
      }
    };
    const auto plain_op = [&] {
      device.enqueue(
          Lane::all_gather, "plain", [&](Kernels&) { plain(rank, buffers, bytes); }, stamp);
    };
    bench::measure_rounds(timed, plain_op, collective, measured);
  });
  return measured;
}

void report(benchmark::State& state, Collective kind, PlainWork plain) {
  const int ranks = static_cast<int>(state.range(0));
  const std::int64_t bytes = state.range(1) << 20;
  bench::report_against_plain(state, ranks, bytes, [&] { return measure(ranks, bytes, kind, plain); });
}

void all_gather(benchmark::State& state) { report(state, Collective::all_gather, plain_copy); }
void reduce_scatter(benchmark::State& state) { report(state, Collective::reduce_scatter, plain_add); }

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"ranks", "MiB_per_rank"})->ArgsProduct({{2, 4}, {1, 4, 16, 64}});
  b->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

BENCHMARK(all_gather)->Apply(sizes);
BENCHMARK(reduce_scatter)->Apply(sizes);

}  // namespace
}  // namespace fsdpbench::backend
