#pragma once

#include "metrics/path_report.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// "critical_path" of a run's result and of an explained trace.
template <>
const Fields<metrics::PathReport>& fields<metrics::PathReport>();

}  // namespace fsdpbench::app
