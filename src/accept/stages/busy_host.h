#pragma once

#include <vector>

#include "accept/finding.h"
#include "accept/stages/measure_acceptance.h"
#include "accept/verdict.h"

namespace fsdpbench::app {

/// By how much more CPU ranks may have reached if other programs had taken nothing: 1 / (1 - what these took of the
/// processors). 1 on GPUs, and where they took less than kQuietShare.
double may_be_faster(const AcceptanceMeasurements& measured);

/// The same of what processors do beside GPUs, as copies in their memory.
double host_may_be_faster(const AcceptanceMeasurements& measured);

/// What other programs took is an uncertainty of all that CPU ranks measured: a rule that fails, and would not if they
/// had been faster by that much (on_host: also of ranks on GPUs), is inconclusive, and a part that is slow by no more than that was slow for a while.
/// Figures that were emulated keep their own time, so findings that rest on them stay.
void soften(const AcceptanceMeasurements& measured, std::vector<accept::Judgement>& judgements,
            std::vector<accept::Finding>& findings);

}  // namespace fsdpbench::app
