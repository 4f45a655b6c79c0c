// Computation and collectives beside each other take as much longer as a machine's matrix says, and a calibration takes
// that out of what it measured.
#include "clock/contention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

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

/// A gather beside two passes of modules, one of them the first, and an update, which is no module's.
TEST(Contention, PartsAloneAreOfModulesBesideCollectives) {
  schedule::Schedule schedule;
  std::vector<trace::Record> records;
  const auto add = [&](OpKind kind, int module, std::int64_t begin, std::int64_t end, std::int64_t arrived = 0) {
    records.push_back({0, static_cast<std::int32_t>(records.size()), 0, begin, end, arrived});
    schedule::Op& op = schedule.ops.emplace_back();
    op.kind = kind;
    op.module = module;
    if (kind == OpKind::all_gather) op.work = schedule::Collective{};
  };
  add(OpKind::all_gather, -1, 100, 300, 200);
  add(OpKind::forward, 0, 100, 250);
  add(OpKind::forward, 1, 250, 300);
  add(OpKind::optimizer, -1, 200, 300);
  add(OpKind::forward, 2, 300, 400);
  std::vector<std::pair<std::size_t, std::vector<std::size_t>>> asked;
  const std::vector<double> parts = parts_alone(
      schedule, records, [&](const schedule::Schedule&, std::size_t op, std::span<const std::size_t> beside) {
        asked.push_back({op, {beside.begin(), beside.end()}});
        return 2.0;
      });
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_LT(parts[0], 1);
  EXPECT_LT(parts[1], 1) << "from 200 on";
  EXPECT_LT(parts[2], parts[1]) << "all of it";
  EXPECT_LT(parts[3], 1);
  EXPECT_EQ(parts[4], 1);
  for (const auto& [op, beside] : asked) {
    for (const std::size_t other : beside) EXPECT_TRUE(op == 0 ? other == 1 || other == 2 : other == 0) << op;
  }
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

/// What an op took beside others, and what it would take beside others than there were.
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
