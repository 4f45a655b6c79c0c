#pragma once

#include "metrics/cause_advice.h"
#include "metrics/cause_report.h"
#include "metrics/counterfactual.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

template <>
const Fields<metrics::Counterfactual>& fields<metrics::Counterfactual>();
template <>
const Fields<metrics::CauseShare>& fields<metrics::CauseShare>();

/// What a trial says about its causes: "causes", "jitter", "late_ranks", "knobs" and what belongs to them.
const Fields<metrics::CauseReport>& cause_fields();
/// "stalled_ms", which a trial has also where its causes are not told.
const Fields<metrics::CauseReport>& stall_fields();

}  // namespace fsdpbench::app
