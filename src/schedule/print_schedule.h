#pragma once

#include <string>

#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::schedule {

/// Launches by which the orders of other engines are told: gathers and reductions as above, with a star on
/// every prefetch, "AG{0,1}" for a bucket; the beginning of a unit's forward and backward, "F0" and "B0"; "f0" where
/// its parameters are freed; and after "step" what is gathered when the optimizer is done.
std::string host_order(const plan::Plan& plan, const Schedule& schedule);

/// The order of collectives of a step on one line: "AGR AG0 AG1 | AG1* RS1 AG0* RS0 RSR". `*`: prefetched in
/// backward; `|` between forward and backward; `||` between accumulated microbatches; "step" before a gather after the
/// optimizer; "AG{0,1}" for a bucket. ARi follows its RSi.
/// "ARnorm" for the gradient norm of clipping, which others find by an all-reduce, and which is gathered here so that
/// the sum has the order of the ranks.
std::string collective_order(const plan::Plan& plan, const Schedule& schedule);

/// The order in which units are unsharded (U), resharded (S) and post-processed after backward (P), as PyTorch's own
/// tests record it: "UR U0 S0 U1 S1 | U1 U0 S1 P1 S0 P0 SR PR".
std::string issue_order(const plan::Plan& plan, const Schedule& schedule);

/// One line an op: number, lane, name, waits, event, allocations and frees.
std::string op_list(const plan::Plan& plan, const Schedule& schedule);

/// "all_gather 3*", "forward blocks.2", "optimizer R": how an op is named in traces and messages.
std::string op_name(const plan::Plan& plan, const Op& op);

}  // namespace fsdpbench::schedule
