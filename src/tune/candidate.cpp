#include "tune/candidate.h"

#include <bit>
#include <utility>

#include "schedule/build_schedules.h"
#include "schedule/policy.h"

namespace fsdpbench::tune {
namespace {

/// FNV-1a, a word at a time.
class Hash {
 public:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3ULL;
    value_ ^= value_ >> 29;
  }
  template <class Number>
  void add_number(Number number) {
    add(static_cast<std::uint64_t>(number));
  }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

void add(const schedule::Op& op, const plan::Groups& groups, Hash& hash) {
  hash.add_number(static_cast<int>(op.kind) | static_cast<int>(index_of(op.lane)) << 8 |
                  static_cast<int>(op.group()) << 16);
  hash.add_number(op.module);
  if (const schedule::Collective* collective = op.collective()) {
    hash.add_number(collective->bytes());
    hash.add_number(groups.size(op.group()));
    hash.add_number(groups.members(op.group(), 0).stride);
  }
  for (const schedule::Wait& wait : op.waits) hash.add_number(wait.event);
  hash.add_number(op.record);
  hash.add_number(op.allocates.size());
  for (const schedule::BufferId id : op.allocates) hash.add_number(id);
  for (const schedule::BufferId id : op.frees) hash.add_number(id);
}

}  // namespace

Candidate make_candidate(const config::RunConfig& config, Sizes sizes) {
  Candidate candidate{config, plan::make_plan(config), std::move(sizes), {}};
  candidate.schedules = schedule::build_schedules(candidate.plan, schedule::make_policy(config), *candidate.sizes);
  return candidate;
}

std::uint64_t fingerprint(const Candidate& candidate) {
  Hash hash;
  for (const schedule::Schedule& step : candidate.schedules.steps) {
    hash.add_number(step.ops.size());
    for (const schedule::Op& op : step.ops) add(op, candidate.plan.groups, hash);
    for (const schedule::Buffer& buffer : step.buffers) hash.add_number(buffer.bytes);
  }
  // What a module computes shows in what it takes, not in the schedule.
  for (const plan::ModuleSizes& module : *candidate.sizes) hash.add(module.forward_flops);
  hash.add_number(static_cast<int>(candidate.plan.param_dtype));
  hash.add(candidate.config.fsdp.recompute_share);
  hash.add_number(candidate.config.fsdp.fp8_products);
  return hash.value();
}

}  // namespace fsdpbench::tune
