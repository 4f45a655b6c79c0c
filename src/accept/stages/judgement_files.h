#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accept/element.h"
#include "accept/robust.h"
#include "accept/stages/measure_acceptance.h"
#include "accept/step_arms.h"
#include "accept/verdict.h"
#include "config/accuracy.h"
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

/// The rule that says how much of the processors other programs took, from kQuietShare on; unrated.
inline constexpr const char* kOtherWorkRule = "other work";

/// Judges facts other than rates: who the ranks are (every fact is to be what most of them say; each that differs is
/// named with what it has instead), whether all came, and what carried their bytes.
std::vector<accept::Judgement> judge_facts(const config::Acceptance& wanted, const AcceptanceMeasurements& measured);

/// Verdicts as continuous integrations read them: one suite called `suite`, a test case for each figure of a rule,
/// which has the worst verdict of the figure's parts, so that its cases are the same whoever is to blame. Fail is a
/// failure, inconclusive an error, unrated skipped. The form is that of Ant's reports with what Jenkins reads besides:
/// docs/accept.md. Places are in the `system-out` of a case. `seconds`: what it all took; `host`: where; `date`: ISO
/// 8601, any of them empty or 0 if not known.
struct JunitSuite {
  std::string_view suite;
  std::string_view host = {};
  std::string_view date = {};
  double seconds = 0;
  std::string_view headline = {};  ///< the verdict in a sentence; a property of the suite
};
/// "host node7, device PCI 0000:4e:00.0, NIC mlx5_2, which receives": as much of it as is known.
std::string place_text(const accept::Place& place);

std::string junit_xml(const JunitSuite& suite, std::span<const accept::Judgement> judgements);

}  // namespace fsdpbench::app
