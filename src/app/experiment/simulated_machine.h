#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "config/accuracy.h"
#include "config/calibration.h"
#include "config/cluster.h"
#include "tune/machine.h"

namespace fsdpbench::app {

/// The machine that a configuration names: simulate.cluster, simulate.calibration, or the rates of [emulate]. Op times
/// are those of a simulation of the same configuration, before anything is drawn.
class SimulatedMachine final : public tune::Machine {
 public:
  /// Reads the cluster or the calibration. Throws ConfigError if that cannot be read or nothing is named, so that
  /// nobody knows what an op takes.
  explicit SimulatedMachine(const config::RunConfig& config);

  /// What the times rest on: "given rates", "published rates", "the calibration of …".
  const std::string& basis() const { return basis_; }

  tune::Sizes sizes(const config::RunConfig& config) const override;
  double step_ns(const tune::Candidate& candidate, const tune::Otherwise& otherwise) const override;
  replay::StepCosts least_costs(const tune::Candidate& candidate) const override;
  bool in_doubt() const override { return accuracy_ || calibration_; }

 private:
  replay::OpTimes times(const tune::Candidate& candidate, const tune::Otherwise& otherwise) const;

  std::string basis_;
  std::optional<config::Cluster> cluster_;
  std::optional<config::Accuracy> accuracy_;
  std::optional<config::Calibration> calibration_;

  using SizesOf = std::tuple<std::int64_t, std::int64_t, DType>;  // sequences, their length, compute dtype
  mutable std::mutex mutex_;
  mutable std::map<SizesOf, tune::Sizes> sizes_;
};

/// The sizes of a configuration's modules, as engine::set_up() finds them.
tune::Sizes sizes_of_modules(const config::RunConfig& config);

}  // namespace fsdpbench::app
