#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/communicator.h"
#include "backend/device.h"
#include "base/link_model.h"
#include "launch/session.h"

namespace fsdpbench::backend {

/// What stamps are taken from.
enum class Timer : std::uint8_t {
  automatic,  ///< the best the device has
  cupti,      ///< NVIDIA's activity records; an error if they cannot be had
  events,     ///< CUDA events around each op
};

/// How NCCL is used. Elsewhere without effect.
struct NcclOptions {
  enum class Register : std::uint8_t {
    none,
    local,   ///< ncclCommRegister of the communication buffers
    window,  ///< ncclMemAlloc and symmetric windows
  };
  enum class CtaPolicy : std::uint8_t { library, efficiency, zero };

  Register registration = Register::none;
  CtaPolicy cta_policy = CtaPolicy::library;
  int min_ctas = 0;        ///< 0: NCCL's choice
  int max_ctas = 0;        ///< 0: NCCL's choice
  double timeout_s = 60;   ///< an op that takes longer ends the run
};

/// What a backend needs to know to make ranks.
struct BackendOptions {
  int ranks = 1;                               ///< of the whole run
  launch::Session* session = nullptr;          ///< null: all ranks are threads of this process; else one is, session's
  std::optional<LinkModel> link;               ///< absent: transfers take what they take
  std::optional<double> compute_flops_per_s;   ///< absent: kernels compute; else they only take FLOPs / rate
  std::vector<double> link_slowdown;           ///< per rank, empty or factors >= 1 on the modelled link
  std::vector<double> compute_slowdown;        ///< per rank, empty or factors >= 1: a slow rank
  bool poison_freed_memory = false;            ///< fill freed blocks with NaN: a use after free shows in the loss
  Timer timer = Timer::automatic;
  NcclOptions nccl;
  std::int64_t pool_bytes = 0;                 ///< what a rank's pool will need at most; a hint
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
  virtual std::string name() const = 0;
  virtual Facts facts() const = 0;

  /// Runs `body` once for each local rank, each on its own host thread, and returns when all have ended.
  /// If one throws, all others are stopped wherever they wait, and that first exception is rethrown.
  virtual void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) = 0;
};

}  // namespace fsdpbench::backend
