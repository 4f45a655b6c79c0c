#pragma once

#include "accept/robust.h"
#include "accept/step_arms.h"
#include "accept/verdict.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// The fields of what acceptances and gates say.
template <>
const Fields<accept::Interval>& fields<accept::Interval>();
template <>
const Fields<accept::Judgement>& fields<accept::Judgement>();
template <>
const Fields<accept::ArmRound>& fields<accept::ArmRound>();

}  // namespace fsdpbench::app
