#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tune/search.h"

namespace fsdpbench::tune {

/// A knob that the answer turns, and what that is worth.
struct TurnedKnob {
  std::size_t axis = 0;
  std::string key;                         ///< Axis::name
  std::string was, is;                     ///< Choice::text
  std::optional<double> alone, last_in;    ///< part of the step: of the one in force, if this alone is turned; of the
                                           ///< answer's, if this is turned last. Absent: contradictory
  std::optional<std::int64_t> more_bytes;  ///< of memory, if it is turned last
};

/// A knob that the answer leaves, and what its other values would do.
struct LeftKnob {
  std::string key;             ///< Axis::name
  double least = 0, most = 0;  ///< change of the answer's step, as a part of it
  bool matters = true;         ///< some value that can be had changes it by more than the least gain that counts
};

/// Result of a search, for people.
struct Answer {
  std::vector<std::size_t> front;  ///< of SearchResult::tried: no other has less memory and a shorter step; by memory
  double gain = 0;                 ///< of the objective against the configuration in force, as a part of that
  /// 95 of 100 such predictions hold; absent: op times are not in doubt, or `unknown`.
  std::optional<double> gain_low, gain_high;
  bool unknown = false;  ///< nobody knows how far the gain can be trusted
  bool keep = false;     ///< the configuration in force fits, and no gain is worth a change
  std::vector<TurnedKnob> turned;
  std::vector<LeftKnob> left;  ///< those with another value that is possible beside the answer
};

/// `result.best` must be there. `least_gain`: parts of the objective below it do not count. Computes some more steps.
Answer make_answer(const Space& space, const clock::Machine& machine, const SearchOptions& options,
                   const SearchResult& result, double least_gain);

/// 95 of 100 gains of `chosen` over `start` on `machine`, as parts of the objective, lie between these: as far from the
/// gain as those of other op times that are as likely, and independently of that `doubt` to both sides. `tokens`: of a
/// step of `start` over those of `chosen`, if the objective is the time of a token; else 1. `changes`: of what is known
/// of the machine, for `chosen` alone.
clock::Bounds gain_bounds(const clock::Machine& machine, const schedule::Training& start,
                          const schedule::Training& chosen, double doubt, double tokens, int threads,
                          const clock::Changes& changes = {});

/// Those of `tried` of which no other has both less memory and a shorter step, the least memory first.
std::vector<std::size_t> pareto_front(const std::vector<Tried>& tried);

}  // namespace fsdpbench::tune
