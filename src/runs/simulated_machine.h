#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "account/find_stalls.h"
#include "account/run_metrics.h"
#include "clock/forecast.h"
#include "clock/machine.h"
#include "clock/op_times.h"
#include "config/accuracy.h"
#include "config/calibration.h"
#include "config/cluster.h"
#include "engine/setup.h"
#include "schedule/training.h"

namespace fsdpbench::app {

/// One step of the steady state on the computed clock.
struct SteadyStep {
  double ms = 0;          ///< of the slowest rank
  double exposed_ms = 0;  ///< exposed communication, mean over ranks
};
/// The steady step of a simulation whose ops take `times`.
SteadyStep steady_step(const engine::Setup& setup, const clock::OpTimes& times);
/// Error of `calibration` on `measured`, a run of `setup`.
config::Calibration::Miss miss_of(const config::Calibration& calibration, const engine::Setup& setup,
                                  const account::RunMetrics& measured);

/// The sizes of a model's modules, as engine::set_up() finds them: for configurations that differ in sequences, their
/// length, the compute dtype and what ranks that split experts do. May be asked from several threads at once.
class ModelSizes {
 public:
  std::vector<plan::ModuleSizes> of(const config::RunConfig& config) const;

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, DType, std::int64_t, std::int64_t>;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::vector<plan::ModuleSizes>> known_;
};

/// Uncertainty of times by published rates: computation is off by what trainings are, each collective by what those
/// of its sort are. Nothing was measured on the machine itself, so the best that an op can be is interpolated: its
/// cluster has rows, and its ranks and bytes lie within theirs. `times`: engine::simulated_times().
clock::Uncertainty published_uncertainty(const schedule::Training& training, const config::Cluster& cluster,
                                         const config::Accuracy& accuracy, const clock::OpTimes& times);

/// Op times of a training, before anything is drawn, and how wrong they may be.
struct SimulatedTimes {
  clock::OpTimes times;
  std::optional<clock::Uncertainty> uncertainty;  ///< absent: rates were given, and nothing is in doubt
  double spread_pct = 0;                          ///< clock::CalibratedTimes::spread_pct
  double crowded = 1;                             ///< clock::CalibratedTimes::crowded
};

/// The machine that a configuration names: simulate.cluster, simulate.calibration, or the rates of [emulate]. Op times
/// are those of a simulation of the same configuration, before anything is drawn.
class SimulatedMachine final : public clock::Machine {
 public:
  /// Reads the cluster or the calibration. Throws ConfigError if that cannot be read or nothing is named, so that
  /// nobody knows what an op takes.
  /// `with_luck`: forecasts are the median of a run's measured steps with what its configuration draws (jitter,
  /// pauses); without, one steady step before anything is drawn.
  explicit SimulatedMachine(const config::RunConfig& config, bool with_luck = false);

  /// Basis of the times: "given rates", "published rates", "the calibration of …".
  const std::string& basis() const { return basis_; }
  /// Null if it is none.
  const config::Cluster* cluster() const { return cluster_ ? &*cluster_ : nullptr; }
  const config::Calibration* calibration() const { return calibration_ ? &*calibration_ : nullptr; }

  /// `uncertainty`: whether that is wanted, which takes its time. Times are as `changes` makes them: faster links and
  /// computation, and a host that issues later. Throws std::logic_error for any other change but a draw.
  SimulatedTimes times(const schedule::Training& training, bool uncertainty = true,
                       const clock::Changes& changes = {}) const;

  std::vector<plan::ModuleSizes> sizes(const config::RunConfig& config) const override;
  clock::Forecast forecast(const schedule::Training& training, const clock::Changes& changes = {}) const override;
  clock::LeastTimes least_times(const schedule::Training& training) const override;
  bool in_doubt() const override { return accuracy_ || calibration_; }
  std::optional<double> doubt(const schedule::Training& training, double gain) const override;

 private:
  std::string basis_;
  bool with_luck_;
  std::optional<config::Cluster> cluster_;
  std::optional<config::Accuracy> accuracy_;
  std::optional<config::Calibration> calibration_;
  ModelSizes sizes_;
};

/// The machine that computed a simulated run of `config` on a cluster or by a calibration: what an op of another
/// schedule takes there depends on its links and on what runs beside it, which the run's own op times do not tell. With
/// the run's luck, if it had any. Null for any other run.
std::unique_ptr<SimulatedMachine> machine_of_run(const config::RunConfig& config);

/// For each op of a simulated training's steady step: its time if all ranks that split experts had equally many rows,
/// divided by its time in `times` (of the same machine). Empty if mesh.expert_imbalance is 1.
account::EvenRows even_rows(const schedule::Training& training, const clock::OpTimes& times);

}  // namespace fsdpbench::app
