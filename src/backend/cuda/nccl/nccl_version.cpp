#include "backend/cuda/nccl/nccl_version.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace fsdpbench::backend::cuda {

std::string nccl_words(ncclResult_t result, ncclComm_t comm) {
  std::string words = ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  if (last == nullptr || *last == '\0') return words;
  words += ": ";
  words += last;
  while (!words.empty() && (words.back() == '\n' || words.back() == ' ')) words.pop_back();
  return words;
}

}  // namespace fsdpbench::backend::cuda

// Without windows in the library the plugin must load nevertheless.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
extern "C" {
__attribute__((weak)) decltype(ncclCommWindowRegister) ncclCommWindowRegister;
__attribute__((weak)) decltype(ncclCommWindowDeregister) ncclCommWindowDeregister;
}
#endif

namespace fsdpbench::backend::cuda {
namespace {

constexpr int kOldest = NCCL_VERSION(2, 19, 0);  // non-blocking, split, registration, ncclMemAlloc
static_assert(NCCL_VERSION_CODE >= kOldest, "fsdpbench needs the header of NCCL 2.19 or newer");

std::string text(int version) { return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100); }

void require(const std::string& wish, int needed) {
  const int runtime = nccl_runtime_version();
  if (std::min(runtime, NCCL_VERSION_CODE) >= needed) return;
  throw ConfigError(fmt::format("{} needs NCCL {}.{} or newer; this process runs with {} and was built with {}.", wish,
                                needed / 10000, needed / 100 % 100, text(runtime), text(NCCL_VERSION_CODE)));
}

}  // namespace

int nccl_runtime_version() {
  int version = 0;
  const ncclResult_t result = ncclGetVersion(&version);
  if (result != ncclSuccess) throw BackendError("ncclGetVersion: " + nccl_words(result, nullptr));
  return version;
}

std::string nccl_version() {
  return fmt::format("{} (built with {})", text(nccl_runtime_version()), text(NCCL_VERSION_CODE));
}

void require_nccl(const NcclOptions& options) {
  require("fsdpbench", kOldest);
  if (options.registration == NcclOptions::Register::window) {
    require("nccl.register_buffers = \"window\"", NCCL_VERSION(2, 27, 0));
  }
  if (options.cta_policy == NcclOptions::CtaPolicy::efficiency) {
    require("nccl.cta_policy = \"efficiency\"", NCCL_VERSION(2, 27, 0));
  }
  if (options.cta_policy == NcclOptions::CtaPolicy::zero) {
    require("nccl.cta_policy = \"zero\"", NCCL_VERSION(2, 28, 0));
  }
}

ncclConfig_t nccl_config(const NcclOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = options.blocking ? 1 : 0;
  if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  if (options.cta_policy == NcclOptions::CtaPolicy::efficiency) config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (options.cta_policy == NcclOptions::CtaPolicy::zero) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
  return config;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
ncclResult_t register_window(ncclComm_t comm, void* memory, std::size_t bytes, NcclWindow* window) {
  return ncclCommWindowRegister(comm, memory, bytes, reinterpret_cast<ncclWindow_t*>(window), NCCL_WIN_COLL_SYMMETRIC);
}
ncclResult_t deregister_window(ncclComm_t comm, NcclWindow window) {
  return ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(window));
}
#else
ncclResult_t register_window(ncclComm_t, void*, std::size_t, NcclWindow*) { return ncclInvalidUsage; }
ncclResult_t deregister_window(ncclComm_t, NcclWindow) { return ncclInvalidUsage; }
#endif

}  // namespace fsdpbench::backend::cuda
