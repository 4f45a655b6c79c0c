#pragma once

#include "foreign/exchanges.h"
#include "foreign/unused_gathers.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {

// Of explain.json, beside those of job_json.cpp.
template <>
const Fields<foreign::UnusedGathers>& fields<foreign::UnusedGathers>();
template <>
const Fields<foreign::Exchanges>& fields<foreign::Exchanges>();

}  // namespace fsdpbench::app
