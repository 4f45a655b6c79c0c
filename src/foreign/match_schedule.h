#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "config/spelling.h"
#include "foreign/launch_order.h"
#include "schedule/training.h"

namespace fsdpbench::foreign {

/// Prefetching as ranges of the program show it. They outrank the order of launches: on one that no schedule has,
/// the nearest schedule may prefetch otherwise.
struct ToldPrefetch {
  bool forward = false;  ///< units are gathered ahead in forward because the program was told so
  /// Unknown: too little is gathered in backward.
  enum class Backward : std::uint8_t { unknown, none, pre, post } backward = Backward::unknown;
  bool allows(const config::Fsdp& fsdp) const;
};

/// Facts known of a training before its order is compared with schedules.
struct TrainingFacts {
  int units = 0;   ///< beside the root, without experts
  int expert = 1;  ///< ranks that split the experts of each block, which are units of their own; 1: no one does
  bool root = true;
  std::int64_t unit_elements = -1, root_elements = -1;  ///< -1: not told
  int shard = 1, replicate = 1;
  int backward_shard = 0;  ///< ranks that gather in backward, if fewer; 0: the same
  bool reshards = true;    ///< units are gathered again for backward
  bool root_reshards = false;
  int accumulate = 1;
  config::AccumulateMode accumulate_mode = config::AccumulateMode::reduce_each;
  bool reentrant = false;  ///< recomputed forwards prefetch as forwards do: checkpoints around the engine's hooks
  bool separate_reductions = false;  ///< reductions have a communicator of their own
  DType param_dtype = DType::f32, reduce_dtype = DType::f32;
  std::optional<ToldPrefetch> prefetch;  ///< none: no ranges tell
  std::vector<std::string> presets;      ///< that may be meant, the likeliest first
};

/// The schedule that is nearest to an order of launches.
struct ScheduleMatch {
  config::RunConfig config;             ///< valid; its schedule is the one that was compared
  double distance = 0;                  ///< as compare_orders() has it; 0: op by op
  std::vector<LaunchToken> order;       ///< the schedule's own, with units
  int collectives_off = 0;              ///< collectives that one has and the other has not in its place
  int first_off = -1;                   ///< the first such one of the trace, a place in its step's rows; -1: none
  std::vector<std::string> same_order;  ///< other presets with the same order: it does not tell them apart
  std::vector<std::string> deviations;  ///< a sentence each; at most kMostDeviations
  bool exact() const { return collectives_off == 0; }
};
inline constexpr int kMostDeviations = 20;

/// A model with so many blocks whose units have about so many elements; without sizes the default's.
config::Model model_of_sizes(const TrainingFacts& facts);

/// The values of a prefetching key that the system of `match` has and with which its schedule is no further from
/// `order`: nothing tells them apart. The match's own is the first.
std::vector<config::Value> equal_values(const TrainingFacts& facts, const std::vector<LaunchToken>& order,
                                        const ScheduleMatch& match, std::string_view key);

/// The training of a match; its sizes beyond those of parameters are made up.
schedule::Training training_of(const ScheduleMatch& match);

/// Tries the presets, and from the best of them one knob after the other. `order`: with units if they are sure. Throws
/// ConfigError if no preset is possible with these facts.
ScheduleMatch match_schedule(const TrainingFacts& facts, const std::vector<LaunchToken>& order);

}  // namespace fsdpbench::foreign
