#include "backend/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/gpu_team.h"
#include "backend/cuda/id_exchange.h"
#include "backend/cuda/kernels/cuda_kernels.h"
#include "hardware/host_topology.h"
#include "hardware/nvml.h"
#include "launch/placement.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cuda {
namespace {

/// NVLinks, switches and network cards between the GPU at `place` and the others of its host; empty: not known.
std::string bus_paths(const std::string& place) {
  const std::shared_ptr<const hardware::HostTopology> host = hardware::HostTopology::of_this_host();
  std::string why_not;
  return host == nullptr ? "" : host->paths_text(place, hardware::Nvml::open(why_not));
}

/// This rank's share of the host's processors, or as many as its launcher has bound it to, but for the thread that
/// issues.
int host_threads(const BackendOptions& options) {
  const int ranks = options.session == nullptr ? options.ranks : options.session->placement().local_ranks;
  const int bound = static_cast<int>(std::thread::hardware_concurrency());
  const int share = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) / ranks;
  return std::max(1, std::min(bound, share) - 1);
}

/// `done` is called when all has gone well, before the communicator ends, which is collective.
void run_rank(GpuTeam& team, const MakeHostKernels& host_kernels, IdExchange& ids, int rank,
              const std::function<void(RankContext&)>& body, const std::function<void()>& done) {
  // Both outlive the handler: a communicator ends otherwise in a run that has failed.
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Communicator> communicator;
  try {
    prctl(PR_SET_TIMERSLACK, 1);  // the naps of waits are short
    check(cudaSetDevice(team.gpu_of(rank)), "choosing the GPU");
    const CudaDevice::HostCompute host{host_kernels, host_threads(team.options())};
    device = std::make_unique<CudaDevice>(team.abort(), rank, team.options(), host);
    ids.barrier(rank);
    communicator =
        make_world_communicator(*device, ids, rank, team.options().ranks, team.options().get<CudaOptions>().nccl);
    device->note_memory("NCCL, at its start");
    device->add_facts([&communicator, &team, gpu = team.gpu_of(rank)] {
      Facts all = gpu_facts(gpu);
      if (const std::string paths = bus_paths(gpu_place(gpu)); !paths.empty()) all.emplace_back("topology", paths);
      all.emplace_back("ranks", team.describe());
      all.emplace_back("libraries", math_libraries());
      all.emplace_back("sums", describe(team.options().get<CudaOptions>().arithmetic));
      for (auto& fact : communicator_facts(*communicator)) all.push_back(std::move(fact));
      return all;
    });
    RankContext context{rank, *device, *communicator};
    body(context);
    device->synchronize();
    done();
  } catch (...) {
    team.fail(std::current_exception());
    throw;
  }
}

void run_threads(GpuTeam& team, const MakeHostKernels& host_kernels, const std::function<void(RankContext&)>& body) {
  ThreadExchange ids(team.abort(), team.options().ranks);
  launch::run_ranks(team.options().ranks,
                    [&](int rank) { run_rank(team, host_kernels, ids, rank, body, [&] { ids.ended(rank); }); });
}

void run_process(GpuTeam& team, const MakeHostKernels& host_kernels, const std::function<void(RankContext&)>& body) {
  SessionExchange ids(team.options().session->control());
  const int rank = team.options().session->placement().rank;
  // A failure of another rank is this run's, too.
  run_rank(team, host_kernels, ids, rank, body, [&] { ids.barrier(rank); });
}

}  // namespace

CudaBackend::CudaBackend(MakeHostKernels host_kernels) : host_kernels_(std::move(host_kernels)) {
  if (must_load_kernels_early(launch::process_environment(), "/dev")) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  gpus_ = gpu_count();
}

Facts CudaBackend::facts() const {
  Facts all = gpu_facts(0);
  all.emplace_back("GPUs", std::to_string(gpus_));
  if (!ranks_.empty()) all.emplace_back("ranks", ranks_);
  return all;
}

void CudaBackend::run(const BackendOptions& options, const std::function<void(RankContext&)>& body) {
  GpuTeam team(options, gpus_);
  ranks_ = team.describe();
  try {
    options.session == nullptr ? run_threads(team, host_kernels_, body) : run_process(team, host_kernels_, body);
  } catch (...) {
    if (const std::exception_ptr first = team.abort().first()) std::rethrow_exception(first);
    throw;
  }
}

}  // namespace fsdpbench::backend::cuda
