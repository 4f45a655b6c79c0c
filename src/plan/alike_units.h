#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace fsdpbench::plan {

/// `count` consecutive units, from `first` on, that are split in the same way.
struct AlikeUnits {
  int first = 0;
  int count = 1;

  int last() const { return first + count - 1; }
  bool operator==(const AlikeUnits&) const = default;
};

/// All units of a plan in their order, those folded that differ in nothing but which modules and parameters they hold:
/// the same kinds of modules, shapes, shards and offsets. The root stands alone.
std::vector<AlikeUnits> alike_units(const Plan& plan);

/// "R", "0-31".
std::string unit_names(const Plan& plan, const AlikeUnits& units);
/// "embedding, head", "blocks.0-31 x 32", "blocks.0-1 … blocks.30-31 x 16".
std::string module_names(const Plan& plan, const AlikeUnits& units);

}  // namespace fsdpbench::plan
