#include "backend/cuda/fake/cudart/device.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/cuda/fake/cudart/faults.h"
#include "backend/cuda/fake/fake_stream.h"

namespace fake {
namespace {
thread_local int chosen_device = 0;
std::atomic<bool> context{false};
bool exists(int number) { return number >= 0 && number < device_count(); }
}  // namespace

int current_device() { return chosen_device; }

bool has_context() { return context; }
void make_context() { context = true; }
void forget_context() { context = false; }

int device_count() {
  const char* const count = std::getenv("FSDPBENCH_FAKE_GPUS");
  return count == nullptr ? 8 : std::atoi(count);
}

}  // namespace fake

using namespace fake;

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = fault(__func__)) return error;
  if (device_count() < 0) return failed(cudaErrorInsufficientDriver);
  if (device_count() == 0) return failed(cudaErrorNoDevice);
  *count = device_count();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int number) {
  if (const cudaError_t error = fault_on(__func__, number)) return error;
  if (!exists(number)) return failed(cudaErrorInvalidDevice);
  fake::chosen_device = number;
  make_context();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* number) {
  *number = fake::chosen_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  if (!exists(number)) return failed(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Imagined GPU");
  for (std::size_t i = 0; i < sizeof properties->uuid.bytes; ++i)
    properties->uuid.bytes[i] = static_cast<char>(0xa0 + i);
  properties->uuid.bytes[15] = static_cast<char>(number);
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->totalGlobalMem = std::size_t{8} << 30;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  if (!exists(number)) return failed(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = 4; return cudaSuccess;
    case cudaDevAttrWarpSize: *value = 32; return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; return cudaSuccess;
    case cudaDevAttrClockRate:
      *value = 1'000'000;  // kHz
      return cudaSuccess;
    case cudaDevAttrMemoryClockRate: *value = 2'000'000; return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; return cudaSuccess;
    default: *value = 0; return cudaSuccess;
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int number) {
  if (!exists(number)) return failed(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(number + 1) & 0xFFU);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int number, int peer) {
  if (!exists(number) || !exists(peer)) return failed(cudaErrorInvalidDevice);
  *can = number != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = device_count() < 0 ? 0 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
