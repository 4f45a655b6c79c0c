// What NCCL tells the library that NCCL_PROFILER_PLUGIN names: as profiler.cc, for one host without a network.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "backend/cuda/fake/nccl/fake_comm.h"
#include "backend/cuda/nccl/profiler_interface.h"

namespace fake::nccl {
namespace {

using fsdpbench::backend::cuda::Profiler;
using fsdpbench::backend::cuda::ProfilerEvent;

const Profiler* load() {
  const char* const name = std::getenv("NCCL_PROFILER_PLUGIN");
  if (name == nullptr || std::strcmp(name, "none") == 0) return nullptr;
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : static_cast<const Profiler*>(dlsym(library, "ncclProfiler_v5"));
}

const char* name_of(ncclDataType_t type) {
  return type == ncclBfloat16 ? "ncclBfloat16" : type == ncclFloat64 ? "ncclFloat64" : "ncclFloat32";
}

}  // namespace

void tell_profiler(const char* function, const Call& call, ncclComm_t comm) {
  static const Profiler* const kProfiler = load();
  if (kProfiler == nullptr) return;
  static int events = 0;
  if (comm->profiler == nullptr) {
    kProfiler->init(&comm->profiler, 1, &events, nullptr, 1, comm->group->size, comm->rank, nullptr);
  }
  const auto tell = [&](ProfilerEvent& event) {
    void* handle = &event;  // whatever was there before
    kProfiler->start(comm->profiler, &handle, &event);
    if (handle != nullptr) kProfiler->stop(handle);
  };
  ProfilerEvent unasked{};
  unasked.type = 1U << 8U;  // NCCL starts the call of its interface, too, asked or not
  tell(unasked);
  if ((static_cast<unsigned>(events) & fsdpbench::backend::cuda::kProfileCollective) == 0) return;
  ProfilerEvent event{};
  event.type = fsdpbench::backend::cuda::kProfileCollective;
  event.rank = comm->rank;
  event.collective.number = static_cast<std::uint64_t>(comm->issued);
  event.collective.function = function;
  event.collective.count = call.count;
  event.collective.dtype = name_of(call.type);
  event.collective.channels = 2;
  event.collective.warps = 16;
  event.collective.algorithm = "RING";
  event.collective.protocol = "LL";
  tell(event);
}

}  // namespace fake::nccl
