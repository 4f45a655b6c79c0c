#include "accept/stages/check_acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "accept/judged_fields.h"
#include "accept/verdict.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

constexpr std::int64_t kLargestCount = 1'000'000'000;  // of ranks, nodes

/// Verdicts that their own evidence contradicts: somebody has changed one of them.
void check_verdicts(const JsonPart& j, const std::vector<accept::Judgement>& judgements) {
  for (std::size_t i = 0; i < judgements.size(); ++i) {
    const accept::Judgement& one = judgements[i];
    const bool passes_below = one.verdict == accept::Verdict::pass && one.bound && one.value.n > 0 &&
                              one.rule == "floor" && one.value.low < *one.bound;
    if (passes_below) {
      j.at("judgements")
          .list()[i]
          .at("verdict")
          .refuse(fmt::format("no \"pass\", as {} to {} {} is not all above {}", one.value.low, one.value.high,
                              one.unit, *one.bound));
    }
  }
  if (!j.has("findings")) return;
  for (const JsonPart& finding : j.at("findings").list()) {
    if (finding.at("kind").text() == "transient") continue;
    if (std::ranges::count(judgements, accept::Verdict::fail, &accept::Judgement::verdict) > 0) continue;
    finding.at("kind").refuse(
        fmt::format("\"transient\", as no rule failed, or a rule that fails because of {}", finding.at("part").text()));
  }
}

}  // namespace

void check_acceptance(const JsonPart& j) {
  // Fields whose value is a rate or a time.
  constexpr std::array<std::string_view, 4> kPositive{"floor", "ceiling", "tail", "slow-down"};
  (void)j.at("world").members();
  (void)j.at("fabric").text();
  (void)j.at("ranks").whole(1, kLargestCount);
  (void)j.at("nodes").whole(1, kLargestCount);
  std::vector<accept::Judgement> judgements;
  JsonType<std::vector<accept::Judgement>>::read(j.at("judgements"), judgements);
  for (std::size_t i = 0; i < judgements.size(); ++i) {
    if (judgements[i].value.n == 0 || std::ranges::find(kPositive, judgements[i].rule) == kPositive.end()) continue;
    check_positive(j.at("judgements").list()[i].at("value").at("ci_low"));
  }
  check_verdicts(j, judgements);
  accept::Verdict verdict{};
  JsonType<accept::Verdict>::read(j.at("verdict"), verdict);
  if (const accept::Verdict all = accept::overall(judgements); verdict != all) {
    j.at("verdict").refuse(fmt::format("\"{}\", as the judgements have it", to_string(all)));
  }
  if (!j.has("arms")) return;  // it was stopped before
  std::vector<accept::ArmRound> rounds;
  JsonType<std::vector<accept::ArmRound>>::read(j.at("arms").at("rounds"), rounds);
  if (!rounds.empty() && rounds.size() < kFewestArmRounds) {
    j.at("arms").at("rounds").refuse(
        fmt::format("no round, or {} and more, of which there is an interval", kFewestArmRounds));
  }
}

}  // namespace fsdpbench::app
