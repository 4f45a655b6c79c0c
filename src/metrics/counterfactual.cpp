#include "metrics/counterfactual.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "base/error.h"
#include "metrics/knobs.h"
#include "schedule/memory_walk.h"
#include "schedule/training.h"

namespace fsdpbench::metrics {
namespace {

constexpr double kAtOnce = 1e12;  // so many times as fast

/// A training of the same model and ranks under another policy.
struct Rebuilt {
  Rebuilt(const config::RunConfig& config, const std::vector<plan::ModuleSizes>& sizes)
      : all(schedule::make_training(config, sizes)), steady(all.steady()) {}

  std::int64_t peak_bytes() const {
    const config::Train& train = all.config.train;
    return schedule::memory_walk(all.schedules, train.warmup + train.steps).peak_occupied_total;
  }

  schedule::Training all, steady;
};

/// What to replay.
struct Question {
  Counterfactual answer;
  TypicalStep::Without without;
  std::unique_ptr<Rebuilt> rebuilt;  ///< null: the schedule as it is
};

class Finder {
 public:
  Finder(const TypicalStep& typical, double noise_ms) : typical_(typical), noise_ms_(noise_ms) {
    typical_ms_ = static_cast<double>(typical.replay().slowest_ns) / 1e6;
  }

  Counterfactuals find(const std::vector<Asked>& causes) {
    std::vector<Question> questions;
    for (const Asked& asked : causes) questions.push_back(about(asked));
    for (Knob& knob : knobs_of(typical_.training().config)) {
      Question question = rebuilt(knob.config);
      question.answer.cause = knob.cause;
      question.answer.set = knob.set;
      if (question.rebuilt) questions.push_back(std::move(question));
    }
    for (Question& question : questions) {
      question.answer.step_ms = replayed_ms(question, typical_.times());
      question.answer.gain_ms = question.answer.ci_low = question.answer.ci_high =
          typical_ms_ - question.answer.step_ms;
    }
    std::erase_if(questions, [&](const Question& q) { return !q.answer.set.empty() && q.answer.gain_ms <= noise_ms_; });
    if (!typical_.repeats()) find_intervals(questions);

    Counterfactuals result;
    for (Question& question : questions) {
      Counterfactual& answer = question.answer;
      const bool certain =
          typical_.steps() > 1 || typical_.training().config.device.backend == config::BackendKind::virtual_;
      answer.advised = certain && answer.ci_low > 0 && answer.gain_ms > noise_ms_;
      if (answer.set.empty()) {
        result.causes.push_back(std::move(answer));
        continue;
      }
      if (answer.advised) answer.more_bytes = question.rebuilt->peak_bytes() - peak_bytes();
      result.knobs.push_back(std::move(answer));
    }
    std::ranges::stable_sort(result.knobs, std::ranges::greater(), &Counterfactual::gain_ms);
    return result;
  }

 private:
  Question rebuilt(const config::RunConfig& config) const {
    Question question;
    try {
      question.rebuilt = std::make_unique<Rebuilt>(config, typical_.training().sizes);
    } catch (const Error&) {  // not for this model, plan or memory: nothing to advise
    }
    return question;
  }

  Question about(const Asked& asked) const {
    Question question;
    TypicalStep::Without& without = question.without;
    switch (asked.cause) {
      case Cause::link_bound: without.changes.link_scale = kAtOnce; break;
      case Cause::inefficient_collective: without.changes.hop_ns = -kAtOnce; break;
      case Cause::contention: without.sharing = true; break;
      case Cause::straggler: without.late_rank = asked.late_rank; break;
      case Cause::host_bound: without.host = true; break;
      case Cause::copy: without.copies = true; break;
      case Cause::pcie: without.pcie = true; break;
      case Cause::host_update: without.host_update = true; break;
      case Cause::step_boundary: without.ends = true; break;
      case Cause::slow_link: without.slow_link = asked.late_rank; break;
      case Cause::tensor_group: without.tensor_group = true; break;
      case Cause::cores_busy: without.cores = true; break;
      case Cause::unknown: without.lags = true; break;
      case Cause::slow_transfer:
      case Cause::data_loading: break;  // of traces alone, which are not asked
      case Cause::late_prefetch:
      case Cause::all_gather_limit:
      case Cause::reduce_scatter_buffers:
      case Cause::communicator_serialisation:
      case Cause::host_sync: question = rebuilt(lifted(asked.cause, typical_.training().config)); break;
    }
    question.answer.cause = asked.cause;
    question.answer.late_rank = asked.late_rank;
    return question;
  }

  double replayed_ms(const Question& question, const replay::MeasuredTimes& times) const {
    const schedule::Training& training = question.rebuilt ? question.rebuilt->steady : typical_.training();
    return static_cast<double>(typical_.replay(times, training, question.without).slowest_ns) / 1e6;
  }

  void find_intervals(std::vector<Question>& questions) const {
    std::mt19937 random(12345);
    const Question nothing;
    std::vector<std::size_t> drawn(typical_.steps());
    for (int draw = 0; draw < kDraws; ++draw) {
      for (std::size_t& step : drawn) step = random() % drawn.size();
      const replay::MeasuredTimes times = typical_.times_of(drawn);
      const double as_it_is = replayed_ms(nothing, times);
      for (Question& question : questions) {
        const double gain = as_it_is - replayed_ms(question, times);
        Counterfactual& answer = question.answer;
        answer.interval = IntervalKind::bootstrap;
        answer.ci_low = std::min(answer.ci_low, gain);
        answer.ci_high = std::max(answer.ci_high, gain);
      }
    }
  }

  std::int64_t peak_bytes() {
    if (!peak_bytes_) peak_bytes_ = Rebuilt(typical_.training().config, typical_.training().sizes).peak_bytes();
    return *peak_bytes_;
  }

  const TypicalStep& typical_;
  double noise_ms_;
  double typical_ms_ = 0;
  std::optional<std::int64_t> peak_bytes_;
};

}  // namespace

Counterfactuals find_counterfactuals(const TypicalStep& typical, const std::vector<Asked>& causes, double noise_ms) {
  return Finder(typical, noise_ms).find(causes);
}

}  // namespace fsdpbench::metrics
