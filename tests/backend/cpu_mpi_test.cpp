// The CPU backend in a job of mpirun: every process runs this program and is one rank.

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "backend/copy_backend.h"
#include "backend/support.h"
#include "launch/join.h"

namespace fsdpbench::backend {
namespace {

launch::Session* session = nullptr;

void run_over_mpi(const Body& body) {
  BackendOptions options;
  options.ranks = session->placement().ranks;
  options.session = session;
  make_copy_backend()->run(options, body);
}

TEST(CpuOverMpi, AllRanksGetTheBitsOfTheOrderedSum) {
  for (const std::int64_t count : {0, 1, 7, 1000, 300'007}) {
    run_over_mpi([&](RankContext& rank) {
      check_collectives<float>(rank, count);
      check_collectives<std::uint16_t>(rank, count);
    });
  }
}

TEST(CpuOverMpi, SplitGroupsWorkAtOnce) {
  constexpr std::int64_t kCount = 10'000;
  run_over_mpi([](RankContext& rank) {
    const auto half = rank.world.split(rank.rank % 2, rank.rank);
    std::vector<int> members;
    for (int r = rank.rank % 2; r < rank.world.size(); r += 2) members.push_back(r);
    std::byte* const ours = put(rank.device, values_of<float>(rank.rank, 0, kCount));
    std::byte* const all = put(rank.device, values_of<float>(rank.rank, 0, kCount));
    half->all_reduce(Lane::all_reduce, ours, kCount, DType::f32, 1.0F, nullptr);
    rank.world.all_reduce(Lane::reduce_scatter, all, kCount, DType::f32, 1.0F, nullptr);
    EXPECT_EQ(get<float>(rank.device, ours, kCount), sum_of<float>(members, 0, kCount, 1.0F));
    EXPECT_EQ(get<float>(rank.device, all, kCount), sum_of<float>(first_ranks(rank.world.size()), 0, kCount, 1.0F));
  });
}

}  // namespace
}  // namespace fsdpbench::backend

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::optional<fsdpbench::launch::Placement> placement =
      fsdpbench::launch::find_placement(fsdpbench::launch::process_environment());
  if (!placement) return 2;
  const std::unique_ptr<fsdpbench::launch::Session> session = fsdpbench::launch::join(*placement);
  fsdpbench::backend::session = session.get();
  return RUN_ALL_TESTS();
}
