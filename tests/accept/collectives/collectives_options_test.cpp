#include "accept/collectives/collectives_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "arguments_of.h"
#include "base/error.h"
#include "config/support.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using config::config_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_THAT(refusal({{"-G", "1"}}), HasSubstr("no option -G"));
  EXPECT_THAT(refusal({{"-d", "half"}}), HasSubstr("expected float, bfloat16"));
  EXPECT_THAT(refusal({{"-o", "prod"}}), HasSubstr("expected sum, avg or all"));
  EXPECT_THAT(refusal({{"-b", "8 apples"}}), HasSubstr("'8 apples': expected a size"));
  EXPECT_THAT(refusal({{"-b", "8"}, {"-e", "4"}}), HasSubstr("below the smallest"));
  EXPECT_THAT(refusal({{"-b", "0"}, {"-e", "4"}, {"-f", "2"}}), HasSubstr("never grow"));
  EXPECT_THAT(refusal({{"--ranks", "4"}, {"-g", "8"}}), HasSubstr("differ"));
  EXPECT_THAT(refusal({{"-R", "2"}}), HasSubstr("--backend cuda"));
  EXPECT_THAT(refusal({{"--op-list", "all_gather,scatter"}}), HasSubstr("no operation 'scatter'"));
  EXPECT_THAT(refusal({{"--check-all", "1"}, {"--beside", ""}}), HasSubstr("--beside checks no data"));
  EXPECT_THAT(refusal({{"--what", "1"}}), HasSubstr("no option --what"));
}

// The table of 2.19.6, src/common.cu.
TEST(CollectivesOptionsTest, NamesAreThoseOfNcclTests) {
  for (const char* names :
       {"-t,--nthreads", "-g,--ngpus", "-b,--minbytes", "-e,--maxbytes", "-i,--stepbytes", "-f,--stepfactor",
        "-n,--iters", "-w,--warmup_iters", "-c,--check", "-o,--op", "-d,--datatype", "-r,--root", "-T,--timeout",
        "-J,--output_file", "-a,--average", "-R,--local_register", "-x,--cta_policy", "-I,--per_iter_timing"}) {
    EXPECT_TRUE(std::ranges::any_of(collectives_options(), [&](const auto& o) { return o.names == names; })) << names;
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
                                               {"-c", "4"},
                                               {"-o", "avg"},
                                               {"-d", "bfloat16"},
                                               {"-r", "2"},
                                               {"-t", "2"},
                                               {"-g", "3"},
                                               {"-a", "2"},
                                               {"-I", "1"},
                                               {"-T", "1.5"},
                                               {"-J", "out.json"},
                                               {"--overwrite", ""},
                                               {"--beside", "1"},
                                               {"--matrix", "8,2x3x4"}});
  EXPECT_EQ(a.least_bytes, 4096);
  EXPECT_EQ(a.most_bytes, 8192);
  EXPECT_EQ(a.step_bytes, 2048);
  EXPECT_EQ(a.iterations, 7);
  EXPECT_EQ(a.warmup, 3);
  EXPECT_EQ(a.checks, 4);
  EXPECT_THAT(a.reductions, ElementsAre(Reduction::average));
  EXPECT_THAT(a.dtypes, ElementsAre(DType::bf16));
  EXPECT_EQ(a.root, 2);
  EXPECT_EQ(a.threads, 2);
  EXPECT_EQ(a.gpus, 3);
  EXPECT_EQ(a.over_ranks, OverRanks::least);
  EXPECT_TRUE(a.per_iteration && a.overwrite && a.beside);
  EXPECT_EQ(a.timeout_s, 1.5);
  EXPECT_EQ(a.output_file, "out.json");
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
  EXPECT_THAT(of_nccl.dtypes, ElementsAre(DType::f32, DType::bf16));
  EXPECT_THAT(of_nccl.reductions, ElementsAre(Reduction::sum, Reduction::average));
  for (const auto& [name, type] : {std::pair{"float", DType::f32}, {"fp32", DType::f32}, {"bf16", DType::bf16}}) {
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
                                                   {"-c", "0", "-1"},
                                                   {"-r", "0", "-1"},
                                                   {"-t", "1", "0"},
                                                   {"-t", "1048576", "1048577"},
                                                   {"-g", "1", "0"},
                                                   {"-g", "1048576", "1048577"},
                                                   {"-f", "1", "0"},
                                                   {"-f", "1048576", "1048577"},
                                                   {"-a", "0", "-1"},
                                                   {"-a", "3", "4"},
                                                   {"-R", "0", "-1"},
                                                   {"-R", "2", "3"},
                                                   {"-x", "0", "-1"},
                                                   {"-x", "2", "3"},
                                                   {"-T", "0", "-0.1"},
                                                   {"-T", "1e7", "1.1e7"},
                                                   {"--ranks", "1", "0"},
                                                   {"--ranks", "1048576", "1048577"},
                                                   {"--max-ctas", "0", "-1"},
                                                   {"--max-ctas", "64", "65"},
                                                   {"--matrix", "65536", "65537"},
                                                   {"--matrix", "1", "0"},
                                                   {"-b", "1024T", "1025T"},
                                                   {"-n", "5", "5x"},
                                                   {"-I", "", "yes"},
                                                   {"-I", "0", "2"},
                                                   {"-b", "8", ""}}) {
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
  EXPECT_NO_THROW(arguments_of({{"--ranks", "8"}, {"-t", "2"}, {"-g", "4"}}));
  EXPECT_NO_THROW(arguments_of({{"--ranks", "8"}}));
  EXPECT_THAT(refusal({{"--ranks", "8"}, {"-t", "2"}}), HasSubstr("--ranks 8 and -t 2 -g 1 differ"));
  EXPECT_THAT(refusal({{"-x", "1"}}), HasSubstr("they need --backend cuda"));
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

TEST(CollectivesOptionsTest, ARefusalNamesTheOptionItsValueAndWhatIsExpected) {
  const auto says = [](const std::string& name, const std::string& value) { return refusal({{name, value}}); };
  EXPECT_EQ(says("-I", "yes"),
            "collectives --per_iter_timing 'yes': expected 0 or 1; name operations before it, or with --op-list; see "
            "fsdpbench collectives --help.");
  EXPECT_EQ(says("-d", "int32"),
            "collectives --datatype 'int32': expected float, bfloat16 or all; FSDP moves no others here; see fsdpbench "
            "collectives --help.");
  EXPECT_EQ(
      says("-o", "max"),
      "collectives --op 'max': expected sum, avg or all; FSDP's gradients are reduced by no others; see fsdpbench "
      "collectives --help.");
  EXPECT_EQ(says("-n", "0"),
            "collectives --iters '0': expected a number from 1 to 1000000000; see fsdpbench collectives --help.");
  EXPECT_EQ(says("-b", ""), "collectives --minbytes '': it needs a value; see fsdpbench collectives --help.");
  EXPECT_EQ(says("-bb", "1"), "collectives has no option -bb.");
  EXPECT_EQ(says("b", "1"), "collectives has no option b.");
  EXPECT_THAT(says("--op-list", "gather"), HasSubstr("There is no operation 'gather' for collectives to measure; there "
                                                     "are all_gather, reduce_scatter, all_reduce, broadcast, alltoall "
                                                     "and sendrecv."));
  EXPECT_EQ(refusal({{"-b", "8"}, {"-e", "4"}}), "collectives -b 8 -e 4: the largest size is below the smallest.");
  for (const char letter : std::string("KkMmGgTt")) {
    const std::int64_t power = std::string("kmgt").find(static_cast<char>(std::tolower(letter))) + 1;
    EXPECT_EQ(arguments_of({{"-b", std::string("3") + letter}}).least_bytes, std::int64_t{3} << (10 * power));
  }
  EXPECT_THAT(arguments_of({{"-o", "sum"}}).reductions, ElementsAre(Reduction::sum));
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

}  // namespace
}  // namespace fsdpbench::app
