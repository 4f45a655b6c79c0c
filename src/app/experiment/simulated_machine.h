#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "config/accuracy.h"
#include "config/calibration.h"
#include "config/cluster.h"
#include "tune/machine.h"

namespace fsdpbench::app {

/// The sizes of a model's modules, as engine::set_up() finds them: for configurations that differ in sequences, their
/// length and the compute dtype. May be asked from several threads at once.
class ModelSizes {
 public:
  std::vector<plan::ModuleSizes> of(const config::RunConfig& config) const;

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, DType>;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::vector<plan::ModuleSizes>> known_;
};

/// The machine that a configuration names: simulate.cluster, simulate.calibration, or the rates of [emulate]. Op times
/// are those of a simulation of the same configuration, before anything is drawn.
class SimulatedMachine final : public tune::Machine {
 public:
  /// Reads the cluster or the calibration. Throws ConfigError if that cannot be read or nothing is named, so that
  /// nobody knows what an op takes.
  explicit SimulatedMachine(const config::RunConfig& config);

  /// What the times rest on: "given rates", "published rates", "the calibration of …".
  const std::string& basis() const { return basis_; }

  std::vector<plan::ModuleSizes> sizes(const config::RunConfig& config) const override;
  replay::Forecast forecast(const schedule::Training& training, const replay::Changes& changes = {}) const override;
  replay::StepCosts least_costs(const schedule::Training& training) const override;
  bool in_doubt() const override { return accuracy_ || calibration_; }

 private:
  replay::OpTimes times(const schedule::Training& training, const replay::Changes& changes) const;

  std::string basis_;
  std::optional<config::Cluster> cluster_;
  std::optional<config::Accuracy> accuracy_;
  std::optional<config::Calibration> calibration_;
  ModelSizes sizes_;
};

}  // namespace fsdpbench::app
