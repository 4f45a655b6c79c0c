#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <numeric>
#include <thread>
#include <vector>

#include "backend/cpu/communicator.h"
#include "backend/cpu/device.h"
#include "backend/cpu/process_group.h"
#include "backend/cpu/thread_group.h"
#include "backend/cpu/world.h"
#include "base/bytes.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {
namespace {

void run_rank(World& world, const std::shared_ptr<Group>& group, int rank,
              const std::function<void(RankContext&)>& body) {
  std::unique_ptr<CpuDevice> device;  // outlives the handler: its lanes may end only after the abort is set
  try {
    device = std::make_unique<CpuDevice>(world, rank);
    CpuCommunicator communicator(*device, group, rank);
    RankContext context{rank, *device, communicator};
    body(context);
    device->synchronize();
    world.rank_ended(rank);
  } catch (...) {
    world.fail(std::current_exception());
    throw;
  }
}

void run_threads(World& world, const std::function<void(RankContext&)>& body) {
  const int count = world.options().ranks;
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::shared_ptr<Group> group = ThreadGroup::make(world, std::move(ranks));
  launch::run_ranks(count, [&](int rank) { run_rank(world, group, rank, body); });
}

void run_process(World& world, const std::function<void(RankContext&)>& body) {
  try {
    run_rank(world, ProcessGroup::make(world), world.options().session->placement().rank, body);
    world.wait_for_others();
  } catch (...) {
    world.fail(std::current_exception());
    throw;
  }
}

}  // namespace

Facts CpuBackend::facts() const {
  return {{"ranks", ranks_},
          {"processors", std::to_string(std::thread::hardware_concurrency())},
          {"memory", format_bytes(memory_per_rank(1))},
          {"communication lanes of emulated links", describe_prompt_scheduling()}};
}

void CpuBackend::run(const BackendOptions& options, const std::function<void(RankContext&)>& body) {
  World world(options, kernels_);
  launch::Session* const session = options.session;
  ranks_ = session ? fmt::format("one per process, over {}", session->transport()) : "threads of one process";
  try {
    session ? run_process(world, body) : run_threads(world, body);
  } catch (...) {
    if (const std::exception_ptr first = world.abort().first()) std::rethrow_exception(first);
    throw;
  }
}

}  // namespace fsdpbench::backend::cpu
