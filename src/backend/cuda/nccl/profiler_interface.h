#pragma once

#include <nccl.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

// Interface of NCCL and a profiler in one process: versions 5 (NCCL 2.28) and 6 (2.30) of its profiler interface,
// as far as it is used. NCCL looks for the symbols ncclProfiler_v6, then ncclProfiler_v5, in the library that
// NCCL_PROFILER_PLUGIN names. Both have these calls; version 6 adds events of copy engines, which are not asked for, so
// a description is never read beyond what both have.
namespace fsdpbench::backend::cuda {

/// Kinds of events, as bits.
enum : std::uint64_t {
  kProfileCollective = 1U << 1U,  ///< NCCL has planned a collective
  kProfileProxyOp = 1U << 3U,     ///< a network thread works on a collective's channel
  kProfileProxyStep = 1U << 4U,   ///< one transfer of it
};

/// States of a network transfer, named by what it waits for, in their order; the numbers are NCCL's.
enum class ProxyState : int {
  send_gpu_wait = 8,    ///< the GPU's data
  send_peer_wait = 20,  ///< the peer's permission
  send_wait = 9,        ///< the network
  recv_wait = 10,       ///< the peer's data
  recv_flush_wait = 11,
  recv_gpu_wait = 12,
};

struct ProfilerEvent {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    struct {
      std::uint64_t number;
      const char* function;  ///< "AllGather"
      const void* input;
      void* output;
      std::size_t count;
      int root;
      const char* dtype;  ///< "ncclFloat32"
      std::uint8_t channels;
      std::uint8_t warps;
      const char* algorithm;  ///< "RING"
      const char* protocol;   ///< "SIMPLE"
      void* group;
    } collective;
    struct {
      pid_t process;  ///< whose collective it is: with PXN that of another one
      std::uint8_t channel;
      int peer;
      int steps;
      int chunk_bytes;
      int is_send;
    } proxy_op;
  };
};

struct Profiler {
  const char* name;
  ncclResult_t (*init)(void** context, std::uint64_t communicator, int* events, const char* name, int nodes, int ranks,
                       int rank, void (*log)(int, unsigned long, const char*, int, const char*, ...));
  ncclResult_t (*start)(void* context, void** handle, ProfilerEvent* event);
  ncclResult_t (*stop)(void* handle);
  ncclResult_t (*state)(void* handle, int state, void* arguments);
  ncclResult_t (*finalize)(void* context);
};

}  // namespace fsdpbench::backend::cuda

extern "C" {
extern __attribute__((visibility("default"))) const fsdpbench::backend::cuda::Profiler ncclProfiler_v5;
extern __attribute__((visibility("default"))) const fsdpbench::backend::cuda::Profiler ncclProfiler_v6;
}
