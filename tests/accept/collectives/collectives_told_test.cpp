// Output of collectives: nccl-tests' table, JSON, and the file of slow-downs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <vector>

#include "accept/collectives/beside.h"
#include "accept/collectives/collectives_json.h"
#include "arguments_of.h"
#include "config/support.h"
#include "runs/build_info.h"
#include "runs/result_file.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using config::config_error;
using config::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BesideTest, SlowdownIsOfTheTimeAlone) {
  BesideRow row;
  row.alone_us = {10.0, 20.0, std::nullopt};
  row.beside_us[0][1] = 15.0;
  row.beside_us[2][0] = 15.0;
  row.beside_us[1][2] = 5.0;
  EXPECT_EQ(row.slowdown(Neighbour::reduce_scatter, Neighbour::matrix_product), 0.25);
  row.alone_us[1] = 0;
  EXPECT_FALSE(row.slowdown(Neighbour::reduce_scatter, Neighbour::matrix_product)) << "of no time";
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
  const CollectivesArguments more = arguments_of({{"-I", ""}});
  EXPECT_THAT(nccl_row(more, row_of(Collective::reduce_scatter, 100, 100)),
              ::testing::EndsWith("100.0     200.0     200.0    35.4\n"));
}

/// Patterns that the health checks around nccl-tests look for, written from their documentation.
TEST(NcclTableTest, TheLastLinesAreWhatOthersRead) {
  TableEnd end;
  end.add(row_of(Collective::all_gather, 1048.576, 2097.152));
  const std::string text = nccl_footer(end, Collective::all_gather);
  EXPECT_EQ(text,
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.5625 \n#\n"
            "# Collective test concluded: all_gather_perf\n#\n");
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
  end.least_gb_per_s = 0.75;
  EXPECT_THAT(nccl_footer(end, Collective::all_gather), HasSubstr("# Avg bus bandwidth    : 0.75 OK\n"));
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

/// Columns as nccl-tests 2.19.6 prints them: SuperBench looks for the one line that has `size`, `time` and `busbw`.
TEST(NcclTableTest, TheHeaderSaysWhatWasAskedForAndWhoRanWhere) {
  const std::vector<World::RankPlace> places{
      {"here", {{"pid", "41"}, {"GPU", "H100"}}}, {"there", {{"pid", "7"}}}, {"here", {{"pid", "42"}}}};
  const CollectivesArguments a = arguments_of(
      {{"-b", "8"}, {"-e", "64"}, {"-f", "2"}, {"-w", "3"}, {"-n", "4"}, {"-c", "6"}, {"--ranks", "3"}, {"-a", "0"}});
  const std::string first = "# " + version_line() + ", in the form of nccl-tests\n";
  EXPECT_EQ(nccl_header(a, Collective::all_to_all, 3, places, "A processor"),
            first +
                "# Collective test starting: alltoall_perf\n"
                "# nThread 3 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 3 iters: 4 agg iters: 1 "
                "validation: 6 graph: 0\n"
                "#\n"
                "# Using devices\n"
                "#  Rank  0 Group  0 Pid     41 on       here device  0 [cpu] H100\n"
                "#  Rank  1 Group  0 Pid      7 on      there device  0 [cpu] A processor\n"
                "#  Rank  2 Group  0 Pid     42 on       here device  1 [cpu] A processor\n"
                "#\n"
                "# 3 ranks; the time of an iteration is rank 0's (-a 0)\n"
                "#\n"
                "#                                                              out-of-place               "
                "        in-place          \n"
                "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
                "time   algbw   busbw  #wrong\n"
                "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
                "(us)  (GB/s)  (GB/s)        \n");
  const CollectivesArguments each = arguments_of({{"-b", "8"}, {"-I", "1"}, {"-g", "2"}, {"--check-all", ""}});
  const auto spaces = [](std::size_t count) { return std::string(count, ' '); };
  const std::string names = "     time   algbw   busbw  #wrong     i_min     i_max     i_p99   i_cv%";
  const std::string units = "     (us)  (GB/s)  (GB/s)" + spaces(14) + "(us)      (us)      (us)" + spaces(8);
  EXPECT_EQ(nccl_header(each, Collective::send_recv, 1, {{"", {}}}, "P"),
            first +
                "# Collective test starting: sendrecv_perf\n"
                "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 1048576(bytes) warmup iters: 1 iters: 20 agg iters: 1 "
                "validation: 1 graph: 0\n"
                "#\n"
                "# Using devices\n"
                "#  Rank  0 Group  0 Pid      - on            device  0 [cpu] P\n"
                "#\n"
                "# 1 ranks; the time of an iteration is the slowest rank's (-a 3); that of nccl-tests is the mean over "
                "ranks (-a 1)\n"
                "# The data of every timed iteration is checked (--check-all): each is timed alone, not in a burst\n"
                "# One rank has nobody to communicate with: nothing below is a measurement of a link\n"
                "#\n"
                "#" +
                spaces(80) + "out-of-place" + spaces(61) + "in-place" + spaces(32) +
                "\n#       size         count      type   redop    root" + names + names +
                "\n#        (B)    (elements)" + spaces(26) + units + units + "\n");
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
  EXPECT_THAT(text, HasSubstr("  alone  beside all_gather  "));
  EXPECT_THAT(cells("all_gather"), ElementsAre("all_gather", "100", "us", "–", "1.50", "–", "2.00"));
  EXPECT_THAT(cells("reduce_scatter"), ElementsAre("reduce_scatter", "20.0", "ms", "–", "–", "1.50", "–"));
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
  EXPECT_EQ(collectives_file_facts().name, "Collectives");
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
  EXPECT_NEAR(row["in_place"]["algbw_gb_per_s"].get<double>(), 1048.576 / 200, 1e-9);
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

/// Slow-downs of collectives and products by each other, written and read again.
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

TEST(BesideTest, WhatIsWrongWithAFileIsSaid) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text) {
    return config_error([&] { read_beside(folder.write("b.json", text)); });
  };
  EXPECT_THAT(refused("{"), HasSubstr("b.json: is not JSON, or was cut off; expected the file of"));
  BesideRow row;
  row.size = 4096;
  row.matrix = {2, 3, 4};
  row.alone_us = {10.0, 20.0, 40.0};
  row.beside_us[2][0] = 60.0;
  const World world = fsdpbench::testing::made_up_trial({1}).world;
  nlohmann::json whole = collectives_json(arguments_of({{"--beside", "1"}}), world, {}, {row});
  const auto changed = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json other = whole;
    other[nlohmann::json::json_pointer(key)] = value;
    return refused(result_text(other));
  };
  EXPECT_EQ(read_beside(folder.write("b.json", result_text(whole))).slowdowns.size(), 1U);
  EXPECT_THAT(changed("/kind", "acceptance"), HasSubstr("collectives measured with --beside"));
  EXPECT_THAT(changed("/beside/0/shape", {2, 3}), HasSubstr("m, n and k"));
  EXPECT_THAT(changed("/beside/0/shape", {2, 3, 0}), HasSubstr("beside[0].shape[2]"));
  EXPECT_THAT(changed("/beside/0/size", 0), HasSubstr("beside[0].size"));
  EXPECT_THAT(changed("/beside/0/type", "int32"), HasSubstr("\"float\" or \"bfloat16\""));
  nlohmann::json least = whole;
  least["beside"][0]["type"] = "bfloat16";
  least["beside"][0]["size"] = 1;
  EXPECT_EQ(read_beside(folder.write("b.json", result_text(least))).slowdowns.at(0).dtype, DType::bf16);
  EXPECT_THAT(changed("/beside/0/max_ctas", -1), HasSubstr("max_ctas"));
  EXPECT_THAT(changed("/beside/0/max_ctas", 1'000'001), HasSubstr("max_ctas"));
  for (const int ctas : {0, 1'000'000}) {
    least["beside"][0]["max_ctas"] = ctas;
    least["beside"][0]["shape"] = {1, 1, 1};
    EXPECT_EQ(read_beside(folder.write("b.json", result_text(least))).slowdowns.at(0).cells.at(0).max_ctas, ctas);
  }
  whole.erase("beside");
  EXPECT_THAT(refused(result_text(whole)), HasSubstr("collectives measured with --beside"));
  nlohmann::json other = collectives_json(arguments_of({{"--beside", "1"}}), world, {}, {row});
  std::string text = result_text(other);
  text.replace(text.find("60"), 2, "61");
  EXPECT_THAT(refused(text), HasSubstr("it was changed after it was written"));
}

/// Each of five slow-downs by the op, what was beside it, and its cell.
TEST(BesideTest, EachCellHasItsShapeItsSizeAndItsFactor) {
  BesideRow row;
  row.size = 64;
  row.matrix = {2, 3, 4};
  row.dtype = DType::bf16;
  row.max_ctas = 8;
  row.alone_us = {10.0, 20.0, 40.0};
  row.beside_us[2] = {60.0, 80.0, std::nullopt};
  row.beside_us[0][2] = 15.0;
  row.beside_us[1][2] = 50.0;
  row.together_us[2] = 100.0;
  const TemporaryFolder folder;
  const World world = fsdpbench::testing::made_up_trial({1}).world;
  const BesideFile file = read_beside(
      folder.write("b.json", result_text(collectives_json(arguments_of({{"--beside", "1"}}), world, {}, {row, row}))));
  std::vector<std::string> told;
  for (const config::CalibrationSlowdown& s : file.slowdowns) {
    EXPECT_EQ(s.dtype, DType::bf16);
    ASSERT_EQ(s.cells.size(), 2U);
    const auto& c = s.cells[1];
    told.push_back(fmt::format("{} beside {}: {}x{}x{}, {} B, {}: {}", s.of, s.beside, c.m, c.n, c.k, c.bytes,
                               c.max_ctas, c.times));
  }
  EXPECT_THAT(told, ElementsAre("all_gather beside matrix_product: 2x3x4, 64 B, 8: 1.5",
                                "matrix_product beside all_gather: 2x3x4, 64 B, 8: 1.5",
                                "matrix_product beside both: 2x3x4, 64 B, 8: 2.5",
                                "matrix_product beside reduce_scatter: 2x3x4, 64 B, 8: 2",
                                "reduce_scatter beside matrix_product: 2x3x4, 64 B, 8: 2.5"));
}

}  // namespace
}  // namespace fsdpbench::app
