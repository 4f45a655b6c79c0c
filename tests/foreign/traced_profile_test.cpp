#include "foreign/traced_profile.h"

#include <gmock/gmock.h>

#include <cmath>

#include "foreign/corpus.h"
#include "foreign/kineto_reader.h"
#include "support/temporary_folder.h"

namespace fsdpbench::app {
namespace {

/// The parts of a made-up model do not cost what the real one's do, FLOP by FLOP: of several sizes on one line.
TEST(TracedProfile, ASimulationOfItTakesWhatTheTracedStepTook) {
  int tried = 0;
  for (const foreign::corpus::CaseSpec& spec : foreign::corpus::all_cases()) {
    if (spec.name != "fsdp1 no-backward-prefetch" && spec.name != "fsdp2 hybrid" && spec.name != "fsdp2 bf16") continue;
    const TemporaryFolder folder;
    for (const foreign::corpus::CaseFile& file : foreign::corpus::make_case(spec).files) {
      folder.write("rank" + std::to_string(file.rank) + ".json", file.json);
    }
    const foreign::JobTrace job = foreign::read_job({folder.path().string()});
    const foreign::Recognition found = foreign::recognise(job);
    const TracedProfile profile = traced_profile(job, found, adopt_job(job, found));
    EXPECT_LT(std::abs(profile.calibration.misses.front().step), 0.03) << spec.name;
    ++tried;
  }
  EXPECT_EQ(tried, 3);
}

}  // namespace
}  // namespace fsdpbench::app
