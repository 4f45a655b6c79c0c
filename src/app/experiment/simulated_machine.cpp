#include "app/experiment/simulated_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "app/experiment/published_uncertainty.h"
#include "base/error.h"
#include "engine/simulate.h"
#include "model/model.h"
#include "replay/forecast.h"

namespace fsdpbench::app {

std::vector<plan::ModuleSizes> ModelSizes::of(const config::RunConfig& config) const {
  const std::lock_guard lock(mutex_);
  std::vector<plan::ModuleSizes>& known =
      known_[{config.train.batch_per_rank, config.train.seq_len, config.fsdp.param_dtype}];
  if (known.empty()) known = model::make_model(config, plan::model_shapes(config.model))->sizes();
  return known;
}

SimulatedMachine::SimulatedMachine(const config::RunConfig& config) {
  if (!config.simulate.calibration.empty()) {
    calibration_ = config::read_calibration(config.simulate.calibration);
    basis_ = fmt::format("the calibration of {}", calibration_->machine);
    return;
  }
  if (!config.simulate.cluster.empty()) {
    cluster_ = config::load_cluster(config.simulate.cluster);
    config::check_fits(*cluster_, config.mesh.ranks);
    accuracy_ = config::read_accuracy(config::find_accuracy());
    basis_ = "published rates";
    return;
  }
  if (!config.emulate.compute_tflops || (config.mesh.ranks > 1 && !config.emulate.link_gb_per_s)) {
    throw ConfigError(
        "nothing says how fast this training's ranks and links are: name a machine (--cluster), a calibration (--set "
        "simulate.calibration=FILE), rates (emulate.compute_tflops and emulate.link_gb_per_s), or a finished run "
        "(--from).");
  }
  basis_ = "given rates";
}

std::vector<plan::ModuleSizes> SimulatedMachine::sizes(const config::RunConfig& config) const {
  return sizes_.of(config);
}

replay::OpTimes SimulatedMachine::times(const schedule::Training& training, const replay::Changes& changes) const {
  replay::Changes possible;
  possible.link_scale = changes.link_scale;
  possible.compute_scale = changes.compute_scale;
  possible.draw = changes.draw;
  if (changes != possible) throw std::logic_error("SimulatedMachine: a change that only a finished run can tell");
  replay::OpTimes times;
  std::optional<replay::Uncertainty> uncertainty;
  if (calibration_) {
    replay::CalibratedTimes calibrated = engine::calibrated_times(training, *calibration_);
    times = std::move(calibrated.times);
    if (changes.draw >= 0) uncertainty = std::move(calibrated.uncertainty);
  } else {
    times = engine::simulated_times(training, cluster_ ? &*cluster_ : nullptr);
    if (changes.draw >= 0 && accuracy_) {
      uncertainty = published_uncertainty(training, *cluster_, *accuracy_, times);
    }
  }
  if (uncertainty) times = replay::drawn(std::move(times), *uncertainty, changes.draw);
  if (changes.link_scale == 1 && changes.compute_scale == 1) return times;
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    const std::vector<schedule::Op>& ops = training.schedules.steps[step].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      replay::OpCost& cost = times.steps[step][i];
      cost.link_ns = std::nearbyint(cost.link_ns / changes.link_scale);
      if (ops[i].module >= 0) cost.run_ns = std::nearbyint(cost.run_ns / changes.compute_scale);
    }
  }
  return times;
}

replay::Forecast SimulatedMachine::forecast(const schedule::Training& training, const replay::Changes& changes) const {
  return replay::forecast(training, times(training, changes));
}

replay::StepCosts SimulatedMachine::least_costs(const schedule::Training& training) const {
  if (calibration_) {
    return engine::calibrated_times(training, *calibration_, false).times.steps.back();
  }
  replay::OpTimes times = engine::simulated_times(training, cluster_ ? &*cluster_ : nullptr, false);
  return std::move(times.steps.back());
}

}  // namespace fsdpbench::app
