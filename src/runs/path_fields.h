#pragma once

#include "account/path_report.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// "critical_path" of a run's result and of an explained trace.
template <>
const Fields<account::PathReport>& fields<account::PathReport>();

}  // namespace fsdpbench::app
