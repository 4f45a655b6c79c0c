#pragma once

#include <optional>
#include <vector>

#include "account/run_view.h"
#include "account/typical_step.h"
#include "clock/machine.h"
#include "runs/finished_run.h"
#include "runs/simulated_machine.h"
#include "tune/run_doubt.h"

namespace fsdpbench::app {

/// The machine that a finished run was measured on: ops take what they took in its typical step, and ops of other
/// schedules what follows from these (clock/what_if_times.h). What nothing measured tells is refused with ConfigError.
class MeasuredMachine final : public clock::Machine {
 public:
  /// `run` must live on.
  explicit MeasuredMachine(const FinishedRun& run);

  std::vector<plan::ModuleSizes> sizes(const config::RunConfig& config) const override;
  clock::Forecast forecast(const schedule::Training& training, const clock::Changes& changes = {}) const override;
  clock::StepCosts least_costs(const schedule::Training& training) const override;
  /// Steps differed, so that another choice of them would have given other times; a draw is such a choice.
  bool in_doubt() const override { return !typical_.repeats(); }
  std::optional<double> doubt(const schedule::Training& training) const override;

 private:
  account::RunView view_;
  account::TypicalStep typical_;
  RunDoubt doubt_;
  ModelSizes sizes_;
};

}  // namespace fsdpbench::app
