// PyTorch's own CUDA caching allocator (libc10_cuda.so) without a GPU: this program answers the calls of CUDA's runtime
// that it makes, and with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True those of the driver. Segments and pages are
// addresses and nothing else, and an event has passed when the clock of the requests says so. allocator.py builds and
// runs it: requests on standard input, one a line, and on standard output the same lines, each followed by what the
// allocator then counts.
//
//   capacity BYTES           what the driver has for segments; first line; 0: no limit
//   + ID STREAM BYTES NOW    allocate on a stream (0, 1, ...) at a time
//   - ID                     free
//   ~ ID STREAM PASSED       record_stream, then free; the stream's event passes at that time
//
// Counted: allocated, reserved, peak allocated, peak reserved, retries. A request that finds no memory is the last.
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*)(DeviceIndex));  // exported, and in no header
}

namespace {

std::int64_t capacity = 0, given = 0;
std::uintptr_t next_address = std::uintptr_t{1} << 40;
std::map<void*, std::int64_t> segments;
std::int64_t now = 0, passes = 0;  // the clock, and when the event that is recorded next passes
struct Event {
  std::int64_t passes = 0;
};

cudaStream_t stream_of(int number) { return reinterpret_cast<cudaStream_t>((std::uintptr_t{1} + number) << 12); }

}  // namespace

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return *stream = stream_of(100), cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = std::size_t{1} << 40;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{1} << 40;
  *free = *total - static_cast<std::size_t>(given);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (capacity > 0 && given + static_cast<std::int64_t>(bytes) > capacity) return cudaErrorMemoryAllocation;
  *memory = reinterpret_cast<void*>(next_address);
  next_address += bytes;
  segments[*memory] = static_cast<std::int64_t>(bytes);
  given += static_cast<std::int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  given -= segments[memory];
  segments.erase(memory);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = reinterpret_cast<cudaEvent_t>(new Event), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete reinterpret_cast<Event*>(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return reinterpret_cast<Event*>(event)->passes = passes, cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return reinterpret_cast<Event*>(event)->passes <= now ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
}

// The driver's calls, which the allocator finds by name: pages are created, mapped to reserved addresses, and released.
namespace {

CUresult reserve_addresses(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  *at = next_address;
  next_address += bytes;
  return CUDA_SUCCESS;
}
std::map<CUmemGenericAllocationHandle, std::int64_t> pages;
CUresult create_page(CUmemGenericAllocationHandle* page, std::size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
  static CUmemGenericAllocationHandle last = 0;
  if (capacity > 0 && given + static_cast<std::int64_t>(bytes) > capacity) return CUDA_ERROR_OUT_OF_MEMORY;
  pages[*page = ++last] = static_cast<std::int64_t>(bytes);
  given += static_cast<std::int64_t>(bytes);
  return CUDA_SUCCESS;
}
CUresult release_page(CUmemGenericAllocationHandle page) {
  given -= pages[page];
  pages.erase(page);
  return CUDA_SUCCESS;
}
CUresult no_such_feature(int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; }
CUresult succeed() { return CUDA_SUCCESS; }

}  // namespace

extern "C" cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDA_VERSION, cudaSuccess; }
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found) {
  const std::string_view wanted(name);
  *function = wanted == "cuMemAddressReserve"    ? reinterpret_cast<void*>(&reserve_addresses)
              : wanted == "cuMemCreate"          ? reinterpret_cast<void*>(&create_page)
              : wanted == "cuMemRelease"         ? reinterpret_cast<void*>(&release_page)
              : wanted == "cuDeviceGetAttribute" ? reinterpret_cast<void*>(&no_such_feature)
                                                 : reinterpret_cast<void*>(&succeed);
  if (found != nullptr) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

int main() {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  // Pages that NVLink fabrics could share would be asked of NVML.
  allocator::CUDAAllocatorConfig::set_expandable_segments_handle_type(
      c10::cuda::CUDACachingAllocator::Expandable_Segments_Handle_Type::POSIX_FD);
  allocator::init(1);
  std::map<int, void*> blocks;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    int id = 0, stream = 0;
    if (verb == "capacity") {
      words >> capacity;
      std::cout << line << '\n';
      continue;
    }
    words >> id;
    if (verb == "+") {
      std::int64_t bytes = 0;
      words >> stream >> bytes >> now;
      try {
        blocks[id] = allocator::raw_alloc_with_stream(static_cast<std::size_t>(bytes), stream_of(stream));
      } catch (const c10::OutOfMemoryError&) {
        std::cout << line << " = out of memory\n";
        break;
      }
    } else if (verb == "~") {
      words >> stream >> passes;
      // The view frees nothing: recordStream only wants to see that the memory is the allocator's.
      c10::DataPtr view(blocks[id], blocks[id], allocator::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
      allocator::recordStream(view, c10::cuda::getStreamFromExternal(stream_of(stream), 0));
      view.release_context();
      allocator::raw_delete(blocks[id]);
    } else {
      allocator::raw_delete(blocks[id]);
    }
    const auto statistics = allocator::getDeviceStats(0);
    const auto& allocated = statistics.allocated_bytes[0];
    const auto& reserved = statistics.reserved_bytes[0];
    std::cout << line << " = " << allocated.current << ' ' << reserved.current << ' ' << allocated.peak << ' '
              << reserved.peak << ' ' << statistics.num_alloc_retries << '\n';
  }
  std::cout.flush();
  std::_Exit(0);
}
