#include "app/experiment/simulated_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/experiment/published_uncertainty.h"
#include "base/error.h"
#include "engine/simulate.h"
#include "model/model.h"
#include "replay/make_replay.h"

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

replay::OpTimes SimulatedMachine::times(const schedule::Training& training, const tune::Otherwise& otherwise) const {
  replay::OpTimes times;
  std::optional<replay::Uncertainty> uncertainty;
  if (calibration_) {
    replay::CalibratedTimes calibrated = engine::calibrated_times(training, *calibration_);
    times = std::move(calibrated.times);
    if (otherwise.draw >= 0) uncertainty = std::move(calibrated.uncertainty);
  } else {
    times = engine::simulated_times(training, cluster_ ? &*cluster_ : nullptr);
    if (otherwise.draw >= 0 && accuracy_) {
      uncertainty = published_uncertainty(training, *cluster_, *accuracy_, times);
    }
  }
  if (uncertainty) times = replay::drawn(std::move(times), *uncertainty, otherwise.draw);
  if (otherwise.link == 1 && otherwise.compute == 1) return times;
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    const std::vector<schedule::Op>& ops = training.schedules.steps[step].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      replay::OpCost& cost = times.steps[step][i];
      cost.link_ns = std::nearbyint(cost.link_ns / otherwise.link);
      if (ops[i].module >= 0) cost.run_ns = std::nearbyint(cost.run_ns / otherwise.compute);
    }
  }
  return times;
}

double SimulatedMachine::step_ns(const schedule::Training& training, const tune::Otherwise& otherwise) const {
  const replay::OpTimes op_times = times(training, otherwise);
  const auto replay = replay::make_replay(training.schedules, training.plan.groups, op_times);
  // A step begins with idle lanes, so where ranks are alike the first of a kind is as long as all others of it.
  const std::size_t steps = training.schedules.steps.size() + (op_times.ranks_differ() ? 1 : 0);
  for (std::size_t step = 0; step < steps; ++step) replay->step({});
  const replay::Replay::StepTimes& last = replay->last_step();
  double slowest = 0;
  for (std::size_t rank = 0; rank < last.end_ns.size(); ++rank) {
    slowest = std::max(slowest, last.end_ns[rank] - last.begin_ns[rank]);
  }
  return slowest;
}

replay::StepCosts SimulatedMachine::least_costs(const schedule::Training& training) const {
  if (calibration_) {
    return engine::calibrated_times(training, *calibration_, false).times.steps.back();
  }
  replay::OpTimes times = engine::simulated_times(training, cluster_ ? &*cluster_ : nullptr, false);
  return std::move(times.steps.back());
}

}  // namespace fsdpbench::app
