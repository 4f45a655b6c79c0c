// Computation and collectives beside each other take as much longer as a machine's matrix says, and a calibration takes
// that out of what it measured.
#include "clock/contention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/intervals.h"
#include "clock/calibration.h"
#include "clock/emulated_times.h"
#include "clock/forecast.h"
#include "clock/measured_times.h"
#include "clock/what_if_times.h"
#include "support/schedule_cases.h"

namespace fsdpbench::clock {
namespace {

using config::CalibrationSlowdown;
using schedule::OpKind;

/// A decoder whose modules compute for milliseconds, on a link of so many bytes a second.
struct ContendedRun {
  explicit ContendedRun(double link_bytes_per_s = 1e6, config::RunConfig config = testing::decoder_config(4, 4))
      : made(testing::make_case(std::move(config))) {
    for (std::size_t m = 1; m < made.sizes.size(); ++m) {
      made.sizes[m].forward_flops = 2e6 + 1e5 * static_cast<double>(m);
      made.sizes[m].backward_flops = 4e6;
    }
    times = emulated_times(made, {1e9, {link_bytes_per_s, 3e-6}});
    times.host.start_ns = 1e6;  // a record at 0 is of an op that did not run
  }
  const schedule::Schedule& steady() const { return made.schedules.steady(); }
  SlowdownOf slowdown(const std::vector<CalibrationSlowdown>& measured) const {
    return measured_slowdown(measured, made.config, made.plan.groups);
  }
  OpTimes slowed(const std::vector<CalibrationSlowdown>& measured) const {
    OpTimes longer = times;
    add_contention(made, slowdown(measured), longer);
    return longer;
  }
  std::vector<trace::RankTrace> walked(const OpTimes& with, int steps = 4) const {
    std::vector<trace::RankTrace> traces(static_cast<std::size_t>(made.plan.groups.ranks()));
    for (std::size_t rank = 0; rank < traces.size(); ++rank) traces[rank].rank = static_cast<int>(rank);
    forecast_run(made, with, static_cast<std::size_t>(steps), 0, traces);
    return traces;
  }
  /// Records of rank 0's last step.
  std::vector<trace::Record> records(const OpTimes& with) const {
    const trace::RankTrace trace = walked(with).front();
    return {trace.records.end() - static_cast<std::ptrdiff_t>(steady().ops.size()), trace.records.end()};
  }
  std::size_t op(OpKind kind, int module = -1) const {
    for (std::size_t i = 0; i < steady().ops.size(); ++i) {
      if (steady().ops[i].kind == kind && (module < 0 || steady().ops[i].module == module)) return i;
    }
    ADD_FAILURE() << "there is no such op";
    return 0;
  }

  testing::ScheduleCase made;
  OpTimes times;
};

CalibrationSlowdown measured(const char* of, const char* beside, std::vector<CalibrationSlowdown::Cell> cells,
                             DType dtype = DType::f32) {
  return {of, beside, dtype, std::move(cells)};
}

CalibrationSlowdown::Cell always(double times) { return {512, 512, 512, 1 << 20, 0, times}; }

std::int64_t duration(const trace::Record& record) {
  return record.end_ns - std::max(record.begin_ns, record.peers_arrived_ns);
}

/// Intervals in which ops of one sort were under way on rank 0.
IntervalSet under_way(const ContendedRun& run, const std::vector<trace::Record>& records, bool collectives) {
  std::vector<Interval> all;
  for (const trace::Record& record : records) {
    const schedule::Op& op = run.steady().ops[static_cast<std::size_t>(record.op)];
    if (!op.has_work() || op.is_collective() != collectives || (!collectives && op.module < 0)) continue;
    all.push_back({std::max(record.begin_ns, record.peers_arrived_ns), record.end_ns});
  }
  return unite(std::move(all));
}

TEST(Contention, ComputationThatIsHiddenTakesExactlySoMuchLonger) {
  const ContendedRun run(6e6);
  const OpTimes longer = run.slowed({measured("matrix_product", "all_gather", {always(1.5)}),
                                     measured("matrix_product", "reduce_scatter", {always(1.5)})});
  const std::vector<trace::Record> records = run.records(longer);
  const IntervalSet transfers = under_way(run, records, true);
  int hidden = 0, alone = 0;
  for (const trace::Record& record : records) {
    const auto i = static_cast<std::size_t>(record.op);
    const schedule::Op& op = run.steady().ops[i];
    if (op.is_collective()) {
      EXPECT_EQ(longer.steps.back()[i].link_ns, run.times.steps.back()[i].link_ns);
    }
    if (op.module < 1 || (op.kind != OpKind::forward && op.kind != OpKind::backward)) continue;
    const double was = run.times.steps.back()[i].run_ns;
    const std::int64_t beside = length_within({record.begin_ns, record.end_ns}, transfers);
    if (beside == 0) {
      EXPECT_EQ(static_cast<double>(duration(record)), was);
      ++alone;
    } else if (beside == duration(record)) {
      EXPECT_EQ(static_cast<double>(duration(record)), 1.5 * was) << "op " << i;
      ++hidden;
    } else {  // in the stretch beside transfers it got on at 1/1.5
      EXPECT_NEAR(static_cast<double>(duration(record) - beside) + static_cast<double>(beside) / 1.5, was, 0.01 * was);
    }
  }
  EXPECT_GT(hidden, 3);
  EXPECT_GT(alone, 0);
}

TEST(Contention, CollectivesBesideProductsTakeLongerAsFarAsTheyAreBesideThem) {
  const ContendedRun run(1e8);  // transfers are shorter than computation: many are hidden as a whole
  const OpTimes longer = run.slowed({measured("all_gather", "matrix_product", {always(1.25)})});
  const std::vector<trace::Record> records = run.records(longer);
  const IntervalSet computations = under_way(run, records, false);
  int hidden = 0;
  for (const trace::Record& record : records) {
    const auto i = static_cast<std::size_t>(record.op);
    const schedule::Op& op = run.steady().ops[i];
    if (!op.is_collective()) continue;
    const OpCost& cost = longer.steps.back()[i];
    const OpCost& was = run.times.steps.back()[i];
    if (op.kind != OpKind::all_gather) {
      EXPECT_EQ(cost.link_ns, was.link_ns);
      continue;
    }
    const Interval time{std::max(record.begin_ns, record.peers_arrived_ns), record.end_ns};
    if (length_within(time, computations) != time.end - time.begin) continue;
    EXPECT_NEAR(cost.run_ns + cost.link_ns, 1.25 * (was.run_ns + was.link_ns), 1);
    ++hidden;
  }
  EXPECT_GT(hidden, 3);
}

TEST(Contention, NothingIsSlowedThatWasNotMeasuredOrIsAsFastBesideOthers) {
  const ContendedRun run;
  for (const OpTimes& same : {run.slowed({measured("matrix_product", "all_gather", {always(0.9)})}),
                              run.slowed({measured("reduce_scatter", "matrix_product", {always(1)})})}) {
    for (std::size_t i = 0; i < run.steady().ops.size(); ++i) {
      EXPECT_EQ(same.steps.back()[i].run_ns, run.times.steps.back()[i].run_ns);
      EXPECT_EQ(same.steps.back()[i].link_ns, run.times.steps.back()[i].link_ns);
    }
  }
  EXPECT_FALSE(run.slowdown({}));
}

/// An op takes twice as long beside one other, four times as long beside two.
TEST(Contention, PartsAloneAreOfModulesBesideCollectives) {
  struct Row {
    OpKind kind;
    int module;
    std::int64_t begin, end, arrived;
    double part;
  };
  const std::vector<Row> rows{
      {OpKind::all_gather, -1, 100, 300, 200, 0.5},  // from 200 on, all of it beside the next two
      {OpKind::forward, 0, 100, 250, 0, 1 - (35 * 0.5 + 25 * 0.75) / 150},
      {OpKind::forward, 1, 250, 300, 0, 1 - (25 * 0.5 + 25 * 0.75) / 50},
      {OpKind::optimizer, -1, 200, 300, 0, 1 - (50 * 0.5 + 50 * 0.75) / 100},
      {OpKind::forward, 2, 300, 400, 0, 1},
      {OpKind::reduce_scatter, -1, 225, 275, 0, 0.5},
      {OpKind::all_gather, -1, 350, 380, 390, 1},  // clocks apart: over before its peers arrived
      {OpKind::host_wait, 0, 0, 390, 0, 1},
      {OpKind::all_gather, -1, 1000, 2000, 0, 1 - 100 * 0.5 / 1000},
      {OpKind::all_gather, -1, 1100, 1200, 0, 1},  // over before the next begins
      {OpKind::forward, 3, 1500, 1600, 0, 0.5},
      {OpKind::all_gather, -1, 150, 160, 0, 0.5},  // issued late
      {OpKind::forward, 4, 20, 40, 0, 0.75},
      {OpKind::all_gather, -1, 30, 50, 0, 0.75},
  };
  schedule::Schedule schedule;
  std::vector<trace::Record> records;
  for (const Row& row : rows) {
    records.push_back({0, static_cast<std::int32_t>(records.size()), 0, row.begin, row.end, row.arrived});
    schedule::Op& op = schedule.ops.emplace_back();
    op.kind = row.kind;
    op.module = row.module;
    if (row.kind == OpKind::all_gather || row.kind == OpKind::reduce_scatter) op.work = schedule::Collective{};
  }
  const std::vector<double> parts =
      parts_alone(schedule, records, [](const schedule::Schedule&, std::size_t, std::span<const std::size_t> beside) {
        return std::exp2(static_cast<double>(beside.size()));
      });
  ASSERT_EQ(parts.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(parts[i], rows[i].part, 1e-12) << i;
}

TEST(Contention, CellsAreChosenByDtypeThenCtasThenShapeAndMessage) {
  config::RunConfig config = testing::decoder_config(4, 4);
  const ContendedRun any;
  const std::size_t forward = any.op(OpKind::forward, 1), gather = any.op(OpKind::all_gather),
                    reduce = any.op(OpKind::reduce_scatter);
  const auto times = [&](std::vector<CalibrationSlowdown> all, std::vector<std::size_t> beside) {
    const ContendedRun run(1e6, config);
    return run.slowdown(all)(run.steady(), forward, beside);
  };
  const auto of_gather = [&](std::vector<CalibrationSlowdown::Cell> cells) {
    return measured("matrix_product", "all_gather", std::move(cells));
  };
  // Its products have some tens of rows and columns, its messages some tens of KiB.
  EXPECT_EQ(times({of_gather({{32, 32, 32, 1 << 15, 0, 2}, {4096, 4096, 4096, 1 << 15, 0, 3}})}, {gather}), 2);
  EXPECT_EQ(times({of_gather({{32, 32, 32, 1 << 30, 0, 2}, {32, 32, 32, 1 << 15, 0, 3}})}, {gather}), 3);
  // A limit of CTAs that was measured comes first, then NCCL's own choice, then the nearest.
  const std::vector<CalibrationSlowdown> by_ctas{of_gather({{32, 32, 32, 1 << 15, 16, 4}, {1, 1, 1, 1, 8, 5}})};
  config.nccl.max_ctas = 8;
  EXPECT_EQ(times(by_ctas, {gather}), 5);
  config.nccl.max_ctas = 32;
  EXPECT_EQ(times(by_ctas, {gather}), 4);
  EXPECT_EQ(times({of_gather({{32, 32, 32, 1 << 15, 30, 4}, {1, 1, 1, 1, 0, 6}})}, {gather}), 6);
  EXPECT_EQ(times({of_gather({{32, 32, 32, 1 << 15, 24, 4}, {32, 32, 32, 1 << 15, 40, 5}})}, {gather}), 4) << "as near";
  // The dtype of the training, where it was measured.
  const std::vector<CalibrationSlowdown> by_dtype{of_gather({always(2)}),
                                                  measured("matrix_product", "all_gather", {always(3)}, DType::bf16)};
  EXPECT_EQ(times(by_dtype, {gather}), 2);
  config.fsdp.param_dtype = DType::bf16;
  EXPECT_EQ(times(by_dtype, {gather}), 3);
  EXPECT_EQ(times({of_gather({always(2)})}, {gather}), 2);
  // Beside two collectives: as measured beside both, else the worse one.
  std::vector<CalibrationSlowdown> pair{of_gather({always(2)}),
                                        measured("matrix_product", "reduce_scatter", {always(3)})};
  EXPECT_EQ(times(pair, {gather, reduce}), 3);
  pair.push_back(measured("matrix_product", "both", {always(4)}));
  EXPECT_EQ(times(pair, {gather, reduce}), 4);
  EXPECT_EQ(times(pair, {reduce}), 3);
}

TEST(Contention, AModuleIsSlowedAsItsProductsAreByTheirFlops) {
  const ContendedRun run;
  const std::size_t gather = run.op(OpKind::all_gather);
  const auto times = [&](std::size_t op, std::vector<CalibrationSlowdown::Cell> cells) {
    return run.slowdown({measured("matrix_product", "all_gather", std::move(cells))})(run.steady(), op,
                                                                                      std::vector{gather});
  };
  // The head's one product has as many columns as the vocabulary, 64; backward it is also the depth, of another
  // product.
  const int head = static_cast<int>(run.made.sizes.size()) - 1;
  const auto rows = run.made.config.train.batch_per_rank * run.made.config.train.seq_len;
  const CalibrationSlowdown::Cell forward{rows, 64, 32, 1 << 15, 0, 2}, input{rows, 32, 64, 1 << 15, 0, 3},
      weight{64, 32, rows, 1 << 15, 0, 5};
  EXPECT_EQ(times(run.op(OpKind::forward, head), {forward, input, weight}), 2);
  EXPECT_EQ(times(run.op(OpKind::backward, head), {forward, input, weight}), 4);  // both of as many FLOPs
  EXPECT_EQ(times(run.op(OpKind::forward, 0), {forward, input, weight}), 1) << "the embedding multiplies nothing";
  EXPECT_EQ(times(run.op(OpKind::optimizer), {forward, input, weight}), 1);
}

TEST(Contention, ACalibrationTakesItOutOfWhatWasMeasuredAndASimulationPutsItBack) {
  const ContendedRun run(2e7);
  const std::vector<CalibrationSlowdown> matrix{measured("matrix_product", "all_gather", {always(1.5)}),
                                                measured("matrix_product", "reduce_scatter", {always(1.8)}),
                                                measured("matrix_product", "both", {always(2)}),
                                                measured("all_gather", "matrix_product", {always(1.2)}),
                                                measured("reduce_scatter", "matrix_product", {always(1.3)})};
  const OpTimes longer = run.slowed(matrix);
  const std::vector<trace::RankTrace> traces = run.walked(longer);
  const auto calibrated = [&](const SlowdownOf& slowdown) {
    Calibrator calibrator;
    calibrator.add(MeasuredTimes(run.made, traces, std::nullopt, true, slowdown), {});
    return calibrated_times(calibrator.result(), run.made).times;
  };
  const auto step_ns = [&](const OpTimes& times) {
    const trace::StepWindow step = run.walked(times).front().steps.back();
    return static_cast<double>(step.end_ns - step.begin_ns);
  };
  OpTimes alone = calibrated(run.slowdown(matrix));
  const std::size_t hidden = run.op(OpKind::forward, 2);
  EXPECT_NEAR(alone.steps.back()[hidden].run_ns, run.times.steps.back()[hidden].run_ns,
              0.02 * alone.steps.back()[hidden].run_ns);
  EXPECT_GT(calibrated({}).steps.back()[hidden].run_ns, 1.2 * run.times.steps.back()[hidden].run_ns);
  add_contention(run.made, run.slowdown(matrix), alone);
  EXPECT_NEAR(step_ns(alone), step_ns(longer), 0.01 * step_ns(longer));
  EXPECT_GT(step_ns(longer), 1.05 * step_ns(run.times));
}

/// Cells that are off by 4 in one of their numbers, or by 1/2: that is nearer. Of equally near ones the first.
TEST(Contention, EachSideOfAProductAndTheMessageCountAlike) {
  const ContendedRun run;
  const std::size_t gather = run.op(OpKind::all_gather);
  const int head = static_cast<int>(run.made.sizes.size()) - 1;
  const std::int64_t rows = run.made.config.train.batch_per_rank * run.made.config.train.seq_len;
  const std::int64_t bytes = 4 * run.steady().ops[gather].collective()->bytes();
  const auto times = [&](std::vector<CalibrationSlowdown::Cell> cells) {
    return run.slowdown({measured("matrix_product", "all_gather", std::move(cells))})(
        run.steady(), run.op(OpKind::forward, head), std::vector{gather});
  };
  using Side = std::int64_t CalibrationSlowdown::Cell::*;
  const Side sides[]{&CalibrationSlowdown::Cell::m, &CalibrationSlowdown::Cell::n, &CalibrationSlowdown::Cell::k,
                     &CalibrationSlowdown::Cell::bytes};
  for (const Side side : sides) {
    CalibrationSlowdown::Cell far{rows, 64, 32, bytes, 0, 2}, less{rows, 64, 32, bytes, 0, 3},
        more{rows, 64, 32, bytes, 0, 5};
    far.*side *= 4;
    less.*side /= 2;
    more.*side *= 2;
    EXPECT_EQ(times({far, less}), 3);
    EXPECT_EQ(times({far, more}), 5);
    for (const Side other : sides) {  // one off by 2 is nearer than two
      CalibrationSlowdown::Cell two = less;
      two.*other *= side == other ? 1 : 2;
      if (side != other) {
        EXPECT_EQ(times({two, more}), 5);
      }
    }
  }
  EXPECT_EQ(times({{rows, 64, 32, bytes, 0, 2}, {rows, 64, 32, bytes, 0, 3}}), 2);
}

/// Collectives that sum up are as reduce-scatters are, all else as gathers; a collective beside several takes as long
/// as beside the worst of them.
TEST(Contention, EachKindOfCollectiveHasItsCells) {
  config::RunConfig config = testing::decoder_config(4, 4);
  config.fsdp.activation_checkpointing = true;
  const ContendedRun run(1e6, config);
  const int head = static_cast<int>(run.made.sizes.size()) - 1;
  const auto rows = run.made.config.train.batch_per_rank * run.made.config.train.seq_len;
  const CalibrationSlowdown::Cell forward{rows, 64, 32, 1 << 15, 0, 2}, input{rows, 32, 64, 1 << 15, 0, 4};
  const SlowdownOf slowdown = run.slowdown({measured("matrix_product", "all_gather", {always(1.25)}),
                                            measured("matrix_product", "reduce_scatter", {always(1.5)}),
                                            measured("all_gather", "matrix_product", {forward, input}),
                                            measured("reduce_scatter", "matrix_product", {always(8)})});
  const std::size_t first = run.op(OpKind::forward, head), last = run.op(OpKind::backward, head),
                    again = run.op(OpKind::recompute), gather = run.op(OpKind::all_gather);
  for (const auto& [kind, of, beside] : {std::tuple{OpKind::all_gather, 2.0, 1.25},
                                         {OpKind::tensor_all_gather, 2.0, 1.25},
                                         {OpKind::reduce_scatter, 8.0, 1.5},
                                         {OpKind::all_reduce, 8.0, 1.5},
                                         {OpKind::tensor_all_reduce, 8.0, 1.5}}) {
    schedule::Schedule schedule = run.steady();
    schedule.ops[gather].kind = kind;
    EXPECT_EQ(slowdown(schedule, gather, std::vector{first}), of) << schedule::to_string(kind);
    EXPECT_EQ(slowdown(schedule, first, std::vector{gather}), beside) << schedule::to_string(kind);
    EXPECT_EQ(slowdown(schedule, again, std::vector{gather}), beside) << "computed again";
  }
  EXPECT_GT(slowdown(run.steady(), gather, std::vector{first, last}), 2);
  EXPECT_EQ(slowdown(run.steady(), gather, std::vector{first, last}),
            slowdown(run.steady(), gather, std::vector{last, first}));
  EXPECT_EQ(slowdown(run.steady(), gather, std::vector{run.op(OpKind::optimizer)}), 1) << "it multiplies nothing";
}

/// The largest message of several collectives counts; the rows of layers without sequences are their samples.
TEST(Contention, MessagesAndRowsAreThoseOfTheTraining) {
  config::RunConfig config = testing::decoder_config(4, 4);
  config.model.kind = config::ModelKind::mlp;
  config.train.batch_per_rank = 16;
  config.train.seq_len = 1024;
  const ContendedRun run(1e6, config);
  const auto& ops = run.steady().ops;
  std::size_t small = run.op(OpKind::all_gather), large = small;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::all_gather) continue;
    if (ops[i].collective()->bytes() < ops[small].collective()->bytes()) small = i;
    if (ops[i].collective()->bytes() > ops[large].collective()->bytes()) large = i;
  }
  const auto bytes = [&](std::size_t op) { return 4 * ops[op].collective()->bytes(); };
  ASSERT_LT(bytes(small), bytes(large));
  const auto times = [&](CalibrationSlowdown::Cell a, CalibrationSlowdown::Cell b, std::vector<std::size_t> beside) {
    return run.slowdown({measured("matrix_product", "all_gather", {a, b})})(run.steady(), run.op(OpKind::forward, 1),
                                                                            beside);
  };
  const CalibrationSlowdown::Cell of_small{16, 32, 32, bytes(small), 0, 2}, of_large{16, 32, 32, bytes(large), 0, 3};
  EXPECT_EQ(times(of_small, of_large, {small, large}), 3);
  EXPECT_EQ(times(of_small, of_large, {small}), 2);
  EXPECT_EQ(times({16, 32, 32, 1, 0, 2}, {32, 32, 32, 1, 0, 3}, {small}), 2);
  EXPECT_EQ(times({8, 32, 32, 1, 0, 2}, {16, 32, 32, 1, 0, 3}, {small}), 3);
}

/// A forward of a millisecond beside a gather of half of it. What they slow each other by, walk by walk.
TEST(Contention, IsWalkedUntilTheStepStaysWithinAThousandth) {
  schedule::Training training;
  training.plan.groups = plan::Groups{plan::Mesh{4, 1}, 1, false};
  training.schedules.steps.resize(1);
  training.schedules.steps[0].ops = {{.kind = OpKind::all_gather,
                                      .lane = Lane::all_gather,
                                      .work = schedule::Collective{.group = plan::Group::shard, .count = 1}},
                                     {.kind = OpKind::forward, .module = 0}};
  OpTimes times;
  const auto start = [&] {
    times.steps = {{{0, 500'000}, {1'000'000}}};
    times.host.start_ns = 1e12;
  };
  const auto asked = [&](auto forward_times, double* ns = nullptr) {
    start();
    int walks = 0;
    add_contention(
        training,
        [&](const schedule::Schedule&, std::size_t op, std::span<const std::size_t>) {
          return op == 0 ? 1 : forward_times(++walks);
        },
        times);
    if (ns != nullptr) *ns = times.steps[0][1].run_ns;
    EXPECT_EQ(times.steps[0][0].link_ns, 500'000);
    return walks;
  };
  // It takes 1/(1 - (1 - 1/times)/2) as long.
  const auto longer = [](double by) { return [by](int) { return 1 / (1 - 2 * (1 - 1 / by)); }; };
  double ns = 0;
  EXPECT_EQ(asked(longer(1.00095), &ns), 1) << "the second walk ends it";
  EXPECT_EQ(ns, 1'000'950);
  EXPECT_EQ(asked(longer(1.00105)), 2);
  EXPECT_EQ(asked([](int walk) { return walk % 2 == 0 ? 1.0 : 4.0; }, &ns), 8) << "it never stays";
  EXPECT_EQ(asked([](int) { return 1.0; }), 1);
  start();
  add_contention(
      training,
      [](const schedule::Schedule&, std::size_t op, std::span<const std::size_t>) { return op == 0 ? 1.25 : 1; },
      times);
  EXPECT_EQ(times.steps[0][0].link_ns, 625'000);
}

/// A replay of another schedule takes the measured contention out, and puts in that of the new neighbours.
TEST(Contention, AReplayPutsItBackOnEachRankWhereTheScheduleIsAnother) {
  config::RunConfig late = testing::decoder_config(4, 4);
  late.fsdp.forward_prefetch = late.fsdp.backward_prefetch = {};
  const ContendedRun run(2e7, late), hides(2e7);
  const SlowdownOf slowdown = [](const schedule::Schedule& schedule, std::size_t op, std::span<const std::size_t>) {
    return schedule.ops[op].is_collective() ? 1 : 1.5;
  };
  const auto slowed = [&](const ContendedRun& of) {
    OpTimes times = of.times;
    add_contention(of.made, slowdown, times);
    return times;
  };
  const std::vector<trace::RankTrace> traces = run.walked(slowed(run));
  const double truth = forecast(hides.made, slowed(hides)).slowest_ns();
  const auto replayed = [&](const SlowdownOf& taken_out) {
    OpTimes times = what_if_times(MeasuredTimes(run.made, traces, std::nullopt, false, taken_out), hides.made).times;
    if (taken_out) add_contention(hides.made, taken_out, times);
    return forecast(hides.made, times).slowest_ns();
  };
  EXPECT_LT(replayed({}), 0.97 * truth) << "only what was slow stays slow";
  EXPECT_NEAR(replayed(slowdown), truth, 0.01 * truth);
}

}  // namespace
}  // namespace fsdpbench::clock
