#include "backend/cuda/fake/cudart/faults.h"

#include <map>
#include <mutex>
#include <string>

#include "backend/cuda/fake/cudart/device.h"
#include "backend/cuda/fake/fake_stream.h"

namespace fake {
namespace {

struct Injected {
  cudaError_t error = cudaSuccess;
  int calls_left = 0;
};
struct Faults {
  std::mutex mutex;
  std::map<std::string, Injected> by_name;
  std::map<int, cudaError_t> broken;
};
Faults& faults() {
  static Faults& all = *new Faults;  // threads of streams may outlive main
  return all;
}
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t fault_on(const char* name, int device) {
  if (in_host_function()) return failed(cudaErrorNotPermitted);
  Faults& all = faults();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.by_name.find(name); found != all.by_name.end() && --found->second.calls_left == 0) {
    const cudaError_t error = found->second.error;
    all.by_name.erase(found);
    return failed(error);
  }
  if (const auto found = all.broken.find(device); found != all.broken.end()) return failed(found->second);
  return cudaSuccess;
}

cudaError_t fault(const char* name) { return fault_on(name, current_device()); }

void fail_call(const char* name, cudaError_t error, int nth) {
  const std::lock_guard lock(faults().mutex);
  faults().by_name[name] = {error, nth};
}

void break_device(int device, cudaError_t error) {
  const std::lock_guard lock(faults().mutex);
  faults().broken[device] = error;
}

void reset() {
  {
    const std::lock_guard lock(faults().mutex);
    faults().by_name.clear();
    faults().broken.clear();
  }
  observe({});
  forget_context();
  last_error = cudaSuccess;
}

}  // namespace fake

cudaError_t cudaGetLastError() {
  const cudaError_t error = fake::last_error;
  fake::last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return fake::last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorNotPermitted: return "cudaErrorNotPermitted";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorNotPermitted: return "operation not permitted";
    default: return "unknown error";
  }
}
