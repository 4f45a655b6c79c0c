#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "accept/finding.h"
#include "accept/robust.h"

namespace fsdpbench::accept {

/// Measures one round: a PairRate for each pairing, in any order. One that is missing counts as not measured.
using MeasureRound = std::function<std::vector<PairRate>(const Round&)>;

/// Pairs that are slower than the parts that are to blame explain: something else is slow, too, and nobody can tell
/// what.
struct Remainder {
  Interval relative;     ///< what these pairs carry, over what the parts that are to blame leave them
  std::string sentence;  ///< which pairs, how many, and beside whom
};

struct LinkReport {
  std::vector<Finding> findings;
  std::optional<Remainder> remainder;  ///< absent: all that is slow is explained, or nobody is to blame
  std::vector<double> one_way;         ///< of all pairs and rails, GB/s, of the first measurement: for judge_floor
  int rounds = 0;                      ///< with those of the confirmation
  std::int64_t measurements = 0;
  std::vector<int> inferred;  ///< groups of ends that slow pairs showed, by end, where nobody told of any; none: none
  bool compared = false;      ///< false: too few ends; only the floor can be judged
};

/// Measures pairs as first_rounds() has them and says which end, rail, node, pair of ends, switch or path between two
/// switches is slower than its peers: what explains most of the slow pairs comes first, and what it explains blames
/// nobody else. A part is suspected if at least 0.8 of the pairs that use it are slow (by more than 5 %, and three
/// robust deviations). Each suspect is then measured again, against ends that nothing is held against; who is not slow
/// there was slow for a while. Pairs within a group (switch) and between groups are compared with their like. Pairs
/// that stay slower than that explains, each measured again alone, are told without a name.
LinkReport blame_links(const Cluster& cluster, const MeasureRound& measure);

}  // namespace fsdpbench::accept
