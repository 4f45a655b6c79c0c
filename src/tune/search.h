#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "clock/machine.h"
#include "tune/bound.h"
#include "tune/space.h"

namespace fsdpbench::tune {

/// Meaning of "better".
enum class Objective : std::uint8_t {
  step,          ///< the shorter step, then the less memory
  memory,        ///< the less memory, of steps no longer than the one in force
  tokens_per_s,  ///< the more tokens a second, whatever the global batch
};
std::string_view to_string(Objective objective);

/// A policy whose step was computed.
struct Tried {
  Point point;
  double step_ns = 0;
  double tokens = 0;  ///< of one step, all ranks; mlp: samples
  MemoryNeed need;
  bool exact = true;  ///< false: `need` is a lower bound, of a policy that another beats in both or that cannot fit
  std::int64_t predicted_bytes = 0;  ///< in the budget's kind of memory
  std::int64_t margin_bytes = 0;
  bool fits = true;
  bool retries =
      false;  ///< it fits only where the allocator returns cached memory to the driver, whose time is not known
  std::uint64_t fingerprint = 0;
};

struct SearchOptions {
  Objective objective = Objective::step;
  MemoryBudget budget;
  std::int64_t evaluations = 20'000;  ///< policies whose step is computed, at most
  std::size_t structures = 20'000;    ///< whose bounds are computed, at most, unless more policies may be evaluated
  bool any_step = false;              ///< of Objective::memory: also if the step is longer
  bool exhaustive = false;            ///< compute the step of every policy, and prune nothing
  std::uint64_t seed = 1;             ///< of the order in which policies are tried where nothing speaks for either
  int threads = 2;
  std::function<bool()> stop;  ///< asked between policies, from any thread; true: end with what there is
};

/// Progress of a search.
struct SearchProgress {
  const char* doing = "";
  double considered = 0, all = 0;
  std::optional<Tried> best;  ///< that fits
};

struct SearchResult {
  std::vector<Tried> tried;         ///< in the order in which they were found, the one in force first
  std::optional<std::size_t> best;  ///< of `tried`; absent: nothing fits
  double evaluated = 0;             ///< policies whose step was computed
  double same = 0;                  ///< whose schedule is that of another, op for op
  double contradictory = 0;         ///< that no engine can do
  double pruned = 0;                ///< whose bound says that they are no better, or do not fit
  double left = 0;                  ///< of which nothing is known but their bound
  std::uint64_t seed = 1;
  double bound = 0;     ///< no policy can be better than this: of the objective, nanoseconds, bytes or ns a token
  bool bounded = true;  ///< false: nothing bounds some policies that are left, and `bound` is 0
  bool stopped = false;

  const Tried& start() const { return tried.front(); }
  double considered() const { return evaluated + same + contradictory + pruned; }
};

/// The objective of a policy: smaller is better, whether it fits or not.
double objective_of(Objective objective, const Tried& tried);

/// Most by which the optimum may lie below the best's objective, as a share; 0: it is the optimum.
double optimality_gap(Objective objective, const SearchResult& result);

/// The best policy of `space` on `machine`. Deterministic: what is found depends on the arguments but `threads` and
/// `stop`.
///
/// [Note: the search]
/// First come the single changes of the policy in force. From the best of these one axis after another is turned until
/// none gains.
///
/// Policies of one structure have the same ops in another order, so one bound is all theirs. Structures are bounded
/// (of too many only some, drawn with the seed: axes are turned from those to the others), those that cannot fit or
/// cannot be the best go, and from the others three orders are tried each: as in force, with everything prefetched,
/// with as little memory as possible. From the best of them axes are turned as before. What then may still be better is
/// tried order by order, the smallest bound first, until nothing is left or `evaluations` are spent. The answer is the
/// policy with the least memory among those within 0.1 % of the best found.
SearchResult search(const Space& space, const clock::Machine& machine, const SearchOptions& options,
                    const std::function<void(const SearchProgress&)>& progress = {});

/// The step and the memory of one policy of a valid configuration, as search() computes them; `point` is not looked at.
Tried evaluate(const config::RunConfig& config, const clock::Machine& machine, const MemoryBudget& budget);

}  // namespace fsdpbench::tune
