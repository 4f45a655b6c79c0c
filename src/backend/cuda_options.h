#pragma once

#include <cstdint>

namespace fsdpbench::backend {

/// What stamps are taken from on a GPU.
enum class Timer : std::uint8_t {
  automatic,  ///< the best the device has
  cupti,      ///< NVIDIA's activity records; an error if they cannot be had
  events,     ///< CUDA events around each op
};

/// How a GPU computes where there is a choice.
struct Arithmetic {
  bool deterministic = true;  ///< attention's backward adds in a fixed order
};

/// Where the blocks of a device lie.
enum class BlockMemory : std::uint8_t {
  pool,   ///< CUDA's stream-ordered allocator; grows where BackendOptions::pool_bytes do not suffice
  fixed,  ///< one region of BackendOptions::pool_bytes
};

/// How NCCL is used.
struct NcclOptions {
  enum class Register : std::uint8_t {
    none,
    local,   ///< ncclCommRegister of the communication buffers
    window,  ///< ncclMemAlloc and symmetric windows
  };
  enum class CtaPolicy : std::uint8_t { library, efficiency, zero };

  Register registration = Register::none;
  CtaPolicy cta_policy = CtaPolicy::library;
  int min_ctas = 0;       ///< 0: NCCL's choice
  int max_ctas = 0;       ///< 0: NCCL's choice
  bool blocking = false;  ///< calls return when they are done
  double timeout_s = 60;  ///< an op that takes longer ends the run
};

/// What the CUDA backend takes beside BackendOptions.
struct CudaOptions {
  Timer timer = Timer::automatic;
  Arithmetic arithmetic;
  NcclOptions nccl;
  BlockMemory memory = BlockMemory::pool;
  bool monitor = true;  ///< Device::health() polls the driver during the run
};

}  // namespace fsdpbench::backend
