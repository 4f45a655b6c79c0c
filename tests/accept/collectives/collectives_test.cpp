// Collectives alone: what is counted, what is checked, what is printed.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "accept/collectives/beside.h"
#include "accept/collectives/collective_buffers.h"
#include "accept/collectives/collective_timer.h"
#include "accept/collectives/collectives_json.h"
#include "accept/collectives/measure_collectives.h"
#include "arguments_of.h"
#include "base/dtype.h"
#include "base/error.h"
#include "runs/select_backend.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MessageTest, CountsAndBytesAreThoseOfNcclTests) {
  const Message gather = Message::of_size(Collective::all_gather, DType::f32, 1 << 20, 8);
  EXPECT_EQ(gather.count, (1 << 20) / 4 / 8);
  EXPECT_EQ(gather.bytes(), 1 << 20);
  EXPECT_DOUBLE_EQ(gather.bus_factor(), 7.0 / 8);
  EXPECT_EQ(Message::of_size(Collective::all_gather, DType::f32, 8, 8).count, 0);  // no whole 16 bytes a rank
  const Message scatter = Message::of_size(Collective::reduce_scatter, DType::bf16, 1000, 3);
  EXPECT_EQ(scatter.count, 160);  // 166 elements, in steps of 16 bytes
  EXPECT_EQ(scatter.bytes(), 960);
  const Message reduce = Message::of_size(Collective::all_reduce, DType::f32, 1000, 4);
  EXPECT_EQ(reduce.bytes(), 1000);
  EXPECT_DOUBLE_EQ(reduce.bus_factor(), 1.5);
  EXPECT_DOUBLE_EQ(Message::of_size(Collective::broadcast, DType::f32, 1000, 4).bus_factor(), 1);
  const Message exchange = Message::of_size(Collective::all_to_all, DType::f64, 1000, 3);
  EXPECT_EQ(exchange.count, 40);  // 41 elements, in steps of two
  EXPECT_DOUBLE_EQ(exchange.bus_factor(), 2.0 / 3);
  EXPECT_EQ(Message::of_size(Collective::send_recv, DType::bf16, 1001, 3).count, 500);
  EXPECT_DOUBLE_EQ(Message::of_size(Collective::send_recv, DType::bf16, 1001, 3).bus_factor(), 1);
  EXPECT_EQ(type_name(DType::bf16), "bfloat16");
  EXPECT_EQ(to_string(Reduction::average), "avg");
}

TEST(MessageTest, BandwidthIsBytesPerTime) {
  const Message gather = Message::of_size(Collective::all_gather, DType::f32, 1 << 20, 4);
  Timing timing;
  timing.time_us = 1048.576;
  EXPECT_DOUBLE_EQ(timing.algorithm_gb_per_s(gather), 1.0);
  EXPECT_DOUBLE_EQ(timing.bus_gb_per_s(gather), 0.75);
}

TEST(ScatterTest, PercentilesAreNearestRank) {
  std::vector<double> times;
  for (int i = 100; i >= 1; --i) times.push_back(i);
  const Scatter s = scatter_of(times);
  EXPECT_EQ(s.min_us, 1);
  EXPECT_EQ(s.max_us, 100);
  EXPECT_EQ(s.p50_us, 51);  // element n/2, as nccl-tests have it
  EXPECT_EQ(s.p95_us, 95);
  EXPECT_EQ(s.p99_us, 99);
  EXPECT_DOUBLE_EQ(s.mean_us, 50.5);
  EXPECT_NEAR(s.deviation_us, 28.866, 1e-3);
  EXPECT_NEAR(s.cv_pct(), 100 * 28.866 / 50.5, 1e-2);
  times.resize(30);  // 100 to 71
  EXPECT_EQ(scatter_of(times).p50_us, 86);
  EXPECT_EQ(scatter_of(times).p95_us, 99);
  EXPECT_EQ(scatter_of({5}).p99_us, 5);
}

TEST(PatternTest, TellsRanksPlacesAndRoundsApart) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Pattern pattern(dtype, false, 8, 1);
    std::vector<std::byte> bytes(static_cast<std::size_t>(1000 * size_of(dtype)));
    pattern.fill(3, 500, bytes);
    EXPECT_EQ(pattern.wrong(3, 500, bytes), 0);
    EXPECT_GT(pattern.wrong(4, 500, bytes), 900);
    EXPECT_GT(pattern.wrong(3, 501, bytes), 900);
    EXPECT_GT(Pattern(dtype, false, 8, 2).wrong(3, 500, bytes), 900);
    bytes.front() ^= std::byte{0xFF};
    EXPECT_EQ(pattern.wrong(3, 500, bytes), 1);
    std::ranges::fill(bytes, std::byte{0});
    EXPECT_EQ(pattern.wrong(3, 500, bytes), 1000) << "zeros are what a buffer holds that nobody wrote to";
  }
}

TEST(PatternTest, SumsAreExactInWhateverOrder) {
  constexpr std::int64_t kCount = 64;
  for (const int ranks : {1, 2, 3, 64, 129, 300, 1024}) {
    const Pattern pattern(DType::bf16, true, ranks, 7);
    std::vector<std::uint16_t> upwards(kCount), downwards(kCount);
    std::vector<std::uint16_t> mine(kCount);
    const auto add = [&](int rank, std::vector<std::uint16_t>& sums) {
      pattern.fill(rank, 0, std::as_writable_bytes(std::span(mine)));
      for (std::size_t i = 0; i < mine.size(); ++i) {  // rounds after every addition, as a ring in bf16 does
        sums[i] = float_to_bf16(bf16_to_float(sums[i]) + bf16_to_float(mine[i]));
      }
    };
    for (int rank = 0; rank < ranks; ++rank) add(rank, upwards);
    for (int rank = ranks; rank-- > 0;) add(rank, downwards);
    EXPECT_EQ(upwards, downwards);
    EXPECT_EQ(pattern.wrong_sums(Reduction::sum, 0, std::as_bytes(std::span(upwards))), 0) << ranks;
    EXPECT_GT(std::set<std::uint16_t>(upwards.begin(), upwards.end()).size(), 3U) << ranks << " ranks";
  }
}

TEST(PatternTest, AnAverageOfThreeMayBeOffByARounding) {
  const Pattern pattern(DType::f32, true, 3, 7);
  std::vector<float> sum(100), mine(100);
  for (int rank = 0; rank < 3; ++rank) {
    pattern.fill(rank, 0, std::as_writable_bytes(std::span(mine)));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i] * (1.0F / 3);
  }
  EXPECT_EQ(pattern.wrong_sums(Reduction::average, 0, std::as_bytes(std::span(sum))), 0);
  sum[5] += 1.0F / 3;
  EXPECT_EQ(pattern.wrong_sums(Reduction::average, 0, std::as_bytes(std::span(sum))), 1);
  sum[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(pattern.wrong_sums(Reduction::average, 0, std::as_bytes(std::span(sum))), 1);
}

/// Runs `body` on threads of the CPU backend.
void on_ranks(int ranks, const std::function<void(backend::RankContext&)>& body) {
  backend::BackendOptions options;
  options.ranks = ranks;
  select_backend("cpu")->run(options, body);
}

/// A communicator with a defect: it swaps the first two ranks' parts of what it gathers.
class SwappedParts : public backend::Communicator {
 public:
  explicit SwappedParts(backend::RankContext& context) : context_(context) {}
  int rank() const override { return context_.world.rank(); }
  int size() const override { return context_.world.size(); }
  void enqueue(Lane lane, const backend::CollectiveCall& call, backend::Stamp* stamp) override {
    if (call.kind != Collective::all_gather) return;
    context_.world.enqueue(lane, call, stamp);
    const std::int64_t bytes = call.count * size_of(call.dtype);
    std::byte* const output = call.output;
    context_.device.enqueue(
        lane, "swap", [=](backend::Kernels&) { std::swap_ranges(output, output + bytes, output + bytes); }, nullptr);
  }
  void barrier() override {}
  std::unique_ptr<backend::Communicator> split(int, int) override { return nullptr; }
  const backend::WireBytes& wire_bytes() const override { return context_.world.wire_bytes(); }

 private:
  backend::RankContext& context_;
};

TEST(CollectiveBuffersTest, ADefectiveCommunicatorIsFoundOut) {
  on_ranks(2, [](backend::RankContext& context) {
    CollectiveBuffers buffers(context, 1 << 16, Lane::all_gather);
    SwappedParts swapped(context);
    const auto wrong = [&](Collective op, backend::Communicator& communicator) {
      const Message message = Message::of_size(op, DType::f32, 1 << 16, 2);
      const Pattern pattern(DType::f32, message.reduces(), 2, 3);
      buffers.fill(message, true, 1, pattern);
      buffers.issue(communicator, message, true, 1, 1, nullptr);
      context.device.synchronize();
      return buffers.wrong(message, true, Reduction::sum, 1, pattern);
    };
    EXPECT_EQ(wrong(Collective::all_gather, context.world), 0);
    EXPECT_GT(wrong(Collective::all_gather, swapped), 16'000);
    for (const Collective op : {Collective::reduce_scatter, Collective::all_reduce}) {
      EXPECT_EQ(wrong(op, context.world), 0);
      EXPECT_GT(wrong(op, swapped), 4'000);  // nothing was done
    }
    EXPECT_EQ(wrong(Collective::broadcast, context.world), 0);
    EXPECT_EQ(wrong(Collective::broadcast, swapped), context.rank == 1 ? 0 : 16'384);
  });
}

struct MeasuredRows {
  std::vector<CollectiveRow> rows;
  std::vector<BesideRow> beside;
  std::string text;
};

MeasuredRows measured_rows(const CollectivesArguments& arguments) {
  MeasuredRows m;
  CollectivesListener listener;
  std::vector<World::RankPlace> places;
  TableEnd end;
  listener.begin = [&](const std::vector<World::RankPlace>& all) { places = all; };
  listener.table = [&](Collective op) {
    end = {};
    m.text += nccl_header(arguments, op, static_cast<int>(places.size()), places, "A processor");
  };
  listener.row = [&](const CollectiveRow& row) {
    m.rows.push_back(row);
    end.add(row);
    m.text += nccl_row(arguments, row);
  };
  listener.table_end = [&](Collective op) { m.text += nccl_footer(end, op); };
  listener.beside = [&](const BesideRow& row) { m.beside.push_back(row); };
  measure_collectives(arguments, nullptr, listener);
  return m;
}

TEST(MeasureCollectivesTest, EveryElementOfEveryCollectiveIsRight) {
  for (const char* const ranks : {"1", "2", "3"}) {
    const MeasuredRows m =
        measured_rows(arguments_of({{"--op-list", "all_gather,reduce_scatter,all_reduce,broadcast,alltoall,sendrecv"},
                                    {"--ranks", ranks},
                                    {"--root", std::to_string(std::stoi(ranks) - 1)},
                                    {"-b", "4"},
                                    {"-e", "64K"},
                                    {"-f", "128"},
                                    {"-n", "3"},
                                    {"-c", "2"},
                                    {"-d", "all"},
                                    {"-o", "all"}}));
    // 3 sizes of 2 types; two collectives reduce in 2 ways.
    EXPECT_EQ(m.rows.size(), 3U * (2 + 4 + 4 + 2 + 2 + 2));
    EXPECT_THAT(m.text, HasSubstr("Collective test concluded: sendrecv")) << "after each table";
    for (const CollectiveRow& row : m.rows) {
      EXPECT_EQ(row.root, row.message.op == Collective::broadcast ? std::optional(std::stoi(ranks) - 1) : std::nullopt);
      EXPECT_TRUE(row.out_of_place);
      EXPECT_EQ(row.in_place.has_value(), row.message.can_be_in_place());
      for (const auto& timing : {row.out_of_place, row.in_place}) {
        if (!timing) continue;
        EXPECT_EQ(timing->wrong, 0) << to_string(row.message.op) << ' ' << row.message.bytes();
        EXPECT_EQ(timing->iterations_us.size(), 3U);
        EXPECT_EQ(timing->rank_us.size(), static_cast<std::size_t>(row.message.ranks));
      }
    }
  }
}

TEST(MeasureCollectivesTest, ARootThatThereIsNotIsRefused) {
  EXPECT_THROW(measured_rows(arguments_of({{"--ranks", "2"}, {"--root", "2"}})), ConfigError);
}

/// A communicator that fails once: of what it is asked for, one collective leaves a wrong element on rank 1, or is not
/// done at all.
class FailsOnce : public backend::Communicator {
 public:
  enum class How : std::uint8_t { wrong_element, not_done };
  FailsOnce(backend::RankContext& context, How how, int which) : context_(context), how_(how), which_(which) {}
  int rank() const override { return context_.world.rank(); }
  int size() const override { return context_.world.size(); }
  void enqueue(Lane lane, const backend::CollectiveCall& call, backend::Stamp* stamp) override {
    const bool fails = calls_++ == which_;
    if (fails && how_ == How::not_done) return;
    context_.world.enqueue(lane, call, stamp);
    if (!fails || rank() != 1) return;
    std::byte* const output = call.output;
    context_.device.enqueue(
        lane, "plant", [=](backend::Kernels&) { *output ^= std::byte{1}; }, nullptr);
  }
  void barrier() override { context_.world.barrier(); }
  std::unique_ptr<backend::Communicator> split(int, int) override { return nullptr; }
  const backend::WireBytes& wire_bytes() const override { return context_.world.wire_bytes(); }

 private:
  backend::RankContext& context_;
  const How how_;
  const int which_;
  int calls_ = 0;
};

/// Of one message, whose third timed iteration of four fails.
Timing timing_that_fails_once(FailsOnce::How how, const Message& message, bool in_place, bool check_all) {
  CollectivesArguments arguments = arguments_of({{"-b", "4K"}, {"-n", "4"}, {"-w", "2"}, {"-c", "1"}});
  arguments.check_all = check_all;
  Timing timing;
  RankMeeting meeting(message.ranks, nullptr);
  on_ranks(message.ranks, [&](backend::RankContext& context) {
    FailsOnce once(context, how, 1 + 2 + 2);  // after the check before timing and those that warm up
    backend::RankContext fails{context.rank, context.device, once};
    const Timing mine = CollectiveTimer(arguments, fails, meeting).timing(message, Reduction::sum, in_place);
    if (context.rank == 0) timing = mine;
  });
  return timing;
}

TEST(CheckAllTest, WrongDataOfATimedIterationIsFoundByItAlone) {
  using enum Collective;
  for (const Collective op : {all_gather, reduce_scatter, all_reduce, broadcast, all_to_all, send_recv}) {
    const Message message = Message::of_size(op, DType::f32, 4096, 3);
    for (const bool in_place : {false, true}) {
      if (in_place && !message.can_be_in_place()) continue;
      for (const auto how : {FailsOnce::How::wrong_element, FailsOnce::How::not_done}) {
        const std::string what =
            fmt::format("{}{} {}", to_string(op), in_place ? " in place" : "", static_cast<int>(how));
        const Timing sampled = timing_that_fails_once(how, message, in_place, false);
        EXPECT_EQ(sampled.wrong, 0) << what;
        EXPECT_THAT(sampled.iteration_wrong, ElementsAre()) << what;
        const Timing all = timing_that_fails_once(how, message, in_place, true);
        ASSERT_EQ(all.iteration_wrong.size(), 4U) << what;
        const std::int64_t wrong = all.iteration_wrong[2];
        EXPECT_THAT(all.iteration_wrong, ElementsAre(0, 0, wrong, 0)) << what;
        EXPECT_EQ(all.wrong, wrong) << what;
        if (how == FailsOnce::How::wrong_element) {
          EXPECT_EQ(wrong, 1) << what;
          EXPECT_THAT(all.rank_wrong, ElementsAre(0, 1, 0)) << what;
        } else {
          EXPECT_GT(wrong, message.count / 2) << what;
        }
        EXPECT_EQ(all.iterations_us.size(), 4U);
      }
    }
  }
}

TEST(CheckAllTest, NothingIsWrongWhereNothingFails) {
  for (const char* const checks : {"0", "2"}) {
    const MeasuredRows m =
        measured_rows(arguments_of({{"--op-list", "all_gather,reduce_scatter,all_reduce,broadcast,alltoall,sendrecv"},
                                    {"--ranks", "3"},
                                    {"-b", "4"},
                                    {"-e", "64K"},
                                    {"-f", "128"},
                                    {"-n", "3"},
                                    {"-c", checks},
                                    {"--check-all", ""},
                                    {"-d", "all"},
                                    {"-o", "all"}}));
    EXPECT_EQ(m.rows.size(), 3U * (2 + 4 + 4 + 2 + 2 + 2));
    for (const CollectiveRow& row : m.rows) {
      for (const auto& timing : {row.out_of_place, row.in_place}) {
        if (!timing) continue;
        EXPECT_EQ(timing->wrong, 0) << to_string(row.message.op) << ' ' << row.message.bytes();
        EXPECT_THAT(timing->iteration_wrong, ElementsAre(0, 0, 0));
        EXPECT_GT(timing->time_us, 0);
      }
    }
    EXPECT_THAT(m.text, HasSubstr("every timed iteration is checked"));
  }
}

TEST(MeasureCollectivesTest, ASlowRankDecidesTheTime) {
  Timing of_most, of_mean;
  const std::vector<double> ranks{10, 10, 10, 50};
  EXPECT_EQ(over_ranks(OverRanks::most, ranks), 50);
  EXPECT_EQ(over_ranks(OverRanks::mean, ranks), 20);
  EXPECT_EQ(over_ranks(OverRanks::least, ranks), 10);
  EXPECT_EQ(over_ranks(OverRanks::rank_0, ranks), 10);
  EXPECT_EQ(CollectivesArguments{}.over_ranks, OverRanks::most);
}

TEST(MeasureCollectivesTest, BesideEachOther) {
  const MeasuredRows m =
      measured_rows(arguments_of({{"--ranks", "2"}, {"-b", "64K"}, {"-n", "5"}, {"--beside", ""}, {"--matrix", "64"}}));
  ASSERT_EQ(m.beside.size(), 1U);
  const BesideRow& row = m.beside.front();
  for (std::size_t who = 0; who < kNeighbours; ++who) {
    ASSERT_TRUE(row.alone_us[who]);
    EXPECT_GT(*row.alone_us[who], 0);
    EXPECT_FALSE(row.beside_us[who][who]);
  }
  EXPECT_THAT(beside_table(row), HasSubstr("beside all_gather"));
}

TEST(MeasureCollectivesTest, BesideProductsOfSeveralShapes) {
  const MeasuredRows m = measured_rows(
      arguments_of({{"--ranks", "2"}, {"-b", "4K"}, {"-n", "3"}, {"--beside", ""}, {"--matrix", "32,16x64x8"}}));
  ASSERT_EQ(m.beside.size(), 2U);
  EXPECT_EQ(m.beside[0].matrix, (ProductShape{32, 32, 32}));
  EXPECT_EQ(m.beside[1].matrix, (ProductShape{16, 64, 8}));
  EXPECT_EQ(m.beside[1].max_ctas, 0);
  for (const BesideRow& row : m.beside) EXPECT_TRUE(row.alone_us[static_cast<std::size_t>(Neighbour::matrix_product)]);
  EXPECT_THAT(beside_table(m.beside[0]), HasSubstr("matrices 32 x 32:"));
  EXPECT_THAT(beside_table(m.beside[1]), HasSubstr("matrices 16 x 8 and 8 x 64:"));
}

/// Messages larger than what is filled and checked at a time.
TEST(CollectiveBuffersTest, AWrongElementIsFoundWhereverItIs) {
  constexpr std::int64_t kBytes = 9 << 20;
  on_ranks(2, [](backend::RankContext& context) {
    CollectiveBuffers buffers(context, kBytes, Lane::all_gather);
    const Message message = Message::of_size(Collective::broadcast, DType::f32, kBytes, 2);
    const Pattern pattern(DType::f32, false, 2, 3);
    for (const bool in_place : {false, true}) {
      buffers.fill(message, in_place, 0, pattern);
      buffers.issue(context.world, message, in_place, 1, 0, nullptr);
      context.device.synchronize();
      EXPECT_EQ(buffers.wrong(message, in_place, Reduction::sum, 0, pattern), 0);
      EXPECT_EQ(buffers.wrong(message, in_place, Reduction::sum, 1, pattern) > message.count / 2, true)
          << "it is not what the other would have sent";
    }
  });
}

}  // namespace
}  // namespace fsdpbench::app
