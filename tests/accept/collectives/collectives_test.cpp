// Collectives alone: what is counted, what is checked, what is printed.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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
#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "config/support.h"
#include "launch/addresses.h"
#include "launch/local_job.h"
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
  EXPECT_EQ(scatter_of({1, 3}).deviation_us, 1);
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
  std::vector<float> whole = sum;
  for (float& value : whole) value = std::round(3 * value);
  EXPECT_EQ(pattern.wrong_sums(Reduction::sum, 0, std::as_bytes(std::span(whole))), 0);
  whole[5] *= 1 + 2e-6F;
  EXPECT_EQ(pattern.wrong_sums(Reduction::sum, 0, std::as_bytes(std::span(whole))), 1) << "sums are exact";
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

/// The largest value of a pattern, the least one, and how many ranks hold something in one place, at most.
struct Range {
  float most = 0, least = 1e9F;
  int holders = 0;
};

Range range_of(DType dtype, bool reduced, int ranks) {
  constexpr std::size_t kCount = 4000;
  const Pattern pattern(dtype, reduced, ranks, 5);
  std::vector<int> holders(kCount);
  Range range;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::byte> bytes(kCount * static_cast<std::size_t>(size_of(dtype)));
    pattern.fill(rank, 0, bytes);
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto* at = bytes.data() + i * static_cast<std::size_t>(size_of(dtype));
      float value = 0;
      if (dtype == DType::bf16) {
        std::uint16_t half = 0;
        std::memcpy(&half, at, sizeof half);
        value = bf16_to_float(half);
      } else {
        std::memcpy(&value, at, sizeof value);
      }
      range.most = std::max(range.most, value);
      range.least = std::min(range.least, value);
      holders[i] += value > 0 ? 1 : 0;
    }
  }
  range.holders = *std::ranges::max_element(holders);
  return range;
}

TEST(PatternTest, ValuesAreAsLargeAsSumsOfThemStayExact) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Range moved = range_of(dtype, false, 2);
    EXPECT_EQ(moved.least, 1) << "a buffer that nobody wrote to is all zeros";
    EXPECT_EQ(moved.most, 250);
    EXPECT_EQ(range_of(dtype, true, 1).most, 250);
    EXPECT_EQ(range_of(dtype, true, 1).least, 0);
  }
  EXPECT_EQ(range_of(DType::f32, true, 3).most, 250);
  EXPECT_EQ(range_of(DType::bf16, true, 2).most, 128) << "256 is the largest sum that bf16 has";
  EXPECT_EQ(range_of(DType::bf16, true, 64).most, 4);
  EXPECT_EQ(range_of(DType::bf16, true, 256).most, 1);
  const Range many = range_of(DType::bf16, true, 300);
  EXPECT_EQ(many.most, 1);
  EXPECT_LE(many.holders, 150) << "every second rank may hold something in a place";
  EXPECT_GT(many.holders, 75);
}

TEST(PatternTest, AnAverageOfAPowerOfTwoIsExactAndOthersMayBeOffByARounding) {
  const auto wrong_by = [](DType dtype, int ranks, float off) {
    const Pattern pattern(dtype, true, ranks, 3);
    std::vector<float> sum(1), mine(1);
    std::vector<std::uint16_t> halves(1);
    for (int rank = 0; rank < ranks; ++rank) {
      if (dtype == DType::bf16) {
        pattern.fill(rank, 9, std::as_writable_bytes(std::span(halves)));
        mine[0] = bf16_to_float(halves[0]);
      } else {
        pattern.fill(rank, 9, std::as_writable_bytes(std::span(mine)));
      }
      sum[0] += mine[0];
    }
    EXPECT_GT(sum[0], 0);
    sum[0] = sum[0] / static_cast<float>(ranks) * (1 + off);
    if (dtype == DType::f32) return pattern.wrong_sums(Reduction::average, 9, std::as_bytes(std::span(sum)));
    halves[0] = float_to_bf16(sum[0]);
    return pattern.wrong_sums(Reduction::average, 9, std::as_bytes(std::span(halves)));
  };
  EXPECT_EQ(wrong_by(DType::f32, 4, 0), 0);
  EXPECT_EQ(wrong_by(DType::f32, 4, 1e-6F), 1) << "exact";
  EXPECT_EQ(wrong_by(DType::f32, 3, 3.6e-6F), 0) << "two to the -18th is 3.8e-6";
  EXPECT_EQ(wrong_by(DType::f32, 3, 4e-6F), 1);
  EXPECT_EQ(wrong_by(DType::f32, 3, -5e-6F), 1);
  EXPECT_EQ(wrong_by(DType::bf16, 3, 0.012F), 0) << "two to the -6th is 1.6 %";
  EXPECT_EQ(wrong_by(DType::bf16, 3, 0.03F), 1);
}

TEST(TimesTest, AreMicroseconds) {
  EXPECT_THAT(microseconds({{.begin_ns = 1000, .end_ns = 3500}, {.begin_ns = 5000, .end_ns = 5000}}),
              ElementsAre(2.5, 0));
  EXPECT_THAT(microseconds({}), ElementsAre());
}

TEST(BesideTest, EachKindRunsAsLongAsTheSlowestOne) {
  const auto counts = [](double a, double b, double c, int iterations) {
    const auto all = balanced_counts({a, b, c}, iterations);
    return std::vector(all.begin(), all.end());
  };
  EXPECT_THAT(counts(10, 20, 40, 5), ElementsAre(20, 10, 5));
  EXPECT_THAT(counts(40, 30, 0, 5), ElementsAre(5, 7, 5)) << "6.7 and a kind that nobody has timed";
  EXPECT_THAT(counts(1, 64, 65, 2), ElementsAre(128, 3, 2)) << "64 times as many at most";
}

TEST(BesideTest, OnlyOpsThatRanWhileAllWereBusyCount) {
  const Durations all = while_all_ran({std::vector<backend::Stamp>{{0, 10'000}, {10'000, 20'000}, {20'000, 30'000}},
                                       {{5'000, 12'000}, {12'000, 25'000}},
                                       {}});
  EXPECT_THAT(all[0], ElementsAre(10)) << "the one from 10 to 20 us";
  EXPECT_THAT(all[1], ElementsAre(7, 13));
  EXPECT_THAT(all[2], ElementsAre());
  const Durations same = while_all_ran({std::vector<backend::Stamp>{{0, 1'000}}, {{0, 1'000}}, {{0, 1'000}}});
  for (const std::vector<double>& kind : same) EXPECT_THAT(kind, ElementsAre(1));
}

TEST(BesideTest, ProductsNeedRoomForThreeOfTheLargestMatrix) {
  const CollectivesArguments one = arguments_of({{"--beside", ""}, {"--matrix", "256x512x1024"}});
  EXPECT_EQ(beside_bytes(one), 3 * 4 * 1024 * 512);
  for (const char* others : {"256x512x1024,1024x256x1024", "1024x1024x16", "1024x16x1024", "16x1024x1024"}) {
    EXPECT_EQ(beside_bytes(arguments_of({{"--beside", ""}, {"--matrix", others}})), 3 * 4 * 1024 * 1024) << others;
  }
  EXPECT_EQ(product_dtype(one), DType::f32);
  EXPECT_EQ(product_dtype(arguments_of({{"-d", "bfloat16"}})), DType::bf16);
}

TEST(MeasureCollectivesTest, MoreMemoryThanThereIsIsRefusedWithItsSize) {
  const auto refusal = [](const std::vector<std::pair<std::string, std::string>>& options) {
    std::vector<std::pair<std::string, std::string>> all{{"--ranks", "2"}, {"-b", "256T"}};
    all.insert(all.end(), options.begin(), options.end());
    try {
      measure_collectives(arguments_of(all), nullptr, {});
    } catch (const ResourceError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({}), HasSubstr("collectives -e 281474976710656: 2 ranks here need 1.00 PiB of memory, 512.00 TiB "
                                     "each, and "));
  EXPECT_THAT(refusal({{"--beside", ""}}), HasSubstr("2 ranks here need 2.00 PiB of memory, 1.00 PiB each, and "));
}

TEST(MeasureCollectivesTest, OptionsOfTheBackendAreThoseThatWereGiven) {
  const auto options = [](const std::vector<std::pair<std::string, std::string>>& given) {
    return backend_options_for(arguments_of(given), 3, nullptr, 1000);
  };
  const backend::BackendOptions plain = options({{"-T", "9"}});
  EXPECT_EQ(plain.ranks, 3);
  EXPECT_EQ(plain.pool_bytes, 1000);
  EXPECT_EQ(plain.session, nullptr);
  EXPECT_FALSE(plain.get<backend::CpuOptions>().stall_s) << "of threads none waits without an end";
  EXPECT_TRUE(plain.get<backend::CpuOptions>().share_memory);
  const launch::testing::WithVariable no_sharing("FSDPBENCH_SHARE_MEMORY", "0");
  EXPECT_FALSE(options({}).get<backend::CpuOptions>().share_memory);
  backend::BackendOptions gpus = options({{"--backend", "cuda"}, {"-R", "2"}, {"-x", "1"}, {"-T", "0.5"}});
  const backend::NcclOptions nccl = gpus.set<backend::CudaOptions>().nccl;
  EXPECT_EQ(nccl.registration, backend::NcclOptions::Register::window);
  EXPECT_EQ(nccl.cta_policy, backend::NcclOptions::CtaPolicy::efficiency);
  EXPECT_EQ(nccl.timeout_s, 0.5);
  EXPECT_EQ(gpus.category_bytes[index_of(MemoryCategory::communication_buffers)], 1000);
  backend::BackendOptions by_default = options({{"--backend", "cuda"}});
  EXPECT_EQ(by_default.set<backend::CudaOptions>().nccl.registration, backend::NcclOptions::Register::none);
  EXPECT_EQ(by_default.set<backend::CudaOptions>().nccl.timeout_s, backend::NcclOptions{}.timeout_s);
  EXPECT_EQ(by_default.category_bytes[index_of(MemoryCategory::communication_buffers)], 0);
}

struct MeasuredRows {
  std::vector<World::RankPlace> places;
  std::vector<CollectiveRow> rows;
  std::vector<BesideRow> beside;
  std::string text;
};

MeasuredRows measured_rows(const CollectivesArguments& arguments) {
  MeasuredRows m;
  CollectivesListener listener;
  TableEnd end;
  listener.begin = [&](const std::vector<World::RankPlace>& all) { m.places = all; };
  listener.table = [&](Collective op) {
    end = {};
    m.text += nccl_header(arguments, op, static_cast<int>(m.places.size()), m.places, "A processor");
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
    std::size_t tables = 0;
    for (std::size_t at = 0; (at = m.text.find("test starting: ", at)) != std::string::npos; ++at) ++tables;
    EXPECT_EQ(tables, 6U);
    ASSERT_EQ(m.places.size(), std::stoul(ranks));
    for (const World::RankPlace& place : m.places) {
      EXPECT_EQ(place.host, launch::host_name());
      EXPECT_THAT(place.device, ::testing::Contains(::testing::Pair("pid", std::to_string(getpid()))));
    }
    for (const CollectiveRow& row : m.rows) {
      EXPECT_EQ(row.root, row.message.op == Collective::broadcast ? std::optional(std::stoi(ranks) - 1) : std::nullopt);
      EXPECT_TRUE(row.out_of_place);
      EXPECT_EQ(row.reduction.has_value(), row.message.reduces());
      EXPECT_THAT(row.date, ::testing::MatchesRegex("20..-..-.. ..:..:.."));
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

TEST(MeasureCollectivesTest, AJobHasAsManyRanksAsProcesses) {
  launch::testing::run_job(2, [](launch::Session& session, int) {
    const auto asked = [&](const std::vector<std::pair<std::string, std::string>>& options) {
      return ranks_asked_for(arguments_of(options), &session);
    };
    EXPECT_EQ(asked({}), 2);
    EXPECT_EQ(asked({{"-t", "2"}}), 2);
    EXPECT_EQ(asked({{"--ranks", "2"}}), 2);
    EXPECT_EQ(config::config_error([&] {
                asked({{"-g", "3"}});
              }),
              "collectives: 3 ranks were asked for, but a test says that there are 2 processes, one rank each; leave "
              "out -t, -g and --ranks.");
    EXPECT_THAT(config::config_error([&] { asked({{"--ranks", "1"}}); }), HasSubstr("1 ranks were asked for"));
    const CollectivesArguments waits = arguments_of({{"-T", "0.5"}}), for_ever = arguments_of({});
    EXPECT_EQ(backend_options_for(waits, 2, &session, 1).get<backend::CpuOptions>().stall_s, 0.5);
    EXPECT_FALSE(backend_options_for(for_ever, 2, &session, 1).get<backend::CpuOptions>().stall_s);
    EXPECT_EQ(backend_options_for(waits, 2, &session, 1).session, &session);
  });
  EXPECT_EQ(ranks_asked_for(arguments_of({{"-t", "2"}, {"-g", "3"}}), nullptr), 6);
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

/// Timing of one message, whose third timed iteration of four fails.
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

}  // namespace
}  // namespace fsdpbench::app
