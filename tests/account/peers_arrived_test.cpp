#include "account/step_view.h"

#include <gtest/gtest.h>

#include "support/schedule_cases.h"

namespace fsdpbench::account {
namespace {

using schedule::Group;

schedule::Op all_reduce_op(Group group) {
  schedule::Op op;
  op.kind = schedule::OpKind::all_reduce;
  op.work = schedule::Collective{.group = group};
  op.lane = Lane::all_reduce;
  return op;
}

/// One step of one collective; rank r begins at begins[r] and ends at 100.
std::vector<trace::RankTrace> traces_of(const std::vector<std::int64_t>& begins) {
  std::vector<trace::RankTrace> traces(begins.size());
  for (std::size_t r = 0; r < begins.size(); ++r) {
    traces[r].records = {{0, 0, 0, begins[r], 100, 0}};
    traces[r].steps = {{0, 100}};
  }
  return traces;
}

std::vector<std::int64_t> arrived(Group group, const plan::Groups& groups, std::vector<trace::RankTrace> traces) {
  schedule::Schedules schedules;
  schedules.steps.resize(1);
  schedules.steps[0].ops = {all_reduce_op(group)};
  fill_peers_arrived(schedules, groups, traces);
  std::vector<std::int64_t> result;
  for (const trace::RankTrace& trace : traces) result.push_back(trace.records[0].peers_arrived_ns);
  return result;
}

plan::Groups mesh_of(int shard, int replicate, int reshard = 1) {
  return plan::Groups(plan::Mesh{shard, replicate}, reshard);
}

TEST(PeersArrived, IsTheLatestBeginInTheGroup) {
  const std::vector<std::int64_t> begins{10, 40, 20, 30};
  using Arrivals = std::vector<std::int64_t>;
  EXPECT_EQ(arrived(Group::shard, mesh_of(4, 1), traces_of(begins)), (Arrivals{40, 40, 40, 40}));
  EXPECT_EQ(arrived(Group::shard, mesh_of(2, 2), traces_of(begins)), (Arrivals{40, 40, 30, 30}));
  EXPECT_EQ(arrived(Group::shard, mesh_of(2, 1), traces_of({40, 10})), (Arrivals{40, 40}));
  EXPECT_EQ(arrived(Group::replicate, mesh_of(2, 2), traces_of(begins)), (Arrivals{20, 40, 20, 40}));
  EXPECT_EQ(arrived(Group::reshard, mesh_of(4, 1, 2), traces_of(begins)), (Arrivals{40, 40, 30, 30}));
}

TEST(PeersArrived, NeverLiesOutsideTheRecord) {
  std::vector<trace::RankTrace> traces = traces_of({10, 90});
  traces[0].records[0].end_ns = 60;  // as a corrected clock may make it look
  EXPECT_EQ(arrived(Group::shard, mesh_of(2, 1), traces), (std::vector<std::int64_t>{60, 90}));
}

TEST(PeersArrived, WhatTheDeviceKnewStays) {
  std::vector<trace::RankTrace> traces = traces_of({10, 50});
  traces[0].records[0].peers_arrived_ns = 55;
  EXPECT_EQ(arrived(Group::shard, mesh_of(2, 1), traces), (std::vector<std::int64_t>{55, 50}));
}

TEST(PeersArrived, OtherOpsHaveNone) {
  std::vector<trace::RankTrace> traces = traces_of({10, 50});
  schedule::Schedules schedules;
  schedules.steps.resize(1);
  schedules.steps[0].ops.resize(1);
  schedules.steps[0].ops[0].kind = schedule::OpKind::forward;
  fill_peers_arrived(schedules, mesh_of(2, 1), traces);
  EXPECT_EQ(traces[0].records[0].peers_arrived_ns, 0);
}

/// Two steps of two ops, of which the second is a collective.
TEST(PeersArrived, IsOfEachCollectiveOfEachStep) {
  schedule::Schedules schedules;
  schedules.steps.resize(1);
  schedules.steps[0].ops = {schedule::Op{}, all_reduce_op(Group::shard)};
  std::vector<trace::RankTrace> traces(2);
  for (const int rank : {0, 1}) {
    trace::RankTrace& mine = traces[static_cast<std::size_t>(rank)];
    for (const int step : {0, 1}) {
      mine.steps.push_back({1000 * step, 1000 * step + 100});
      mine.records.push_back({step, 0, 0, 0, 0, 0});
      mine.records.push_back({step, 1, 0, 1000 * step + 10 + 5 * rank * step, 1000 * step + 90, 0});
    }
  }
  fill_peers_arrived(schedules, mesh_of(2, 1), traces);
  for (const trace::RankTrace& mine : traces) {
    EXPECT_EQ(mine.records[0].peers_arrived_ns, 0);
    EXPECT_EQ(mine.records[1].peers_arrived_ns, 10);
    EXPECT_EQ(mine.records[2].peers_arrived_ns, 0);
    EXPECT_EQ(mine.records[3].peers_arrived_ns, 1015);
  }
}

}  // namespace
}  // namespace fsdpbench::account
