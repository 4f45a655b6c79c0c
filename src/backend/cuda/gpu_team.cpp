#include "backend/cuda/gpu_team.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "base/error.h"
#include "launch/addresses.h"
#include "launch/control_channel.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cuda {
namespace {

void check_options(const BackendOptions& options) {
  if (options.ranks < 1) throw BackendError(fmt::format("{} ranks: at least one is needed", options.ranks));
  if (std::holds_alternative<CpuOptions>(options.own)) {
    throw ConfigError(
        "The cuda backend takes the time that the hardware takes: emulated links and compute, a slow link "
        "and a slow rank need device.backend = \"cpu\".");
  }
  if (options.session != nullptr && options.ranks != options.session->placement().ranks) {
    throw BackendError(fmt::format("{} ranks are asked for, but the job has {} processes, one rank each", options.ranks,
                                   options.session->placement().ranks));
  }
}

/// NCCL refuses two ranks on one GPU of one host. Up to 2.29 it believes a made-up host; from 2.30 it can be told.
void let_ranks_share(int rank) {
  setenv("NCCL_HOSTID", fmt::format("fsdpbench-rank-{}", rank).c_str(), 0);
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
}

/// True if two ranks of the job use one GPU. Launchers may show each process GPUs of its own under the same number, so
/// it is hosts and places on the bus that are compared. Collective.
bool ranks_share(launch::ControlChannel& control, int gpu) {
  const std::vector<std::string> all =
      launch::gather(control, "gpu", launch::host_name() + launch::clock_identity() + gpu_place(gpu));
  const std::set<std::string> different(all.begin(), all.end());
  return launch::broadcast(control, "gpu", different.size() < all.size() ? "shared" : "") == "shared";
}

}  // namespace

GpuTeam::GpuTeam(const BackendOptions& options, int gpus, Patience patience)
    : options_(options), gpus_(gpus), patience_(std::move(patience)) {
  check_options(options);
  if (options.session == nullptr) {
    if (options.ranks > gpus) {
      throw ConfigError(
          fmt::format("{} ranks in one process need {} GPUs, and this process sees {}: choose at most {} with "
                      "--ranks, or start one process a rank (mpirun -n {} fsdpbench ...), which may share "
                      "a GPU where nothing is to be measured.",
                      options.ranks, options.ranks, gpus, gpus, options.ranks));
    }
    return;
  }
  launch::Session& session = *options.session;
  shared_ = ranks_share(session.control(), gpu_of(session.placement().rank));
  if (shared_) let_ranks_share(session.placement().rank);
  session.control().on_failure([this](const launch::JobFailure& failure) {
    abort_.set(std::make_exception_ptr(BackendError(failure.message)));
  });
}

GpuTeam::~GpuTeam() {
  if (options_.session != nullptr) options_.session->control().on_failure({});
}

int GpuTeam::gpu_of(int rank) const {
  return options_.session == nullptr ? rank : options_.session->placement().local_rank % gpus_;
}

std::string GpuTeam::describe() const {
  if (options_.session == nullptr) {
    if (options_.ranks == 1) return "one";
    // NVIDIA/nccl#1605
    return "threads of one process, a GPU each; one process a GPU is safer: NCCL has crashed where threads split "
           "communicators";
  }
  if (shared_) return "one process each; ranks share a GPU: functional only, never rated";
  return "one process each, a GPU each";
}

void GpuTeam::announce(const std::string& failure, ExitCode code) {
  if (options_.session != nullptr) {
    options_.session->control().fail(failure, code);
    return;
  }
  std::call_once(failed_, [&] {
    guard_ = std::make_unique<AbortGuard>(
        patience_.after_failure,
        fmt::format("{}; {:g} s later ranks of this process are still stuck in CUDA or NCCL: it ends now.", failure,
                    std::chrono::duration<double>(patience_.after_failure).count()),
        patience_.give_up);
  });
}

void GpuTeam::fail(const std::exception_ptr& failure) noexcept {
  abort_.set(failure);
  if (options_.session != nullptr && options_.session->control().failure()) return;
  try {
    std::rethrow_exception(failure);
  } catch (const launch::Stopped&) {  // because of somebody else, who has told the others
  } catch (const std::exception& e) {
    announce(e.what(), launch::job_code(failure));
  } catch (...) {
    announce("an unknown exception", ExitCode::rank_failed);
  }
}

}  // namespace fsdpbench::backend::cuda
