#include "tune/answer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "clock/forecast.h"
#include "tune/space.h"

namespace fsdpbench::tune {
namespace {

class Answerer {
 public:
  Answerer(const Space& space, const clock::Machine& machine, const SearchOptions& options, const SearchResult& result,
           double least_gain)
      : space_(space), machine_(machine), options_(options), result_(result), least_gain_(least_gain) {}

  Answer answer() {
    answer_.front = pareto_front(result_.tried);
    weigh();
    turned_knobs();
    left_knobs();
    return std::move(answer_);
  }

 private:
  const Tried& best() const { return result_.tried[*result_.best]; }
  double objective(const Tried& tried) const { return objective_of(options_.objective, tried); }

  schedule::Training training_at(const Point& point) const {
    const config::RunConfig config = *space_.config_at(point);
    return machine_.training(config);
  }

  std::optional<Tried> at(const Point& point) const {
    const auto config = space_.config_at(point);
    if (!config) return std::nullopt;
    try {
      return evaluate(*config, machine_, options_.budget);
    } catch (const Error&) {  // not for this model or this memory
      return std::nullopt;
    }
  }

  void weigh() {
    const double was = objective(result_.start());
    answer_.gain = 1 - objective(best()) / was;
    const bool by_time = options_.objective != Objective::memory;
    if (by_time) {
      const schedule::Training start = training_at(result_.start().point), chosen = training_at(best().point);
      const std::optional<double> share = machine_.doubt(chosen, answer_.gain);
      answer_.unknown = !share;
      const double doubt = share.value_or(0) * (1 - answer_.gain);
      const bool changed = *result_.best != 0;
      if (changed && share && (machine_.in_doubt() || doubt > 0)) {
        const double tokens = options_.objective == Objective::step ? 1 : result_.start().tokens / best().tokens;
        const clock::Bounds gain = gain_bounds(machine_, start, chosen, doubt, tokens, options_.threads);
        answer_.gain_low = gain.low;
        answer_.gain_high = gain.high;
      }
    }
    const bool certain = answer_.gain_low.value_or(answer_.gain) > 0;
    answer_.keep = result_.start().fits && (answer_.gain < least_gain_ || !certain);
  }

  void turned_knobs() {
    for (std::size_t a = 0; a < space_.axes().size(); ++a) {
      const std::uint8_t choice = best().point[a];
      if (choice == 0) continue;
      const Axis& axis = space_.axes()[a];
      TurnedKnob knob{a, axis.name, axis.choices[choice].was, axis.choices[choice].text, {}, {}, {}};
      Point alone = space_.origin(), without = best().point;
      alone[a] = choice;
      without[a] = 0;
      if (const auto tried = at(alone)) knob.alone = 1 - objective(*tried) / objective(result_.start());
      if (const auto tried = at(without)) {
        knob.last_in = 1 - objective(best()) / objective(*tried);
        knob.more_bytes = best().predicted_bytes - tried->predicted_bytes;
      }
      answer_.turned.push_back(std::move(knob));
    }
    std::ranges::stable_sort(answer_.turned, std::ranges::greater(),
                             [](const TurnedKnob& knob) { return knob.last_in.value_or(knob.alone.value_or(0)); });
  }

  void left_knobs() {
    for (std::size_t a = 0; a < space_.axes().size(); ++a) {
      const Axis& axis = space_.axes()[a];
      if (axis.choices.size() == 1 || best().point[a] != 0) continue;
      LeftKnob knob{axis.name, 0, 0, false};
      bool possible = false;
      for (std::size_t c = 1; c < axis.choices.size(); ++c) {
        Point point = best().point;
        point[a] = static_cast<std::uint8_t>(c);
        const auto tried = at(point);
        if (!tried) continue;
        possible = true;
        const double change = objective(*tried) / objective(best()) - 1;
        knob.least = std::min(knob.least, change);
        knob.most = std::max(knob.most, change);
        knob.matters |= std::abs(change) >= least_gain_;
      }
      if (possible) answer_.left.push_back(knob);
    }
  }

  const Space& space_;
  const clock::Machine& machine_;
  const SearchOptions& options_;
  const SearchResult& result_;
  double least_gain_;
  Answer answer_;
};

}  // namespace

clock::Bounds gain_bounds(const clock::Machine& machine, const schedule::Training& start,
                          const schedule::Training& chosen, double doubt, double tokens, int threads,
                          const clock::Changes& changes) {
  std::array<double, clock::Uncertainty::kDraws> gains{};
  parallel_for(gains.size(), threads, [&](std::size_t draw) {
    clock::Changes as_it_is, changed = changes;
    as_it_is.draw = changed.draw = static_cast<int>(draw);
    gains[draw] =
        1 - tokens * machine.forecast(chosen, changed).slowest_ns() / machine.forecast(start, as_it_is).slowest_ns();
  });
  const auto [low, high] = std::ranges::minmax(gains);
  const double half = (high - low) / 2, more = std::hypot(half, doubt) - half;
  return {low - more, high + more};
}

std::vector<std::size_t> pareto_front(const std::vector<Tried>& tried) {
  std::vector<std::size_t> order(tried.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return !tried[i].exact; });
  std::ranges::stable_sort(order, {},
                           [&](std::size_t i) { return std::pair(tried[i].predicted_bytes, tried[i].step_ns); });
  std::vector<std::size_t> front;
  for (const std::size_t i : order) {
    if (front.empty() || tried[i].step_ns < tried[front.back()].step_ns) front.push_back(i);
  }
  return front;
}

Answer make_answer(const Space& space, const clock::Machine& machine, const SearchOptions& options,
                   const SearchResult& result, double least_gain) {
  return Answerer(space, machine, options, result, least_gain).answer();
}

}  // namespace fsdpbench::tune
