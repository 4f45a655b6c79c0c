// Collectives alone: what is counted, what is checked, what is printed.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "accept/collectives/beside.h"
#include "accept/collectives/collective_buffers.h"
#include "accept/collectives/collective_timer.h"
#include "accept/collectives/collectives_json.h"
#include "accept/collectives/collectives_options.h"
#include "accept/collectives/measure_collectives.h"
#include "base/dtype.h"
#include "base/error.h"
#include "config/support.h"
#include "runs/result_file.h"
#include "runs/select_backend.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using config::config_error;
using config::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

CollectivesArguments arguments_of(const std::vector<std::pair<std::string, std::string>>& options) {
  CollectivesArguments arguments;
  for (const auto& [name, value] : options) read_option(arguments, name, value);
  settle(arguments);
  return arguments;
}

std::string refusal(const std::vector<std::pair<std::string, std::string>>& options) {
  return config_error([&] { arguments_of(options); });
}

TEST(CollectivesOptionsTest, SizesAreReadAsNcclTestsReadThem) {
  EXPECT_THAT(sweep_sizes(arguments_of({{"-b", "8"}, {"-e", "64"}, {"-f", "2"}})), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(sweep_sizes(arguments_of({{"-b", "1k"}, {"-e", "3K"}, {"-i", "1K"}})), ElementsAre(1024, 2048, 3072));
  EXPECT_THAT(sweep_sizes(arguments_of({})), ElementsAre(32 << 20));
  EXPECT_THAT(sweep_sizes(arguments_of({{"--minbytes", "8G"}})), ElementsAre(std::int64_t{8} << 30));
  EXPECT_THAT(sweep_sizes(arguments_of({{"-b", "2GB"}})), ElementsAre(2'000'000'000));
}

TEST(CollectivesOptionsTest, WhatCannotBeDoneIsRefusedInASentence) {
  EXPECT_THAT(refusal({{"-G", "1"}}), HasSubstr("--cudagraph '1': only 0 is possible"));
  EXPECT_THAT(refusal({{"-d", "half"}}), HasSubstr("expected float, bfloat16"));
  EXPECT_THAT(refusal({{"-o", "prod"}}), HasSubstr("expected sum, avg or all"));
  EXPECT_THAT(refusal({{"-b", "8 apples"}}), HasSubstr("'8 apples': expected a size"));
  EXPECT_THAT(refusal({{"-b", "8"}, {"-e", "4"}}), HasSubstr("below the smallest"));
  EXPECT_THAT(refusal({{"-b", "0"}, {"-e", "4"}, {"-f", "2"}}), HasSubstr("never grow"));
  EXPECT_THAT(refusal({{"-n", "5"}, {"-K", "5"}}), HasSubstr("nothing is left"));
  EXPECT_THAT(refusal({{"--ranks", "4"}, {"-g", "8"}}), HasSubstr("differ"));
  EXPECT_THAT(refusal({{"-R", "2"}}), HasSubstr("--backend cuda"));
  EXPECT_THAT(refusal({{"--slow-link", "1"}}), HasSubstr("--link-gb-per-s"));
  EXPECT_THAT(refusal({{"--op-list", "all_gather,scatter"}}), HasSubstr("no operation 'scatter'"));
  EXPECT_THAT(refusal({{"--check-all", ""}, {"-m", "2"}}), HasSubstr("use -m 1"));
  EXPECT_THAT(refusal({{"--check-all", "1"}, {"--beside", ""}}), HasSubstr("--beside checks no data"));
  EXPECT_THAT(refusal({{"--what", "1"}}), HasSubstr("no option --what"));
}

// The table of 2.19.6, src/common.cu.
TEST(CollectivesOptionsTest, NamesAreThoseOfNcclTests) {
  for (const char* names : {"-t,--nthreads",
                            "-g,--ngpus",
                            "-b,--minbytes",
                            "-e,--maxbytes",
                            "-i,--stepbytes",
                            "-f,--stepfactor",
                            "-n,--iters",
                            "-m,--agg_iters",
                            "-w,--warmup_iters",
                            "-N,--run_cycles",
                            "-p,--parallel_init",
                            "-c,--check",
                            "-o,--op",
                            "-d,--datatype",
                            "-r,--root",
                            "-z,--blocking",
                            "-y,--stream_null",
                            "-T,--timeout",
                            "-G,--cudagraph",
                            "-C,--report_cputime",
                            "-J,--output_file",
                            "-S,--report_timestamps",
                            "-a,--average",
                            "-R,--local_register",
                            "-x,--cta_policy",
                            "-V,--device_cta_count",
                            "-M,--memory",
                            "-u,--unalign",
                            "-I,--per_iter_timing",
                            "-K,--per_iter_skip",
                            "-D,--device_implementation"}) {
    EXPECT_TRUE(std::ranges::any_of(collectives_options(), [&](const auto& o) { return o.names == names; })) << names;
  }
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"-z", "3"}, {"-u", "2"}, {"-G", "1"}, {"-D", "1"}, {"-V", "16"}, {"-M", "1"}, {"-y", "1"}}) {
    EXPECT_NE(refusal({{name, value}}), "") << name;
  }
}

TEST(CollectivesOptionsTest, WhatWasGivenMakesTheSameArgumentsElsewhere) {
  const CollectivesArguments first =
      arguments_of({{"--op-list", "all_reduce_perf,broadcast"}, {"-b", "4K"}, {"-I", ""}, {"-a", "1"}});
  CollectivesArguments second;
  for (const auto& [name, value] : first.given) read_option(second, name, value);
  EXPECT_THAT(second.ops, ElementsAre(Collective::all_reduce, Collective::broadcast));
  EXPECT_EQ(second.least_bytes, 4096);
  EXPECT_TRUE(second.per_iteration);
  EXPECT_EQ(second.over_ranks, OverRanks::mean);
}

TEST(CollectivesOptionsTest, EachOptionSetsItsArgument) {
  const CollectivesArguments a = arguments_of({{"-b", "4K"},
                                               {"-e", "8k"},
                                               {"-i", "2K"},
                                               {"-n", "7"},
                                               {"-w", "3"},
                                               {"-N", "5"},
                                               {"-c", "4"},
                                               {"-o", "avg"},
                                               {"-d", "bfloat16"},
                                               {"-r", "2"},
                                               {"-t", "2"},
                                               {"-g", "3"},
                                               {"-a", "2"},
                                               {"-I", "1"},
                                               {"-K", "6"},
                                               {"-S", ""},
                                               {"-C", "1"},
                                               {"-z", "2"},
                                               {"-u", "1"},
                                               {"-T", "1.5"},
                                               {"-J", "out.json"},
                                               {"--overwrite", ""},
                                               {"-m", "9"},
                                               {"--link-gb-per-s", "0.5"},
                                               {"--slow-link", "1"},
                                               {"--link-latency-us", "3"},
                                               {"--slow-link-factor", "4"},
                                               {"--beside", "1"},
                                               {"--matrix", "8,2x3x4"},
                                               {"-p", "1"}});
  EXPECT_EQ(a.least_bytes, 4096);
  EXPECT_EQ(a.most_bytes, 8192);
  EXPECT_EQ(a.step_bytes, 2048);
  EXPECT_EQ(a.iterations, 7);
  EXPECT_EQ(a.warmup, 3);
  EXPECT_EQ(a.cycles, 5);
  EXPECT_EQ(a.checks, 4);
  EXPECT_THAT(a.reductions, ElementsAre(Reduction::average));
  EXPECT_THAT(a.dtypes, ElementsAre(DType::bf16));
  EXPECT_EQ(a.root, 2);
  EXPECT_EQ(a.threads, 2);
  EXPECT_EQ(a.gpus, 3);
  EXPECT_EQ(a.over_ranks, OverRanks::least);
  EXPECT_TRUE(a.per_iteration && a.timestamps && a.host_time && a.unaligned && a.overwrite && a.beside);
  EXPECT_EQ(a.skip, 6);
  EXPECT_EQ(a.blocking, 2);
  EXPECT_EQ(a.timeout_s, 1.5);
  EXPECT_EQ(a.output_file, "out.json");
  EXPECT_EQ(a.aggregate, 9);
  EXPECT_EQ(a.link_gb_per_s, 0.5);
  EXPECT_EQ(a.link_latency_us, 3);
  EXPECT_EQ(a.slow_link_rank, 1);
  EXPECT_EQ(a.slow_link_factor, 4);
  EXPECT_THAT(a.matrices, ElementsAre(ProductShape{8, 8, 8}, ProductShape{2, 3, 4}));
  const CollectivesArguments of_nccl = arguments_of({{"--backend", "cuda"},
                                                     {"-R", "2"},
                                                     {"-x", "1"},
                                                     {"--max-ctas", "4"},
                                                     {"--check-all", "1"},
                                                     {"--ranks", "6"},
                                                     {"-f", "3"},
                                                     {"-d", "all"},
                                                     {"-o", "all"},
                                                     {"--per_iter_timing", "0"}});
  EXPECT_EQ(of_nccl.backend, "cuda");
  EXPECT_EQ(of_nccl.registration, 2);
  EXPECT_EQ(of_nccl.cta_policy, 1);
  EXPECT_THAT(of_nccl.max_ctas, ElementsAre(4));
  EXPECT_TRUE(of_nccl.check_all);
  EXPECT_EQ(of_nccl.ranks, 6);
  EXPECT_EQ(of_nccl.step_factor, 3);
  EXPECT_FALSE(of_nccl.per_iteration);
  EXPECT_THAT(of_nccl.dtypes, ElementsAre(DType::f32, DType::bf16, DType::i32, DType::f64));
  EXPECT_THAT(of_nccl.reductions, ElementsAre(Reduction::sum, Reduction::average));
  for (const auto& [name, type] : {std::pair{"float", DType::f32},
                                   {"fp32", DType::f32},
                                   {"bf16", DType::bf16},
                                   {"int32", DType::i32},
                                   {"int", DType::i32},
                                   {"double", DType::f64}}) {
    EXPECT_THAT(arguments_of({{"-d", name}}).dtypes, ElementsAre(type)) << name;
  }
}

/// The last value of each range is taken, the next one is refused.
TEST(CollectivesOptionsTest, RangesHaveTheirEnds) {
  const auto refused = [](const char* name, const char* value) {
    CollectivesArguments arguments;
    try {
      read_option(arguments, name, value);
    } catch (const ConfigError&) {
      return true;
    }
    return false;
  };
  struct End {
    const char *name, *inside, *outside;
  };
  for (const End& end : std::initializer_list<End>{{"-n", "1", "0"},
                                                   {"-n", "1000000000", "1000000001"},
                                                   {"-w", "0", "-1"},
                                                   {"-m", "1", "0"},
                                                   {"-N", "0", "-1"},
                                                   {"-c", "0", "-1"},
                                                   {"-r", "0", "-1"},
                                                   {"-K", "0", "-1"},
                                                   {"-t", "1", "0"},
                                                   {"-t", "1048576", "1048577"},
                                                   {"-g", "1", "0"},
                                                   {"-g", "1048576", "1048577"},
                                                   {"-f", "1", "0"},
                                                   {"-f", "1048576", "1048577"},
                                                   {"-a", "0", "-1"},
                                                   {"-a", "3", "4"},
                                                   {"-z", "0", "-1"},
                                                   {"-z", "2", "3"},
                                                   {"-R", "0", "-1"},
                                                   {"-R", "2", "3"},
                                                   {"-x", "0", "-1"},
                                                   {"-x", "2", "3"},
                                                   {"-T", "0", "-0.1"},
                                                   {"-T", "1e7", "1.1e7"},
                                                   {"--ranks", "1", "0"},
                                                   {"--ranks", "1048576", "1048577"},
                                                   {"--slow-link", "0", "-1"},
                                                   {"--max-ctas", "0", "-1"},
                                                   {"--max-ctas", "64", "65"},
                                                   {"--link-gb-per-s", "1e-6", "0.95e-6"},
                                                   {"--link-gb-per-s", "1e6", "1.01e6"},
                                                   {"--link-latency-us", "0", "-0.5"},
                                                   {"--link-latency-us", "1e6", "1.01e6"},
                                                   {"--slow-link-factor", "1", "0.95"},
                                                   {"--slow-link-factor", "1e6", "1.01e6"},
                                                   {"--matrix", "65536", "65537"},
                                                   {"--matrix", "1", "0"},
                                                   {"-b", "1024T", "1025T"},
                                                   {"-n", "5", "5x"},
                                                   {"-I", "", "yes"},
                                                   {"-I", "0", "2"},
                                                   {"-b", "8", ""},
                                                   {"-p", "0", "2"}}) {
    EXPECT_FALSE(refused(end.name, end.inside)) << end.name << ' ' << end.inside;
    EXPECT_TRUE(refused(end.name, end.outside)) << end.name << ' ' << end.outside;
  }
}

TEST(CollectivesOptionsTest, OptionsThatDoNotFitEachOtherAreRefused) {
  EXPECT_THAT(sweep_sizes(arguments_of({{"-b", "8"}, {"-e", "8"}, {"-i", "0"}})), ElementsAre(8));
  EXPECT_THAT(refusal({{"-b", "8"}, {"-e", "9"}, {"-i", "0"}}), HasSubstr("never grow"));
  EXPECT_THAT(sweep_sizes(arguments_of({{"-b", "0"}, {"-e", "2"}, {"-i", "2"}})), ElementsAre(0, 2));
  EXPECT_THAT(sweep_sizes(arguments_of({{"-b", "3"}, {"-e", "12"}, {"-f", "2"}})), ElementsAre(3, 6, 12));
  EXPECT_THAT(sweep_sizes(arguments_of({{"-b", "3"}, {"-e", "11"}, {"-f", "2"}})), ElementsAre(3, 6));
  EXPECT_EQ(sweep_sizes(arguments_of({{"-b", "1"}, {"-e", "100000"}, {"-i", "1"}})).size(), 100'000U);
  EXPECT_THAT(refusal({{"-b", "1"}, {"-e", "100001"}, {"-i", "1"}}), HasSubstr("over 100,000 sizes"));
  EXPECT_THAT(refusal({{"-b", "1"}, {"-e", "1T"}, {"-i", "1"}}), HasSubstr("over 100,000 sizes"));
  EXPECT_NO_THROW(arguments_of({{"-n", "5"}, {"-K", "4"}}));
  EXPECT_NO_THROW(arguments_of({{"--check-all", "1"}, {"-m", "1"}}));
  EXPECT_NO_THROW(arguments_of({{"--ranks", "8"}, {"-t", "2"}, {"-g", "4"}}));
  EXPECT_NO_THROW(arguments_of({{"--ranks", "8"}}));
  EXPECT_THAT(refusal({{"--ranks", "8"}, {"-t", "2"}}), HasSubstr("--ranks 8 and -t 2 -g 1 differ"));
  EXPECT_THAT(refusal({{"-x", "1"}}), HasSubstr("they need --backend cuda"));
  EXPECT_THAT(refusal({{"--backend", "cuda"}, {"--link-gb-per-s", "1"}}), HasSubstr("CPU's ranks only"));
  EXPECT_THAT(refusal({{"--backend", "cuda"}, {"--slow-link", "0"}}), HasSubstr("CPU's ranks only"));
  EXPECT_THAT(refusal({{"--slow-link", "0"}}), HasSubstr("give --link-gb-per-s"));
  EXPECT_THAT(refusal({{"--link-latency-us", "1"}}), HasSubstr("give --link-gb-per-s"));
  EXPECT_NO_THROW(arguments_of({{"--link-latency-us", "0"}}));
  EXPECT_THAT(refusal({{"minbytes", "8"}}), HasSubstr("no option minbytes"));
  EXPECT_THAT(refusal({{"", "8"}}), HasSubstr("no option"));
  CollectivesArguments not_settled;
  not_settled.least_bytes = 5;
  EXPECT_THAT(sweep_sizes(not_settled), ElementsAre(5));
}

TEST(CollectivesOptionsTest, OperationsHaveTheirOwnNamesAndThoseOfNcclTests) {
  using enum Collective;
  const CollectivesArguments a = arguments_of({{"--op-list", "all_gather_perf,alltoall_perf,sendrecv,broadcast"}});
  EXPECT_THAT(a.ops, ElementsAre(all_gather, all_to_all, send_recv, broadcast));
  EXPECT_THAT(a.given, ElementsAre(std::pair<std::string, std::string>(
                           "--op-list", "all_gather_perf,alltoall_perf,sendrecv,broadcast")));
  EXPECT_EQ(collective_named("all_to_all"), all_to_all);
  EXPECT_THROW(collective_named("_perf"), ConfigError);
}

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
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::f64}) {
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
    CollectiveBuffers buffers(context, 1 << 16, Lane::all_gather, false);
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
                                    {"-b", "4"},
                                    {"-e", "64K"},
                                    {"-f", "128"},
                                    {"-n", "3"},
                                    {"-m", "2"},
                                    {"-c", "2"},
                                    {"-d", "all"},
                                    {"-o", "all"},
                                    {"-u", "1"}}));
    // 3 sizes; 4 types are moved, 2 are reduced in 2 ways.
    EXPECT_EQ(m.rows.size(), 3U * (4 + 4 + 4 + 4 + 4 + 4));
    for (const CollectiveRow& row : m.rows) {
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

/// A communicator that counts how often ranks met in it.
class CountsBarriers : public FailsOnce {
 public:
  explicit CountsBarriers(backend::RankContext& context) : FailsOnce(context, How::not_done, -1) {}
  void barrier() override {
    ++count;
    FailsOnce::barrier();
  }
  int count = 0;
};

TEST(BlockingTest, RanksMeetAfterEachIterationWithZ1AndNotOtherwise) {
  std::map<std::string, int> met;
  for (const char* const blocking : {"0", "1", "2"}) {
    for (const char* const aggregated : {"1", "3"}) {
      const CollectivesArguments arguments =
          arguments_of({{"-b", "4K"}, {"-n", "5"}, {"-w", "0"}, {"-c", "0"}, {"-z", blocking}, {"-m", aggregated}});
      RankMeeting meeting(2, nullptr);
      on_ranks(2, [&](backend::RankContext& context) {
        CountsBarriers counts(context);
        backend::RankContext counted{context.rank, context.device, counts};
        const Message message = Message::of_size(Collective::all_gather, DType::f32, 4096, 2);
        (void)CollectiveTimer(arguments, counted, meeting).timing(message, Reduction::sum, false);
        if (context.rank == 0) met[blocking] = counts.count;
      });
    }
    EXPECT_EQ(met[blocking], met["0"] + (std::string_view(blocking) == "1" ? 5 : 0)) << blocking;
  }
}

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
                                    {"-o", "all"},
                                    {"-C", ""},
                                    {"-u", "1"}}));
    EXPECT_EQ(m.rows.size(), 3U * (4 + 4 + 4 + 4 + 4 + 4));
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

TEST(MeasureCollectivesTest, AnEmulatedLinkIsNeverFasterThanItsModel) {
  // 3/4 of 1 MiB at 0.1 GB/s, whatever else the machine does.
  const MeasuredRows m = measured_rows(arguments_of(
      {{"--op-list", "all_gather"}, {"--ranks", "4"}, {"-b", "1M"}, {"-n", "2"}, {"--link-gb-per-s", "0.1"}}));
  EXPECT_LE(m.rows.front().in_place->bus_gb_per_s(m.rows.front().message), 0.1 * 1.01);
  EXPECT_THAT(m.text, HasSubstr("EMULATED"));
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

TEST(CollectivesOptionsTest, ShapesAndCtas) {
  for (const char* wrong : {"0", "4x4", "4x4x4x4", "4x", "", ",4", "a"}) {
    EXPECT_THROW(arguments_of({{"--beside", ""}, {"--matrix", wrong}}), ConfigError) << wrong;
  }
  EXPECT_THROW(arguments_of({{"--max-ctas", "4"}}), ConfigError) << "NCCL's";
  EXPECT_THROW(arguments_of({{"--backend", "cuda"}, {"--max-ctas", "4,8"}}), ConfigError) << "several only beside";
  EXPECT_EQ(arguments_of({{"--backend", "cuda"}, {"--beside", ""}, {"--max-ctas", "4,8"}}).max_ctas,
            (std::vector{4, 8}));
}

TEST(BesideTest, SlowdownIsOfTheTimeAlone) {
  BesideRow row;
  row.alone_us = {10.0, 20.0, std::nullopt};
  row.beside_us[0][1] = 15.0;
  row.beside_us[2][0] = 15.0;
  EXPECT_EQ(row.slowdown(Neighbour::all_gather, Neighbour::reduce_scatter), 1.5);
  EXPECT_FALSE(row.slowdown(Neighbour::matrix_product, Neighbour::all_gather));
  EXPECT_FALSE(row.slowdown(Neighbour::reduce_scatter, Neighbour::all_gather));
}

CollectiveRow row_of(Collective op, std::optional<double> out_us, double in_us, std::int64_t wrong = 0) {
  CollectiveRow row;
  row.message = Message::of_size(op, DType::f32, 1 << 20, 4);
  if (row.message.reduces()) row.reduction = Reduction::sum;
  Timing timing;
  timing.time_us = in_us;
  timing.wrong = wrong;
  timing.iterations_us = {in_us, in_us, 2 * in_us};
  timing.scatter = scatter_of(timing.iterations_us);
  row.in_place = timing;
  timing.time_us = out_us.value_or(0);
  if (out_us) row.out_of_place = timing;
  row.date = "2026-05-01 12:00:00";
  return row;
}

TEST(NcclTableTest, ColumnsAreThoseOfNcclTests) {
  const CollectivesArguments plain = arguments_of({});
  EXPECT_EQ(nccl_row(plain, row_of(Collective::all_gather, 1048.576, 2097.152)),
            "     1048576         65536     float    none      -1   1048.6    1.00    0.75       0   2097.2    0.50   "
            " 0.38  "
            "     0\n");
  EXPECT_EQ(nccl_row(plain, row_of(Collective::all_reduce, std::nullopt, 12.345)),
            "     1048576        262144     float     sum      -1      N/A     N/A     N/A     N/A    12.35   84.94  "
            "127.41  "
            "     0\n");
  const CollectivesArguments more = arguments_of({{"-I", ""}, {"-S", "1"}});
  EXPECT_THAT(nccl_row(more, row_of(Collective::reduce_scatter, 100, 100)),
              HasSubstr("100.0     200.0     200.0    35.4  2026-05-01 12:00:00\n"));
}

/// What the health checks around nccl-tests look for, written from their documentation.
TEST(NcclTableTest, TheLastLinesAreWhatOthersRead) {
  TableEnd end;
  end.add(row_of(Collective::all_gather, 1048.576, 2097.152));
  const std::string text = nccl_footer(end, Collective::all_gather);
  EXPECT_THAT(text, HasSubstr("# Out of bounds values : 0 OK\n"));
  std::smatch match;
  // Azure NHC, GCP's cluster-health-scanner, gcm: the number behind the colon. DCGM: both lines must be there.
  ASSERT_TRUE(std::regex_search(text, match, std::regex(R"(# Avg bus bandwidth\s*:\s*([0-9.eE+-]+))")));
  EXPECT_DOUBLE_EQ(std::stod(match[1]), 0.5625);
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(#\s*Out of bounds values\s*:\s*0\s+OK)")));
  end.add(row_of(Collective::all_gather, 1, 1, 3));
  EXPECT_THAT(nccl_footer(end, Collective::all_gather), HasSubstr("# Out of bounds values : 6 FAILED\n"));
}

TEST(NcclTableTest, AFloorIsMetByNineTenths) {
  TableEnd end;
  end.add(row_of(Collective::all_gather, 1048.576, 1048.576));  // 0.75 GB/s
  EXPECT_TRUE(end.fast_enough());
  end.least_gb_per_s = 0.83;
  EXPECT_TRUE(end.fast_enough());
  end.least_gb_per_s = 0.84;
  EXPECT_FALSE(end.fast_enough());
  EXPECT_THAT(nccl_footer(end, Collective::all_gather), HasSubstr("# Avg bus bandwidth    : 0.75 FAILED\n"));
}

TEST(NcclTableTest, CommentsBeginWithAHashAndSayWhoseTheTimeIs) {
  const std::vector<World::RankPlace> places(2, World::RankPlace{"node", {}});
  const std::string text = nccl_header(arguments_of({}), Collective::all_gather, 2, places, "A processor");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line.front(), '#') << line;
  EXPECT_THAT(text, HasSubstr("# Collective test starting: all_gather_perf\n"));
  EXPECT_THAT(text, HasSubstr("the slowest rank's (-a 3)"));
  // As nccl-tests 2.19.6 prints them: SuperBench looks for the one line that has `size`, `time` and `busbw`.
  EXPECT_THAT(text,
              HasSubstr("#                                                              out-of-place               "
                        "        in-place          \n"
                        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
                        "time   algbw   busbw  #wrong\n"
                        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
                        "(us)  (GB/s)  (GB/s)        \n"));
  EXPECT_THAT(text, HasSubstr("#  Rank  1 Group  0 Pid"));
  EXPECT_THAT(nccl_header(arguments_of({}), Collective::all_gather, 1, {}, ""), HasSubstr("One rank has nobody"));
}

TEST(NcclTableTest, TimesHaveFewerDecimalsTheLongerTheyAre) {
  const auto shown = [](double us) { return nccl_row(arguments_of({}), row_of(Collective::all_gather, us, us)); };
  EXPECT_THAT(shown(10'000), HasSubstr("    10000  "));
  EXPECT_THAT(shown(9999.5), HasSubstr("   9999.5  "));
  EXPECT_THAT(shown(100), HasSubstr("    100.0  "));
  EXPECT_THAT(shown(99.25), HasSubstr("    99.25  "));
  CollectiveRow unchecked = row_of(Collective::broadcast, 8, 8);
  unchecked.in_place->wrong.reset();
  unchecked.root = 3;
  EXPECT_EQ(nccl_row(arguments_of({}), unchecked),
            "     1048576        262144     float    none       3     8.00  131.07  131.07       0     8.00  131.07  "
            "131.07     N/A\n");
  EXPECT_THAT(nccl_row(arguments_of({{"-I", "1"}}), row_of(Collective::all_gather, std::nullopt, 8)),
              HasSubstr("     N/A     N/A     N/A     N/A       N/A       N/A       N/A     N/A     8.00"));
}

TEST(NcclTableTest, TheHeaderSaysWhatWasAskedForAndWhoRanWhere) {
  const std::vector<World::RankPlace> places{
      {"here", {{"pid", "41"}, {"GPU", "H100"}}}, {"here", {{"pid", "42"}}}, {"there", {{"pid", "7"}}}};
  const CollectivesArguments a = arguments_of({{"-b", "8"},
                                               {"-e", "64"},
                                               {"-f", "2"},
                                               {"-w", "3"},
                                               {"-n", "4"},
                                               {"-m", "5"},
                                               {"-c", "6"},
                                               {"-t", "3"},
                                               {"-a", "0"},
                                               {"-C", "1"},
                                               {"--link-gb-per-s", "0.5"},
                                               {"--link-latency-us", "3"}});
  const std::string text = nccl_header(a, Collective::all_to_all, 3, places, "A processor");
  EXPECT_THAT(text, HasSubstr("# Collective test starting: alltoall_perf\n"));
  EXPECT_THAT(text, HasSubstr("# nThread 3 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 3 iters: 4 agg "
                              "iters: 5 validation: 6 graph: 0\n"));
  EXPECT_THAT(text, HasSubstr("#  Rank  0 Group  0 Pid     41 on       here device  0 [cpu] H100\n"
                              "#  Rank  1 Group  0 Pid     42 on       here device  1 [cpu] A processor\n"
                              "#  Rank  2 Group  0 Pid      7 on      there device  0 [cpu] A processor\n"));
  EXPECT_THAT(text, HasSubstr("# 3 ranks; the time of an iteration is rank 0's (-a 0), and what issuing it takes the "
                              "host (-C)\n"));
  EXPECT_THAT(text, HasSubstr("# EMULATED link of 0.5 GB/s and 3 us a hop"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("--check-all")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("One rank")));
  const std::string other = nccl_header(arguments_of({{"-b", "8"}, {"-I", "1"}}), Collective::send_recv, 2, {}, "");
  EXPECT_THAT(other, HasSubstr("sendrecv_perf"));
  EXPECT_THAT(other, HasSubstr("step: 1048576(bytes)"));
  EXPECT_THAT(other, HasSubstr("#wrong     i_min     i_max     i_p99   i_cv%     time"));
  EXPECT_THAT(other, ::testing::Not(HasSubstr("EMULATED")));
  std::set<std::size_t> widths;  // the last three lines are columns
  std::istringstream lines(other);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(us)") != std::string::npos || line.find("in-place") != std::string::npos)
      widths.insert(line.size());
  }
  EXPECT_EQ(widths.size(), 1U);
}

TEST(NcclTableTest, WhoSlowsWhomIsAMatrix) {
  BesideRow row;
  row.size = 4096;
  row.matrix = {2, 3, 4};
  row.max_ctas = 8;
  row.alone_us = {100.0, 20'000.0, std::nullopt};
  row.beside_us[0][1] = 150.0;
  row.beside_us[1][2] = 30'000.0;
  row.together_us = {200.0, std::nullopt, 5.0};
  const std::string text = beside_table(row);
  EXPECT_THAT(text, HasSubstr("size 4.00 KiB (4096 B), matrices 2 x 4 and 4 x 3, at most 8 CTAs: "));
  const auto cells = [&](const std::string& name) {
    std::istringstream lines(text);
    std::string line, word;
    std::vector<std::string> all;
    while (std::getline(lines, line) && !line.starts_with(name)) {
    }
    std::istringstream words(line);
    while (words >> word) all.push_back(word);
    return all;
  };
  EXPECT_THAT(cells("all_gather"), ElementsAre("all_gather", "100.0", "–", "1.50", "–", "2.00"));
  EXPECT_THAT(cells("reduce_scatter"), ElementsAre("reduce_scatter", "20000", "–", "–", "1.50", "–"));
  EXPECT_THAT(cells("matrix_product"), ElementsAre("matrix_product", "–", "–", "–", "–", "–"));
  row.matrix = {2, 2, 4};
  row.max_ctas = 0;
  EXPECT_THAT(beside_table(row), HasSubstr("matrices 2 x 4 and 4 x 2: "));
}

TEST(NcclTableTest, AnAverageIsOfAllTimings) {
  TableEnd end;
  EXPECT_EQ(end.average_gb_per_s(), 0);
  CollectiveRow row = row_of(Collective::all_gather, std::nullopt, 1048.576, 2);
  end.add(row);
  row.in_place->wrong.reset();
  row.in_place->time_us /= 3;
  end.add(row);
  EXPECT_EQ(end.timings, 2);
  EXPECT_EQ(end.wrong, 2);
  EXPECT_DOUBLE_EQ(end.average_gb_per_s(), (0.75 + 2.25) / 2);
}

TEST(CollectivesJsonTest, ATimingHasTheNumbersOfItsRow) {
  CollectivesTable table;
  table.op = Collective::broadcast;
  table.rows.push_back(row_of(Collective::broadcast, 100, 200, 5));
  table.rows.front().root = 2;
  table.rows.front().in_place->rank_us = {1, 2};
  table.end.add(table.rows.front());
  table.end.least_gb_per_s = 100;
  BesideRow beside;
  beside.size = 64;
  beside.matrix = {2, 3, 4};
  beside.dtype = DType::bf16;
  beside.alone_us = {1.0, std::nullopt, 3.0};
  beside.beside_us[0][2] = 4.0;
  beside.together_us[1] = 5.0;
  const CollectivesArguments arguments = arguments_of({{"-a", "2"}, {"--beside", "1"}});
  const nlohmann::json j = collectives_json(arguments, World{}, {table}, {beside});
  EXPECT_EQ(j["kind"], "collectives");
  EXPECT_EQ(j["time_over_ranks"], "min");
  EXPECT_EQ(j["options"], nlohmann::json::parse(R"({"average": "2", "beside": "1"})"));
  const nlohmann::json& op = j["operations"][0];
  EXPECT_EQ(op["out_of_bounds"], nlohmann::json::parse(R"({"count": 10, "okay": false})"));
  EXPECT_EQ(op["average_bus_bandwidth"]["okay"], false);
  const nlohmann::json& row = op["results"][0];
  EXPECT_EQ(row["size"], 1 << 20);
  EXPECT_EQ(row["count"], 1 << 18);
  EXPECT_EQ(row["type"], "float");
  EXPECT_TRUE(row["redop"].is_null());
  EXPECT_EQ(row["root"], 2);
  EXPECT_EQ(row["in_place"]["time_us"], 200);
  EXPECT_NEAR(row["in_place"]["busbw_gb_per_s"].get<double>(), 1048.576 / 200, 1e-9);
  EXPECT_EQ(row["in_place"]["rank_us"], (std::vector{1, 2}));
  EXPECT_EQ(row["in_place"]["per_iteration"]["max_us"], 400);
  ASSERT_EQ(j["beside"].size(), 1U);
  EXPECT_EQ(j["beside"][0], nlohmann::json::parse(R"({
    "size": 64, "matrix": 2, "shape": [2, 3, 4], "type": "bfloat16",
    "alone_us": {"all_gather": 1.0, "matrix_product": 3.0},
    "beside_us": {"all_gather": {"matrix_product": 4.0}, "reduce_scatter": {}, "matrix_product": {}},
    "together_us": {"reduce_scatter": 5.0}})"));
  EXPECT_FALSE(collectives_json(arguments_of({}), World{}, {table}, {}).contains("beside"));
}

TEST(CollectivesJsonTest, WhatWasNotMeasuredIsNull) {
  CollectivesTable table;
  table.op = Collective::all_reduce;
  table.rows.push_back(row_of(Collective::all_reduce, std::nullopt, 10));
  table.end.add(table.rows.front());
  const nlohmann::json j = collectives_json(arguments_of({{"-b", "1M"}}), World{}, {table}, {});
  EXPECT_EQ(j["options"]["minbytes"], "1M");
  const nlohmann::json& op = j["operations"][0];
  EXPECT_EQ(op["name"], "all_reduce");
  EXPECT_TRUE(op["results"][0]["out_of_place"].is_null());
  EXPECT_EQ(op["results"][0]["in_place"]["wrong"], 0);
  EXPECT_EQ(op["results"][0]["in_place"]["per_iteration"]["times_us"].size(), 3U);
  EXPECT_EQ(op["out_of_bounds"]["okay"], true);
  EXPECT_FALSE(op["results"][0]["in_place"]["per_iteration"].contains("wrong"));
  table.rows.front().in_place->iteration_wrong = {0, 2, 0};
  EXPECT_EQ(collectives_json(arguments_of({{"-b", "1M"}, {"-c", "0"}, {"--check-all", ""}}), World{}, {table},
                             {})["operations"][0]["results"][0]["in_place"]["per_iteration"]["wrong"],
            (std::vector{0, 2, 0}));
}

/// What collectives and products cost each other, written and read again.
TEST(BesideTest, AFileHasTheSlowdownsOfWhatRanTogether) {
  BesideRow row;
  row.size = 4096;
  row.matrix = {2, 3, 4};
  row.max_ctas = 8;
  row.alone_us = {10.0, 20.0, 40.0};
  row.beside_us[2][0] = 60.0;
  row.beside_us[0][2] = 15.0;
  row.together_us[2] = 100.0;
  const auto read = [](const std::vector<BesideRow>& rows) {
    const TemporaryFolder folder;
    const World world = fsdpbench::testing::made_up_trial({1}).world;
    return read_beside(
        folder.write("b.json", result_text(collectives_json(arguments_of({{"--beside", "1"}}), world, {}, rows))));
  };
  const BesideFile file = read({row});
  EXPECT_EQ(file.world.cpu, "a processor");
  std::vector<std::string> told;
  for (const config::CalibrationSlowdown& s : file.slowdowns) {
    ASSERT_EQ(s.cells.size(), 1U);
    EXPECT_EQ(s.dtype, DType::f32);
    told.push_back(fmt::format("{} beside {}: {}", s.of, s.beside, s.cells.front().times));
  }
  EXPECT_THAT(told, ElementsAre("all_gather beside matrix_product: 1.5", "matrix_product beside all_gather: 1.5",
                                "matrix_product beside both: 2.5"));
  BesideRow alone = row;
  alone.beside_us = {};
  alone.together_us = {};
  EXPECT_THAT(config_error([&] { read({alone}); }), HasSubstr("products that ran beside collectives; raise -n"));
  EXPECT_THAT(config_error([&] { read({}); }), HasSubstr("products that ran beside collectives"));
}

/// Messages larger than what is filled and checked at a time.
TEST(CollectiveBuffersTest, AWrongElementIsFoundWhereverItIs) {
  constexpr std::int64_t kBytes = 9 << 20;
  on_ranks(2, [](backend::RankContext& context) {
    CollectiveBuffers buffers(context, kBytes, Lane::all_gather, true);
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
