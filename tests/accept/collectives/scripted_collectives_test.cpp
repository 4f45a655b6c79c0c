// Measuring collectives with a device whose ops take scripted times: the calls it gets, their order, and the times
// computed from its stamps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "accept/collectives/beside.h"
#include "accept/collectives/collective_buffers.h"
#include "accept/collectives/collective_timer.h"
#include "accept/scripted_ranks.h"
#include "arguments_of.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using fsdpbench::testing::on_scripted_ranks;
using fsdpbench::testing::ScriptedDevice;
using fsdpbench::testing::ScriptedWorld;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

using Lines = std::vector<std::string>;

std::string only(const Lines& log, const std::string& beginning) {
  std::string text;
  for (const std::string& line : log) {
    if (line.starts_with(beginning)) text += line.substr(beginning.size()) + "\n";
  }
  return text;
}

/// Calls that rank 1 of 4 makes when it times a message of 4 KiB in fp32.
Lines asked(Collective op, bool in_place, Reduction reduction,
            const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::pair<std::string, std::string>> options{{"-b", "4K"}, {"-n", "2"}, {"-r", "3"}};
  options.insert(options.end(), more.begin(), more.end());
  const CollectivesArguments arguments = arguments_of(options);
  ScriptedDevice device;
  ScriptedWorld world(device, "world", 1, 4);
  backend::RankContext context{1, device, world};
  RankMeeting meeting(4, nullptr);
  CollectiveTimer timer(arguments, context, meeting);
  EXPECT_THAT(device.log, ElementsAre("all_gather of 4096 B for communication_buffers", "all_gather clear",
                                      "  block 0 = 0, 4096 B", "all_gather of 4096 B for communication_buffers",
                                      "all_gather clear", "  block 1 = 0, 4096 B"));
  device.log.clear();
  const Timing nothing = timer.timing(Message::of_size(op, DType::f32, 4096, 4), reduction, in_place);
  const std::set<std::string> different(device.uploads.begin(), device.uploads.end());
  EXPECT_EQ(different.size(), device.uploads.size()) << "each filling has data of its own";
  EXPECT_TRUE(nothing.rank_us.empty() && !nothing.wrong) << "rank 0 knows";
  return device.log;
}

const Lines kCleared{"all_gather clear", "  block 0 = 0, 4096 B", "  block 1 = 0, 4096 B", "synchronize"};
const Lines kMeets{"world: barrier", "world: barrier"};

Lines joined(const std::vector<Lines>& parts) {
  Lines all;
  for (const Lines& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(ScriptedTimerTest, ABurstFillsOnceWarmsUpAndIsTimedBetweenABarrierAndTheEndOfAllLanes) {
  const std::string call = "world: all_gather on all_gather, 256 x float, block 0 to block 1";
  const Lines filled{"all_gather fill", "  block 0 = host, 1024 B", "synchronize"};
  const Lines burst{call,          call,    "synchronize", "world: barrier", call + ", timed", call + ", timed",
                    "synchronize", "settle"};
  EXPECT_THAT(asked(Collective::all_gather, false, Reduction::sum, {{"-c", "0"}, {"-w", "2"}}),
              ElementsAreArray(joined({kCleared, filled, burst, kMeets})));
  // Checked: filled anew before and after, each part of what came compared.
  Lines compared;
  for (const char* part : {"block 1", "block 1 + 1024", "block 1 + 2048", "block 1 + 3072"}) {
    compared.insert(compared.end(), {"all_gather check", fmt::format("  host = {}, 1024 B", part), "synchronize"});
  }
  const Lines check = joined({kCleared, filled, {call, "synchronize"}, compared});
  EXPECT_THAT(asked(Collective::all_gather, false, Reduction::sum, {{"-c", "2"}, {"-w", "2"}}),
              ElementsAreArray(joined({check, burst, check, check, kMeets})));
  // One by one: each filled, begun together, and compared before the next.
  const Lines one = joined({kCleared, filled, {"world: barrier", call + ", timed", "synchronize"}, compared});
  EXPECT_THAT(asked(Collective::all_gather, false, Reduction::sum, {{"-c", "1"}, {"-w", "1"}, {"--check-all", ""}}),
              ElementsAreArray(joined({check, {call, "synchronize"}, one, one, {"settle"}, check, kMeets})));
  EXPECT_THAT(asked(Collective::all_gather, false, Reduction::sum, {{"-c", "0"}, {"-w", "0"}, {"--check-all", ""}}),
              ElementsAreArray(joined({kCleared, filled, {"synchronize"}, one, one, {"settle"}, kMeets})));
}

/// Where a rank's part lies, where what it gets arrives, and what is compared of it.
TEST(ScriptedTimerTest, EachCollectiveHasItsPlacesScaleAndRoot) {
  struct Case {
    Collective op;
    bool in_place;
    Reduction reduction;
    const char *filled, *call, *compared;
  };
  const std::string all_parts =
      "block 1, 1024 B\nblock 1 + 1024, 1024 B\nblock 1 + 2048, 1024 B\nblock 1 + 3072, 1024 B\n";
  using enum Collective;
  for (const Case& c : std::initializer_list<Case>{
           {all_gather, true, Reduction::average, "block 1 + 1024 = host, 1024 B\n",
            "all_gather on all_gather, 256 x float, block 1 + 1024 to block 1", all_parts.c_str()},
           {reduce_scatter, false, Reduction::average, "block 1 = host, 4096 B\n",
            "reduce_scatter on all_gather, 256 x float, block 1 to block 0, times 0.25", "block 0, 1024 B\n"},
           {reduce_scatter, true, Reduction::sum, "block 1 = host, 4096 B\n",
            "reduce_scatter on all_gather, 256 x float, block 1 to block 1 + 1024", "block 1 + 1024, 1024 B\n"},
           {all_reduce, false, Reduction::average, "block 0 = host, 4096 B\n",
            "all_reduce on all_gather, 1024 x float, block 0 to block 1, times 0.25", "block 1, 4096 B\n"},
           {all_reduce, true, Reduction::sum, "block 1 = host, 4096 B\n",
            "all_reduce on all_gather, 1024 x float, block 1 to block 1", "block 1, 4096 B\n"},
           {broadcast, false, Reduction::sum, "", "broadcast on all_gather, 1024 x float, block 0 to block 1, root 3",
            "block 1, 4096 B\n"},
           {all_to_all, false, Reduction::average, "block 0 = host, 4096 B\n",
            "all_to_all on all_gather, 256 x float, block 0 to block 1", all_parts.c_str()},
           {send_recv, false, Reduction::sum, "block 0 = host, 4096 B\n",
            "send_recv on all_gather, 1024 x float, block 0 to block 1", "block 1, 4096 B\n"}}) {
    const Lines log = asked(c.op, c.in_place, c.reduction, {{"-c", "1"}, {"-w", "0"}, {"-n", "1"}});
    const std::string call = std::string(c.call) + "\n", timed = std::string(c.call) + ", timed\n";
    EXPECT_EQ(only(log, "world: "), call + "barrier\n" + timed + call + "barrier\nbarrier\n");
    EXPECT_EQ(only(log, "  host = "), std::string(c.compared) + c.compared) << c.call;
    std::string filled;
    for (const std::string& line : log) {
      if (line.find(" = host") != std::string::npos) filled += line.substr(2) + "\n";
    }
    EXPECT_EQ(filled, std::string(c.filled) + c.filled) << c.call;
  }
}

/// Two ranks whose three iterations take 10, 20 and 30, and 40, 20 and 6 us; nothing arrives anywhere.
Timing timed(const std::vector<std::pair<std::string, std::string>>& more, const Message& message, bool in_place) {
  std::vector<std::pair<std::string, std::string>> options{{"-b", "1K"}, {"-n", "3"}};
  options.insert(options.end(), more.begin(), more.end());
  const CollectivesArguments arguments = arguments_of(options);
  RankMeeting meeting(2, nullptr);
  Timing timing;
  on_scripted_ranks(2, [&](backend::RankContext& context, ScriptedDevice& device) {
    const std::vector<std::int64_t> us =
        context.rank == 0 ? std::vector<std::int64_t>{10, 20, 30} : std::vector<std::int64_t>{40, 20, 6};
    device.takes_us = [us, next = std::size_t{0}](const std::string&) mutable { return us.at(next++); };
    CollectiveTimer timer(arguments, context, meeting);
    const Timing mine = timer.timing(message, Reduction::sum, in_place);
    if (context.rank == 0) timing = mine;
  });
  return timing;
}

TEST(ScriptedTimerTest, TimesAreOverRanksAsTheyAreAskedForAndWrongElementsAreAddedUp) {
  const Message broadcast = Message::of_size(Collective::broadcast, DType::f32, 1024, 2);
  for (const char* const check_all : {"0", "1"}) {
    const Timing most = timed({{"-c", "0"}, {"--check-all", check_all}}, broadcast, true);
    EXPECT_THAT(most.rank_us, ElementsAre(20, 22));
    EXPECT_EQ(most.time_us, 22);
    EXPECT_THAT(most.iterations_us, ElementsAre(40, 20, 30));
    EXPECT_EQ(most.scatter.mean_us, 30);
    EXPECT_EQ(most.scatter.max_us, 40);
  }
  const Timing mean = timed({{"-c", "0"}, {"-a", "1"}}, broadcast, true);
  EXPECT_EQ(mean.time_us, 21);
  EXPECT_THAT(mean.iterations_us, ElementsAre(25, 20, 18));
  EXPECT_FALSE(mean.wrong);
  EXPECT_TRUE(mean.rank_wrong.empty() && mean.iteration_wrong.empty());
  // The root has what it sent, the other one nothing: 256 elements each time, once before and twice after.
  const Timing checked = timed({{"-c", "2"}}, broadcast, true);
  EXPECT_EQ(checked.wrong, 3 * 256);
  EXPECT_THAT(checked.rank_wrong, ElementsAre(0, 3 * 256));
  EXPECT_TRUE(checked.iteration_wrong.empty());
  const Timing each = timed({{"-c", "2"}, {"--check-all", ""}}, broadcast, true);
  EXPECT_EQ(each.wrong, 6 * 256);
  EXPECT_THAT(each.rank_wrong, ElementsAre(0, 6 * 256));
  EXPECT_THAT(each.iteration_wrong, ElementsAre(256, 256, 256));
  const Timing only_each = timed({{"-c", "0"}, {"--check-all", ""}}, broadcast, true);
  EXPECT_THAT(only_each.rank_wrong, ElementsAre(0, 3 * 256));
  // In place each has its own half of what is gathered.
  const Timing gathered = timed({{"-c", "1"}}, Message::of_size(Collective::all_gather, DType::f32, 1024, 2), true);
  EXPECT_THAT(gathered.rank_wrong, ElementsAre(2 * 128, 2 * 128));
}

/// Messages larger than the 4 MiB that are filled and compared at a time.
TEST(ScriptedTimerTest, LargeMessagesAreFilledAndComparedPieceByPiece) {
  ScriptedDevice device;
  ScriptedWorld world(device, "world", 0, 2);
  backend::RankContext context{0, device, world};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CollectiveBuffers buffers(context, 9 << 20, Lane::copy);
    const Message message = Message::of_size(Collective::broadcast, dtype, 9 << 20, 2);
    const Pattern pattern(dtype, false, 2, 3);
    device.log.clear();
    buffers.fill(message, true, pattern);
    const std::string block = dtype == DType::f32 ? "block 1" : "block 3";
    EXPECT_THAT(Lines(device.log.begin() + 4, device.log.end()),
                ElementsAre("copy fill", "  " + block + " = host, 4194304 B", "synchronize", "copy fill",
                            "  " + block + " + 4194304 = host, 4194304 B", "synchronize", "copy fill",
                            "  " + block + " + 8388608 = host, 1048576 B", "synchronize"));
    device.log.clear();
    EXPECT_EQ(buffers.wrong(message, true, Reduction::sum, pattern), 0);
    EXPECT_THAT(device.log, ElementsAre("copy check", "  host = " + block + ", 4194304 B", "synchronize", "copy check",
                                        "  host = " + block + " + 4194304, 4194304 B", "synchronize", "copy check",
                                        "  host = " + block + " + 8388608, 1048576 B", "synchronize"));
    EXPECT_EQ(buffers.wrong(message, false, Reduction::sum, pattern), 0) << "it arrives in the same block";
    for (const Collective op : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_to_all}) {
      const Message alone = Message::of_size(op, dtype, 9 << 20, 1);
      const Pattern own(dtype, alone.reduces(), 1, 4);
      buffers.fill(alone, true, own);
      EXPECT_EQ(buffers.wrong(alone, true, Reduction::sum, own), 0) << to_string(op);
    }
  }
}

TEST(ScriptedTimerTest, MemoryIsGivenBackAndAnOpOfEachTypeOfWorkHasItsCategory) {
  ScriptedDevice device;
  ScriptedWorld world(device, "world", 0, 1);
  backend::RankContext context{0, device, world};
  { const Blocks<2> blocks(context, 512, Lane::compute); }
  EXPECT_THAT(device.log, ElementsAre("compute of 512 B for activations", "compute clear", "  block 0 = 0, 512 B",
                                      "compute of 512 B for activations", "compute clear", "  block 1 = 0, 512 B",
                                      "compute frees block 0", "compute frees block 1"));
  EXPECT_EQ(Blocks<3>::bytes(513), 3 * 1024);
}

/// A letter for each op: A, R and P are timed, p is the product that the others wait for; | is a barrier.
std::string letters(const Lines& log) {
  std::string text;
  for (const std::string& line : log) {
    if (line == "world: barrier") text += '|';
    if (line.ends_with(", timed")) text += line.starts_with("world") ? 'A' : line.starts_with("part 0") ? 'R' : 'P';
    if (line == "compute gemm") text += 'p';
  }
  return text;
}

struct Beside {
  std::vector<BesideRow> rows;
  std::vector<Lines> logs;
};

/// Three ranks; `us` says what an op takes on a rank in its run: 0 warms up, three alone, three pairs, twice all, and
/// back again.
Beside beside(const std::vector<std::pair<std::string, std::string>>& more,
              const std::function<std::int64_t(int rank, int run, const std::string& name)>& us) {
  std::vector<std::pair<std::string, std::string>> options{
      {"-b", "3K"}, {"-n", "1"}, {"--beside", ""}, {"--matrix", "16x8x4"}};
  options.insert(options.end(), more.begin(), more.end());
  const CollectivesArguments arguments = arguments_of(options);
  RankMeeting meeting(3, nullptr);
  Beside all;
  all.logs.resize(3);
  on_scripted_ranks(3, [&](backend::RankContext& context, ScriptedDevice& device) {
    device.takes_us = [&](const std::string& name) {
      return us(context.rank, static_cast<int>(std::ranges::count(device.log, "settle")), name);
    };
    measure_beside(arguments, 5, context, meeting, [&](const BesideRow& row) { all.rows.push_back(row); });
    all.logs[static_cast<std::size_t>(context.rank)] = device.log;
  });
  return all;
}

TEST(ScriptedBesideTest, EachIsTheMedianOfBothTimesOnTheSlowestRank) {
  constexpr std::int64_t kUs[]{1, 10, 10, 10, 20, 30, 40, 50, 70, 60, 90, 80, 30, 20, 12};
  // The second of three ranks takes twice as long. In the second row the last one's product outlasts what it runs
  // beside in pairs with a reduction, both times.
  const Beside all = beside({{"-e", "6K"}, {"-f", "2"}}, [&](int rank, int run, const std::string& name) {
    const bool late = rank == 2 && name == "gemm" && (run == 15 + 4 || run == 15 + 11);
    return kUs[run % 15] * (rank == 1 ? 2 : 1) + (late ? 1 : 0);
  });
  ASSERT_EQ(all.rows.size(), 2U);
  const BesideRow& row = all.rows.front();
  EXPECT_EQ(row.size, 3072);
  EXPECT_EQ(all.rows[1].size, 6144);
  EXPECT_EQ(row.matrix, (ProductShape{16, 8, 4}));
  EXPECT_EQ(row.dtype, DType::f32);
  EXPECT_EQ(row.max_ctas, 5);
  using Times = BesideRow::Times;
  EXPECT_EQ(row.alone_us, (Times{22, 30, 40}));
  EXPECT_EQ(row.beside_us[0], (Times{std::nullopt, 100, 120}));
  EXPECT_EQ(row.beside_us[1], (Times{100, std::nullopt, 100}));
  EXPECT_EQ(row.beside_us[2], (Times{120, 100, std::nullopt}));
  EXPECT_EQ(row.together_us, (Times{120, 120, 120}));
  EXPECT_EQ(all.rows[1].beside_us[2], (Times{120, std::nullopt, std::nullopt})) << "none ran within the other";
  EXPECT_EQ(all.rows[1].beside_us[1], (Times{100, std::nullopt, 100}));
  const std::string told(8, '|'), known(24, '|');
  const std::string once = "|pARP|A|R|pP" + told + "|pRP|pAP|AR|pARP|pARP|AR|pAP|pRP|pP|R|A" + known;
  for (const Lines& log : all.logs) EXPECT_EQ(letters(log), once + once);
}

TEST(ScriptedBesideTest, BuffersAreFilledBeforeAndAllBeginWithAProduct) {
  const Beside all = beside({{"-d", "bfloat16"}}, [](int, int, const std::string&) { return 10; });
  const Lines& log = all.logs[1];
  const auto end = std::ranges::find(log, "settle");
  EXPECT_THAT(
      Lines(log.begin(), end),
      ElementsAre(
          "world: split 0 by 1", "all_gather of 3072 B for communication_buffers", "all_gather clear",
          "  block 0 = 0, 3072 B", "all_gather of 3072 B for communication_buffers", "all_gather clear",
          "  block 1 = 0, 3072 B", "reduce_scatter of 3072 B for communication_buffers", "reduce_scatter clear",
          "  block 2 = 0, 3072 B", "reduce_scatter of 3072 B for communication_buffers", "reduce_scatter clear",
          "  block 3 = 0, 3072 B", "compute of 512 B for activations", "compute clear", "  block 4 = 0, 512 B",
          "compute of 512 B for activations", "compute clear", "  block 5 = 0, 512 B",
          "compute of 512 B for activations", "compute clear", "  block 6 = 0, 512 B", "synchronize",
          "all_gather clear", "  block 0 = 0, 3072 B", "  block 1 = 0, 3072 B", "synchronize", "all_gather fill",
          "  block 1 + 1024 = host, 1024 B", "synchronize", "reduce_scatter clear", "  block 2 = 0, 3072 B",
          "  block 3 = 0, 3072 B", "synchronize", "reduce_scatter fill", "  block 3 = host, 3072 B", "synchronize",
          "world: barrier", "compute gemm", "  block 6 = block 4 x block 5, 16 x 8 x 4, bfloat16 to bfloat16",
          "compute records 0", "all_gather waits for 0", "reduce_scatter waits for 0",
          "world: all_gather on all_gather, 512 x bfloat16, block 1 + 1024 to block 1, timed",
          "part 0: reduce_scatter on reduce_scatter, 512 x bfloat16, block 3 to block 2, timed", "compute gemm, timed",
          "  block 6 = block 4 x block 5, 16 x 8 x 4, bfloat16 to bfloat16", "synchronize"));
  EXPECT_EQ(all.rows.at(0).dtype, DType::bf16);
}

TEST(ScriptedBesideTest, WhoeverIsFurthestBehindIsIssuedNext) {
  // A gather takes 10, a reduction 20, a product 40 us: 8, 4 and 2 of them take as long.
  const Beside all = beside({{"-n", "2"}}, [](int, int, const std::string& name) {
    return name == "all_gather" ? 10 : name == "gemm" ? 40 : 20;  // the reductions are of a group of all ranks
  });
  const std::string told(8, '|'), known(24, '|');
  const std::string no_gather = "|pRPRRPR", no_reduction = "|pAPAAAAPAAA", no_product = "|ARAARAARAARA",
                    together = "|pARPAARAARPAARA";
  EXPECT_EQ(letters(all.logs[0]), "|pARP|AA|RR|pPP" + told + no_gather + no_reduction + no_product + together +
                                      together + no_product + no_reduction + no_gather + "|pPP|RR|AA" + known);
  EXPECT_EQ(all.rows.at(0).together_us, (BesideRow::Times{10, 20, 40}));
  EXPECT_EQ(beside({}, [](int, int, const std::string&) { return 0; }).rows.at(0).alone_us,
            (BesideRow::Times{0, 0, 0}));
}

}  // namespace
}  // namespace fsdpbench::app
