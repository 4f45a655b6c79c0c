#include "backend/cuda/memory_log.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "backend/cuda/check.h"
#include "base/bytes.h"

namespace fsdpbench::backend::cuda {
namespace {

struct InUse {
  std::int64_t used = 0;
  std::int64_t total = 0;
};

InUse ask_device() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return {static_cast<std::int64_t>(total - free), static_cast<std::int64_t>(total)};
}

}  // namespace

MemoryLog::MemoryLog() { note("CUDA context, and other programs on this GPU"); }

void MemoryLog::note(const std::string& what) {
  const std::int64_t used = ask_device().used;
  const std::int64_t taken = used - used_;
  used_ = used;
  notes_.emplace_back("GPU memory: " + what, taken < 0 ? "-" + format_bytes(-taken) : format_bytes(taken));
}

Facts MemoryLog::facts() const {
  Facts all = notes_;
  const InUse now = ask_device();
  all.emplace_back("GPU memory: in use on the whole device",
                   fmt::format("{} of {}; nothing is given back during a run, so this is the peak",
                               format_bytes(now.used), format_bytes(now.total)));
  return all;
}

}  // namespace fsdpbench::backend::cuda
