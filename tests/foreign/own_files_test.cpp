// This program's own files of a rank, read as any other profiler's.
#include <gmock/gmock.h>

#include "foreign/kineto_reader.h"
#include "support/temporary_folder.h"
#include "trace/gpu_example.h"
#include "trace/rank_writer.h"
#include "trace/support.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(OwnFiles, AreReadAsTheirPageSays) {
  const trace::Example example;
  const TemporaryFolder folder;
  const std::string path = folder / "rank_0.json.gz";
  trace::RankWriter writer(path, example.facts, example.time, example.label());
  for (const trace::TracedStep& step : trace::steps_of(example.trace)) writer.step(step);
  writer.finish();
  const RankRows rows = read_job({path}).ranks.at(0);
  EXPECT_THAT(rows.notes, IsEmpty());
  EXPECT_EQ(rows.rank, 0);
  EXPECT_EQ(rows.world_size, 2);
  ASSERT_THAT(rows.device, SizeIs(2));
  EXPECT_EQ(rows.device[0].kind, Activity::collective);
  EXPECT_EQ(rows.device[0].begin_ns, 150'000);
  EXPECT_EQ(rows.device[0].end_ns, 250'000);
  const CollectiveFacts& facts = rows.collectives.at(static_cast<std::size_t>(rows.device[0].collective));
  EXPECT_EQ(facts.kind, Communication::all_gather);
  EXPECT_EQ(facts.elements_in, 1000);
  EXPECT_EQ(facts.elements_out, 2000);
  EXPECT_EQ(rows.groups.at(static_cast<std::size_t>(facts.group)).description, "shard");
  EXPECT_EQ(rows.device[1].kind, Activity::computation);
  EXPECT_EQ(rows.names.at(static_cast<std::size_t>(rows.device[1].name)), "forward blocks.0");
  EXPECT_EQ(rows.host.at(static_cast<std::size_t>(rows.device[1].launch)).begin_ns, 30'000);
  ASSERT_THAT(rows.steps, SizeIs(2));  // an empty one ends the file
  EXPECT_EQ(rows.steps[0].end_ns, 300'000);
}

}  // namespace
}  // namespace fsdpbench::foreign
