#include "backend/cuda/nccl/nccl_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/nccl/nccl_comm.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

NcclRank::NcclRank(LaneAccess& lanes, int rank, const NcclOptions& options, NcclDeadlines deadlines)
    : lanes_(lanes), rank_(rank), options_(options), deadlines_(std::move(deadlines)) {
  // Before any collective is under way: to allocate or free beside one can hang.
  cuda::check(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  cuda::check(cudaMalloc(&own_memory_, 4), "cudaMalloc of 4 bytes for barriers");
  cuda::check(cudaMemsetAsync(own_memory_, 0, 4, own_stream_), "cudaMemsetAsync");
  if (options_.blocking) {
    call_guard_ = std::make_unique<CallGuard>(lanes_.abort(), CallDeadlines{deadlines_.op, deadlines_.abort},
                                              fmt::format("rank {}", rank_), deadlines_.give_up);
  }
  lanes_.watch([this] { check(); });
}

NcclRank::~NcclRank() {
  lanes_.watch({});
  if (!comms_.empty()) abort_all();
  comms_.clear();
  cudaFree(own_memory_);
  cudaStreamDestroy(own_stream_);
}

NcclComm& NcclRank::init(int ranks, const ncclUniqueId& id) {
  comms_.push_back(std::make_unique<NcclComm>(*this, "world"));
  comms_.back()->init(ranks, id, rank_);
  return *comms_.back();
}

NcclComm& NcclRank::split(NcclComm& parent, int color, int key) {
  comms_.push_back(std::make_unique<NcclComm>(*this, fmt::format("{} split {}", parent.name(), color)));
  comms_.back()->split_from(parent, color, key);
  return *comms_.back();
}

void NcclRank::close(NcclComm& comm) noexcept {
  try {
    stop_if_aborted();
    comm.finish();
    std::erase_if(comms_, [&](const auto& candidate) { return candidate.get() == &comm; });
  } catch (const std::exception&) {
    // The run has failed, and its first failure is known: `comm` is aborted, or will be with the others.
  }
}

void NcclRank::check() {
  stop_if_aborted();
  for (const auto& comm : comms_) comm->check();
}

void NcclRank::stop_if_aborted() {
  if (!lanes_.abort().is_set()) return;
  abort_all();
  lanes_.abort().throw_if_set();
}

void NcclRank::fail(const std::string& what) {
  const auto failure = std::make_exception_ptr(BackendError(fmt::format("rank {}: {}", rank_, what)));
  lanes_.abort().set(failure);  // first: the others need not wait for what may hang
  abort_all();
  if (lanes_.abort().first() != failure) lanes_.abort().throw_if_set();
  std::rethrow_exception(failure);
}

void NcclRank::wait(const std::function<bool()>& done) {
  for (int polls = 0; !done(); ++polls) {
    check();
    if (polls < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void NcclRank::abort_all() noexcept {
  if (std::exchange(aborted_, true)) return;
  lanes_.destroy_graphs();
  const AbortGuard guard(deadlines_.abort,
                         fmt::format("rank {}: ncclCommAbort has not returned after {} s{}; this process ends now.",
                                     rank_, std::chrono::duration<double>(deadlines_.abort).count(), unfinished()),
                         deadlines_.give_up);
  // In the order they were made in: the end of a parent's split, which may be under way, comes before its child's.
  for (const auto& comm : comms_) comm->abort();
}

std::string NcclRank::unfinished() const {
  std::string text;
  for (const auto& comm : comms_) {
    if (const std::string op = comm->oldest_op(); !op.empty()) text += (text.empty() ? "; not finished: " : ", ") + op;
  }
  return text;
}

}  // namespace fsdpbench::backend::cuda
