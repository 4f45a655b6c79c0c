#pragma once

#include <compare>
#include <vector>

#include "schedule/schedule.h"

namespace fsdpbench::account {

/// What makes an op the same one in the schedules of different steps, where its index differs: what it does to what,
/// and how many equal ones came before it in its step.
struct OpKey {
  schedule::OpKind kind = schedule::OpKind::forward;
  schedule::Group group = schedule::Group::none;
  schedule::Phase phase = schedule::Phase::forward;
  int unit = -1;
  int module = -1;
  int micro = 0;
  bool prefetch = false;
  int occurrence = 0;
  auto operator<=>(const OpKey&) const = default;
};

/// The key of every op of a schedule, by index; no two are equal.
std::vector<OpKey> op_keys(const schedule::Schedule& schedule);

}  // namespace fsdpbench::account
