#pragma once

#include "account/cause_report.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

template <>
Fields<account::Counterfactual> declared();
template <>
Fields<account::CauseShare> declared();

/// Fields of a trial's causes: "causes", "jitter", "late_ranks", "knobs" and what belongs to them.
const Fields<account::CauseReport>& cause_fields();
/// "stalled_ms", which a trial has also where its causes are not told.
const Fields<account::CauseReport>& stall_fields();

/// "critical_path" of a run's result and of an explained trace.
template <>
Fields<account::PathReport> declared();

}  // namespace fsdpbench::app
