// All-gather and reduce-scatter between processes of one host beside those of the MPI that started them: the same
// processes, threads and buffers, in turns. Times are those of the slowest rank, of one call in a burst.
//
//   mpirun -n 2 --bind-to none bench_collectives_mpi [KIB]        (2 or 4; up to so much a rank, by default 64 MiB)

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "against_plain.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/emulated_kernels.h"
#include "in_job.h"

namespace fsdpbench::backend {
namespace {

constexpr int kTurns = 21;

int burst(std::int64_t bytes) { return static_cast<int>(std::clamp<std::int64_t>((8 << 20) / bytes, 1, 200)); }

struct Case {
  Collective kind;
  std::int64_t bytes;  ///< a rank
};

struct Times {
  std::vector<double> ours, theirs, ratios;
};

Times measure(launch::Session& session, MPI_Comm all, const Case& c) {
  Times times;
  BackendOptions options;
  options.session = &session;
  options.ranks = session.placement().ranks;
  cpu::CpuBackend backend([] { return std::make_unique<cpu::EmulatedKernels>(1e12); });
  backend.run(options, [&](RankContext& context) {
    Device& device = context.device;
    const std::int64_t count = c.bytes / 4;
    const int calls = burst(c.bytes);
    const auto make = [&](std::int64_t size) {
      std::byte* memory = device.allocate(size, MemoryCategory::communication_buffers, Lane::all_gather);
      std::memset(memory, 0, static_cast<std::size_t>(size));
      return memory;
    };
    std::byte* const shard = make(c.bytes);
    std::byte* const full = make(options.ranks * c.bytes);
    std::vector<Stamp> stamps(static_cast<std::size_t>(calls));
    const auto seconds = [&](const auto& enqueue) {
      context.world.barrier();
      enqueue();
      device.synchronize();
      Stamp whole = stamps.front();
      whole.end_ns = stamps.back().end_ns;
      return bench::seconds_of_slowest(session, whole) / calls;
    };
    const auto ours = [&] {
      for (Stamp& stamp : stamps) {
        if (c.kind == Collective::all_gather) {
          context.world.all_gather(Lane::all_gather, shard, full, count, DType::f32, &stamp);
        } else {
          context.world.reduce_scatter(Lane::all_gather, full, shard, count, DType::f32, 1.0F, &stamp);
        }
      }
    };
    const auto theirs = [&] {
      for (Stamp& stamp : stamps) {
        device.enqueue(
            Lane::all_gather, "mpi",
            [&](Kernels&) {
              const int n = static_cast<int>(count);
              if (c.kind == Collective::all_gather) {
                MPI_Allgather(shard, n, MPI_FLOAT, full, n, MPI_FLOAT, all);
              } else {
                MPI_Reduce_scatter_block(full, shard, n, MPI_FLOAT, MPI_SUM, all);
              }
            },
            &stamp);
      }
    };
    for (int turn = -2; turn < kTurns; ++turn) {
      const double mine = seconds(ours);
      const double mpi = seconds(theirs);
      if (turn < 0) continue;
      times.ours.push_back(mine * 1e6);
      times.theirs.push_back(mpi * 1e6);
      times.ratios.push_back(mpi / mine);
    }
  });
  return times;
}

void compare(launch::Session& session, std::int64_t most_bytes) {
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  const bool prints = session.placement().rank == 0;
  if (prints) fmt::print("{:<16}{:>12}{:>12}{:>12}{:>8}\n", "", "bytes/rank", "ours us", "MPI us", "ratio");
  for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter}) {
    for (std::int64_t bytes = 4096; bytes <= most_bytes; bytes *= 4) {
      const Times times = measure(session, all, {kind, bytes});
      if (prints) {
        fmt::print("{:<16}{:>12}{:>12.1f}{:>12.1f}{:>8.2f}\n", to_string(kind), bytes, bench::median(times.ours),
                   bench::median(times.theirs), bench::median(times.ratios));
      }
    }
  }
  MPI_Comm_free(&all);
}

}  // namespace
}  // namespace fsdpbench::backend

int main(int argc, char** argv) {
  const std::int64_t most_bytes = (argc > 1 ? std::atoll(argv[1]) : 64 << 10) << 10;
  return fsdpbench::bench::in_job(
      argv[0], [&](fsdpbench::launch::Session& session) { fsdpbench::backend::compare(session, most_bytes); });
}
