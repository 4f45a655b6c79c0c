#pragma once

#include <string>

#include "schedule/step_builder.h"
#include "support/schedule_cases.h"

namespace fsdpbench::testing {

/// Parts for Gatherer, Reducer and AllGatherLimiter without a walk: the test calls them itself.
struct StepParts {
  explicit StepParts(const config::RunConfig& config)
      : plan(plan::make_plan(config)),
        sizes(made_up_sizes(plan)),
        policy(schedule::make_policy(config)),
        builder(plan, policy, sizes) {}

  /// The ops written so far, as "copy_in all_gather …"; prefetches carry a star.
  std::string ops() const {
    std::string text;
    for (const schedule::Op& op : builder.step().ops) {
      text += (text.empty() ? "" : " ") + std::string(to_string(op.kind)) + (op.prefetch ? "*" : "");
    }
    return text;
  }
  schedule::Op op(std::size_t i) const { return builder.step().ops.at(i); }
  schedule::Op last_op() const { return builder.step().ops.back(); }
  schedule::BufferRole role(schedule::BufferId id) const {
    return builder.step().buffers.at(static_cast<std::size_t>(id)).role;
  }
  /// The work of op `i`, which must be a `T`.
  template <class T>
  T work(std::size_t i) const {
    return std::get<T>(op(i).work);
  }

  plan::Plan plan;
  std::vector<plan::ModuleSizes> sizes;
  schedule::Policy policy;
  schedule::StepBuilder builder;
};

}  // namespace fsdpbench::testing
