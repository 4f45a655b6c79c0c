#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "backend/cuda/cupti/cupti_generation.h"
#include "base/plugin.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr const char* kOfThisCuda = kBuiltFor.major() == 12 ? "libcupti.so.12" : "libcupti.so.13";
/// The last one is where CMake found it.
constexpr std::array<const char*, 3> kLibraries{kOfThisCuda, "libcupti.so", FSDPBENCH_CUPTI_LIBRARY};

template <typename Function>
bool find(void* library, const char* name, Function*& function, std::string* why_not) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) *why_not = fmt::format("CUPTI cannot be used: its library has no function {}.", name);
  return function != nullptr;
}

}  // namespace

std::optional<CuptiApi> load_cupti(std::string* why_not) {
  void* library = nullptr;
  std::string problem;
  for (const char* name : kLibraries) {
    // Never closed: CUPTI keeps threads and calls back until the process ends.
    library = open_library(name, library_folders(program_folder()), problem);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    *why_not = fmt::format("CUPTI cannot be loaded: {}.", problem);
    return std::nullopt;
  }
  CuptiApi api;
  const bool all = find(library, "cuptiGetVersion", api.get_version, why_not) &&
                   find(library, "cuptiGetErrorMessage", api.get_error_message, why_not) &&
                   find(library, "cuptiSubscribe", api.subscribe, why_not) &&
                   find(library, "cuptiUnsubscribe", api.unsubscribe, why_not) &&
                   find(library, "cuptiSetThreadIdType", api.set_thread_id_type, why_not) &&
                   find(library, "cuptiActivitySetAttribute", api.set_attribute, why_not) &&
                   find(library, "cuptiActivityRegisterTimestampCallback", api.register_timestamp_callback, why_not) &&
                   find(library, "cuptiActivityRegisterCallbacks", api.register_callbacks, why_not) &&
                   find(library, "cuptiActivityEnable", api.enable, why_not) &&
                   find(library, "cuptiActivityDisable", api.disable, why_not) &&
                   find(library, "cuptiActivityEnableRuntimeApi", api.enable_runtime_api, why_not) &&
                   find(library, "cuptiActivityEnableDriverApi", api.enable_driver_api, why_not) &&
                   find(library, "cuptiActivityPushExternalCorrelationId", api.push_external_id, why_not) &&
                   find(library, "cuptiActivityPopExternalCorrelationId", api.pop_external_id, why_not) &&
                   find(library, "cuptiActivityFlushAll", api.flush_all, why_not) &&
                   find(library, "cuptiActivityGetNextRecord", api.get_next_record, why_not) &&
                   find(library, "cuptiActivityGetNumDroppedRecords", api.get_dropped, why_not) &&
                   find(library, "cuptiGetStreamIdEx", api.get_stream_id, why_not);
  if (!all) return std::nullopt;
  api.current_device = [](int* device) { return cudaGetDevice(device); };
  api.mark = [] { return cudaPeekAtLastError(); };
  return api;
}

}  // namespace fsdpbench::backend::cuda
