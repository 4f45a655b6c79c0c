#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/communicator.h"
#include "backend/device.h"
#include "base/error.h"
#include "base/lane.h"
#include "base/link_model.h"
#include "launch/clock_offset.h"
#include "launch/session.h"

namespace fsdpbench::backend {

/// Options of the CPU backend beside BackendOptions: links and computation that are emulated.
struct CpuOptions {
  std::optional<LinkModel> link;              ///< absent: transfers take what they take
  std::optional<LinkModel> pcie;              ///< absent: copies between the memories take what they take
  std::optional<double> compute_flops_per_s;  ///< absent: kernels compute; else they only take FLOPs / rate
  std::vector<double> link_slowdown;          ///< per rank, empty or factors >= 1 on the modelled link
  std::vector<double> compute_slowdown;       ///< per rank, empty or factors >= 1: a slow rank
  /// Between processes: for how long a rank waits for others to come to a collective before it calls the job stuck;
  /// absent: for ever.
  std::optional<double> stall_s;
  bool share_memory = true;  ///< processes of one host read each other's memory; else they exchange messages
};

/// Source of stamps on a GPU.
enum class Timer : std::uint8_t {
  automatic,  ///< the best the device has
  cupti,      ///< NVIDIA's activity records; an error if they cannot be had
  events,     ///< CUDA events around each op
};

/// Choices of how a GPU computes.
struct Arithmetic {
  bool deterministic = true;  ///< attention's backward adds in a fixed order
};

/// Settings of NCCL.
struct NcclOptions {
  enum class Register : std::uint8_t {
    none,
    local,   ///< ncclCommRegister of the communication buffers
    window,  ///< ncclMemAlloc and symmetric windows
  };
  enum class CtaPolicy : std::uint8_t { library, efficiency, zero };

  Register registration = Register::none;
  CtaPolicy cta_policy = CtaPolicy::library;
  int max_ctas = 0;       ///< 0: NCCL's choice
  bool blocking = false;  ///< calls return when they are done
  double timeout_s = 60;  ///< an op that takes longer ends the run
};

/// Options of the CUDA backend beside BackendOptions.
struct CudaOptions {
  Timer timer = Timer::automatic;
  Arithmetic arithmetic;
  NcclOptions nccl;
  bool monitor = true;  ///< Device::health() polls the driver during the run
};

/// Options that every backend needs to make ranks.
struct BackendOptions {
  int ranks = 1;                       ///< of the whole run
  launch::Session* session = nullptr;  ///< null: all ranks are threads of this process; else one is, session's
  launch::Abort* interrupt =
      nullptr;  ///< once the caller sets it, all ranks stop wherever they wait: run() throws Interrupted
  std::int64_t pool_bytes = std::int64_t{1} << 30;  ///< most that a rank's pool takes
  std::int64_t host_pool_bytes = 0;                 ///< of pinned host memory a rank can have so much
  bool offload_lanes = false;                       ///< those of base/lane.h's is_offload_lane() are used
  /// Bytes that each category needs as a range of its own. Asked for where some of them lie apart: memory that NCCL
  /// registers.
  CategoryBytes category_bytes{};
  bool poison_freed_memory = false;  ///< fill freed blocks with NaN: a use after free shows in the loss
  std::variant<std::monostate, CpuOptions, CudaOptions> own;  ///< of the backend that runs; nothing: its defaults

  /// `own`, to be filled in for the backend that has these options.
  template <class Own>
  Own& set() {
    if (!std::holds_alternative<Own>(own)) own.emplace<Own>();
    return std::get<Own>(own);
  }
  /// `own` as the backend that has these options reads it. Throws BackendError if it is of another one.
  template <class Own>
  Own get() const {
    if (std::holds_alternative<std::monostate>(own)) return {};
    if (const Own* const mine = std::get_if<Own>(&own)) return *mine;
    throw BackendError("a backend was given the options of another one");
  }
};

/// Everything one rank's host thread works with. Valid inside Backend::run only.
struct RankContext {
  int rank = 0;
  Device& device;
  Communicator& world;
};

/// One way to run ranks.
class Backend {
 public:
  virtual ~Backend() = default;
  /// As device.backend spells it.
  virtual std::string name() const = 0;
  /// Facts about the machine, for people and result files; after run() also about how its ranks ran.
  virtual Facts facts() const = 0;

  /// Runs `body` once for each local rank, each on its own host thread, and returns when all have ended.
  /// If one throws, all others are stopped wherever they wait, and that first exception is rethrown. Throws
  /// BackendError or ConfigError, before any `body`, if the options contradict themselves or this machine.
  virtual void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) = 0;
};

}  // namespace fsdpbench::backend
