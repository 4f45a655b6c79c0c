#include "engine/done_steps.h"

namespace fsdpbench::engine {

trace::RankTrace DoneSteps::copy() const {
  trace::RankTrace t;
  t.rank = trace_->rank;
  if (windows_ == 0) return t;
  // Not through begin() and end(): the rank's own thread may be appending behind what was published.
  t.steps.assign(trace_->steps.data(), trace_->steps.data() + windows_);
  t.records.assign(trace_->records.data(), trace_->records.data() + records_);
  t.memory.assign(trace_->memory.data(), trace_->memory.data() + samples_);
  return t;
}

DoneSteps::Snapshot DoneSteps::snapshot() const {
  const std::lock_guard lock(mutex_);
  return {steps_, trace_ == nullptr ? kept_ : copy()};
}

void DoneSteps::publish(const trace::RankTrace& trace, std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  trace_ = &trace;
  steps_ = steps;
  windows_ = trace.steps.size();
  records_ = trace.records.size();
  samples_ = trace.memory.size();
}

void DoneSteps::withdraw() {
  const std::lock_guard lock(mutex_);
  if (trace_ == nullptr) return;
  kept_ = copy();
  trace_ = nullptr;
}

}  // namespace fsdpbench::engine
