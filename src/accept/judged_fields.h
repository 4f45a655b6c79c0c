#pragma once

#include "accept/element.h"
#include "accept/robust.h"
#include "accept/step_arms.h"
#include "accept/verdict.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// The fields of what acceptances and gates say.
template <>
Fields<accept::Interval> declared();
template <>
Fields<accept::Place> declared();
template <>
Fields<accept::Judgement> declared();
template <>
Fields<accept::ArmRound> declared();

}  // namespace fsdpbench::app
