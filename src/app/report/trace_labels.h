#pragma once

#include <cstdint>
#include <vector>

#include "engine/setup.h"
#include "trace/facts.h"

namespace fsdpbench::app {

/// How every op of a setup's schedules is shown in traces. Made once: a writer asks for a label at every record. A
/// trace::LabelOf.
class TraceLabels {
 public:
  explicit TraceLabels(const engine::Setup& setup);

  /// `step`: number over the whole run, warm-up counted; `op`: index into its schedule.
  const trace::OpLabel& operator()(std::int32_t step, std::int32_t op) const;

 private:
  std::vector<std::vector<trace::OpLabel>> by_step_;
};

/// Who a rank is, for its file.
trace::RankFacts rank_facts(const engine::Setup& setup, int rank);

}  // namespace fsdpbench::app
