// The profiler that NCCL loads: this plugin once more, by its path.
#include <unistd.h>

#include <cstdint>

#include "backend/cuda/nccl/collective_profile.h"
#include "backend/cuda/nccl/profiler_interface.h"
#include "base/clock.h"

namespace fsdpbench::backend::cuda {
namespace {

using Group = CollectiveProfile::Group;

/// A handle tells what it is of in its lowest bit: transfers have it, channels of a collective do not.
constexpr std::uintptr_t kTransfer = 1;

void* marked(void* transfer) { return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(transfer) | kTransfer); }
void* transfer_of(void* handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  return (number & kTransfer) != 0 ? reinterpret_cast<void*>(number & ~kTransfer) : nullptr;
}

ncclResult_t init(void** context, std::uint64_t, int* events, const char*, int, int ranks, int,
                  void (*)(int, unsigned long, const char*, int, const char*, ...)) {
  *events = kProfileCollective | kProfileProxyOp | kProfileProxyStep;
  *context = new Group{ranks};
  return ncclSuccess;
}

/// NCCL also starts events that were not asked for: their handles are null.
ncclResult_t start(void* context, void** handle, ProfilerEvent* event) {
  *handle = nullptr;
  if (context == nullptr) return ncclSuccess;
  CollectiveProfile& profile = collective_profile();
  switch (event->type) {
    case kProfileCollective:
      *handle = profile.collective(*static_cast<Group*>(context), event->collective.function, event->collective.count,
                                   event->collective.dtype, event->collective.channels, event->collective.algorithm,
                                   event->collective.protocol);
      break;
    case kProfileProxyOp:  // of another process its parent is no address of this one
      if (event->proxy_op.process == getpid()) *handle = event->parent;
      break;
    case kProfileProxyStep:
      if (event->parent != nullptr) {
        void* const transfer = profile.begin_transfer(static_cast<CollectiveProfile::Kind*>(event->parent));
        if (transfer != nullptr) *handle = marked(transfer);
      }
      break;
    default: break;
  }
  return ncclSuccess;
}

ncclResult_t stop(void* handle) {
  if (void* const transfer = transfer_of(handle)) collective_profile().end_transfer(transfer, now_ns());
  return ncclSuccess;
}

ncclResult_t state(void* handle, int state, void*) {
  if (void* const transfer = transfer_of(handle)) CollectiveProfile::enter(transfer, state, now_ns());
  return ncclSuccess;
}

ncclResult_t finalize(void* context) {
  delete static_cast<Group*>(context);
  return ncclSuccess;
}

constexpr Profiler kProfiler{"fsdpbench", init, start, stop, state, finalize};

}  // namespace
}  // namespace fsdpbench::backend::cuda

extern "C" {
const fsdpbench::backend::cuda::Profiler ncclProfiler_v5 = fsdpbench::backend::cuda::kProfiler;
const fsdpbench::backend::cuda::Profiler ncclProfiler_v6 = fsdpbench::backend::cuda::kProfiler;
}
