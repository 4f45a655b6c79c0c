#include "engine/buffer_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/backend.h"

namespace fsdpbench::engine {
namespace {

using Copy = std::array<std::int64_t, 7>;

std::vector<Copy> numbers(const std::vector<backend::CopyRun>& runs) {
  std::vector<Copy> all;
  for (const backend::CopyRun& r : runs) {
    all.push_back({r.source, r.target, r.rows, r.run, r.source_stride, r.target_stride, r.zero_fill});
  }
  return all;
}

/// Three ranks share 7 rows of 2 and 2 rows of 5: chunks of 6 and 5 elements.
plan::ShardLayout per_param() {
  plan::ShardLayout layout;
  layout.layout = config::Layout::per_param;
  layout.shards = 3;
  layout.shard_numel = 11;
  layout.unsharded_numel = 24;
  layout.sharded = {{0, 14, 0, 7, 2, 3, 0}, {1, 10, 14, 2, 5, 1, 6}};
  return layout;
}

plan::ShardLayout flat() {
  plan::ShardLayout layout;
  layout.shards = 3;
  layout.shard_numel = 11;
  return layout;
}

TEST(BufferTable, GatheredChunksAreCopiedBehindEachOther) {
  EXPECT_EQ(numbers(copy_out_runs(per_param())), (std::vector<Copy>{{0, 0, 3, 6, 11, 6, 0}, {6, 14, 3, 5, 11, 5, 0}}));
  EXPECT_EQ(numbers(copy_out_runs(per_param(), {100, 40})),
            (std::vector<Copy>{{100, 0, 3, 6, 40, 6, 0}, {106, 14, 3, 5, 40, 5, 0}}));
  EXPECT_EQ(numbers(copy_out_runs(flat())), (std::vector<Copy>{{0, 0, 3, 11, 11, 11, 0}}));
  EXPECT_EQ(numbers(copy_out_runs(flat(), {100, 40})), (std::vector<Copy>{{100, 0, 3, 11, 40, 11, 0}}));
}

/// The last rank has one row of the first parameter and none of the second.
TEST(BufferTable, GradientsAreCopiedToTheirRanksAndPaddingIsZero) {
  EXPECT_EQ(numbers(reduce_copy_in_runs(per_param())),
            (std::vector<Copy>{
                {0, 0, 2, 6, 6, 11, 0}, {12, 22, 1, 2, 0, 0, 4}, {14, 6, 2, 5, 5, 11, 0}, {24, 28, 1, 0, 0, 0, 5}}));
  EXPECT_EQ(
      numbers(reduce_copy_in_runs(per_param(), {100, 40})),
      (std::vector<Copy>{
          {0, 100, 2, 6, 6, 40, 0}, {12, 180, 1, 2, 0, 0, 4}, {14, 106, 2, 5, 5, 40, 0}, {24, 186, 1, 0, 0, 0, 5}}));
  plan::ShardLayout one_row = per_param();
  one_row.sharded = {{0, 2, 0, 1, 2, 3, 0}};  // less than a chunk
  EXPECT_EQ(numbers(reduce_copy_in_runs(one_row)),
            (std::vector<Copy>{{0, 0, 1, 2, 0, 0, 4}, {2, 11, 1, 0, 0, 0, 6}, {2, 22, 1, 0, 0, 0, 6}}));
  one_row.sharded = {{0, 0, 0, 0, 2, 0, 0}};
  EXPECT_EQ(numbers(reduce_copy_in_runs(one_row)),
            (std::vector<Copy>{{0, 0, 1, 0, 0, 0, 0}, {0, 11, 1, 0, 0, 0, 0}, {0, 22, 1, 0, 0, 0, 0}}));
  EXPECT_EQ(numbers(reduce_copy_in_runs(flat(), {100, 40})), (std::vector<Copy>{{0, 100, 3, 11, 11, 40, 0}}));
  EXPECT_EQ(numbers(reduce_copy_in_runs(flat())), (std::vector<Copy>{{0, 0, 3, 11, 11, 11, 0}}));
}

TEST(BufferTable, AGroupKeepsItsPart) {
  EXPECT_EQ(numbers(keep_group_runs(per_param(), 2)),
            (std::vector<Copy>{{12, 0, 1, 6, 0, 0, 0}, {24, 6, 1, 5, 0, 0, 0}}));
  EXPECT_EQ(numbers(keep_group_runs(flat(), 2)), (std::vector<Copy>{{22, 0, 1, 11, 0, 0, 0}}));
}

TEST(BufferTable, GapsLieBetweenParameters) {
  using Gaps = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const auto gaps = [](std::vector<std::pair<std::int64_t, std::int64_t>> places, std::int64_t numel) {
    std::vector<plan::ParameterPlacement> placements;
    for (const auto& [offset, count] : places) placements.push_back({0, count, offset, 0, 0, 0, 0});
    return gaps_between(placements, numel);
  };
  EXPECT_EQ(gaps({}, 5), (Gaps{{0, 5}}));
  EXPECT_EQ(gaps({{0, 5}}, 5), Gaps{});
  EXPECT_EQ(gaps({{1, 3}, {4, 2}, {8, 1}}, 12), (Gaps{{0, 1}, {6, 2}, {9, 3}}));
  EXPECT_EQ(gaps({{0, 4}}, 5), (Gaps{{4, 1}}));
}

TEST(BufferTable, GivesBackWhatItTook) {
  using schedule::BufferRole;
  schedule::Schedule first, second;
  first.buffers = {{BufferRole::master_shard, MemoryCategory::parameter_shards, DType::f32, 1, -1, 0, 1000, true},
                   {BufferRole::loss, MemoryCategory::activations, DType::f32, -1, -1, 0, 40, true},
                   {BufferRole::unsharded, MemoryCategory::parameter_shards, DType::f32, 1, -1, 0, 2000, false}};
  second.buffers = first.buffers;
  second.buffers.push_back({BufferRole::unsharded, MemoryCategory::parameter_shards, DType::f32, 2, -1, 0, 600, false});
  backend::cpu::make_cpu_backend()->run({}, [&](backend::RankContext& context) {
    const auto live = [&] { return context.device.memory().live_total; };
    {
      BufferTable table(context.device, first);
      EXPECT_EQ(live(), 1024 + 512);
      EXPECT_EQ(table.persistent(BufferRole::master_shard, 1).data(), table.at(0));
      EXPECT_EQ(table.persistent(BufferRole::master_shard, 1).size(), 1000U);
      EXPECT_EQ(table.persistent(BufferRole::loss, -1).data(), table.at(1));
      EXPECT_EQ(table.persistent(BufferRole::loss, 1).data(), nullptr);
      EXPECT_TRUE(table.persistent(BufferRole::unsharded, 1).empty());
      for (const schedule::Schedule* schedule : {&first, &second, &first}) {
        table.begin_step(*schedule);
        const auto last = static_cast<schedule::BufferId>(schedule->buffers.size() - 1);
        EXPECT_EQ(table.at(last), nullptr);
        table.allocate(last, Lane::compute);
        EXPECT_NE(table.at(last), nullptr);
        EXPECT_EQ(live(), 1024 + 512 + (schedule == &first ? 2048 : 1024));
        table.free(last, Lane::compute);
        EXPECT_EQ(table.at(last), nullptr);
        EXPECT_EQ(live(), 1024 + 512);
      }
    }
    EXPECT_EQ(live(), 0);
  });
}

}  // namespace
}  // namespace fsdpbench::engine
