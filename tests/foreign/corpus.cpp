#include "foreign/corpus.h"

#include <algorithm>
#include <cmath>

#include "foreign/contention.h"
#include "foreign/other_programs.h"

namespace fsdpbench::foreign::corpus {
namespace {

CaseFile file_of(const CaseSpec& spec, int rank, KinetoText& text, std::vector<CollectiveTruth> collectives) {
  if (spec.faults.shuffled) text.shuffle(spec.seed);
  CaseFile file{rank, text.text(), std::move(collectives)};
  file.json.resize(
      static_cast<std::size_t>(std::llround(static_cast<double>(file.json.size()) * (1 - spec.faults.cut_off))));
  return file;
}

}  // namespace

Case make_case(const CaseSpec& spec) {
  Case made{spec, nullptr, {}};
  const auto missing = [&](int rank) {
    return std::ranges::find(spec.faults.missing_ranks, rank) != spec.faults.missing_ranks.end();
  };
  if (spec.system == "inference" || spec.system == "moe") {
    for (int rank = 0; rank < static_cast<int>(spec.config.mesh.ranks); ++rank) {
      KinetoText text = spec.system == "moe" ? write_experts(spec, rank) : write_inference(spec, rank);
      if (!missing(rank)) made.files.push_back(file_of(spec, rank, text, {}));
    }
    return made;
  }
  const double slower = spec.dialect.slower_beside;
  made.run = std::make_shared<const testing::SimulatedRun>(
      spec.config,
      slower == 1 ? testing::SimulatedRun::ChangeTimes() : [slower](const engine::Setup& setup, clock::OpTimes times) {
        return slowed_beside(setup, std::move(times), slower);
      });
  for (std::size_t place = 0; place < made.run->measurement.traces.size(); ++place) {
    const int rank = made.run->measurement.traces[place].rank;
    if (missing(rank)) continue;
    WrittenRank written = write_rank(*made.run, place, spec.dialect, spec.seed + place, spec.faults.clock_ns * rank);
    made.files.push_back(file_of(spec, rank, written.text, std::move(written.collectives)));
  }
  return made;
}

account::CauseReport true_causes(const Case& made) {
  const account::RunMetrics metrics = account::run_metrics(made.run->view, made.run->setup.plan.groups, 1);
  return account::report_causes(made.run->view, made.run->setup, metrics);
}

}  // namespace fsdpbench::foreign::corpus
