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

namespace fsdpbench::backend {

/// A modelled link: a transfer also takes latency * hops + wire bytes / bandwidth on the rank's link.
struct LinkModel {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

/// What a backend needs to know to make ranks.
struct BackendOptions {
  int ranks = 1;
  std::optional<LinkModel> link;               ///< absent: transfers take what they take
  std::optional<double> compute_flops_per_s;   ///< absent: kernels compute; else they only take FLOPs / rate
  std::vector<double> link_slowdown;           ///< per rank, empty or factors >= 1 on the modelled link
  std::vector<double> compute_slowdown;        ///< per rank, empty or factors >= 1: a slow rank
  bool poison_freed_memory = false;            ///< fill freed blocks with NaN: a use after free shows in the loss
};

/// Everything one rank's host thread works with. Valid inside Backend::run only.
struct RankContext {
  int rank = 0;
  Device& device;
  Communicator& world;
};

/// Facts for people and result files, as (name, sentence or value).
using Facts = std::vector<std::pair<std::string, std::string>>;

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
