#include "clock/contention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <ranges>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/intervals.h"
#include "clock/collective_kinds.h"
#include "clock/forecast.h"
#include "plan/model_shapes.h"
#include "plan/module_work.h"

namespace fsdpbench::clock {
namespace {

struct Run {
  Interval time;
  std::size_t op = 0;
};

/// Ops in order of their begins, which may overlap: those of a span are found without looking at all.
class Runs {
 public:
  void add(const Run& run) { runs_.push_back(run); }
  void finish() {
    std::ranges::sort(runs_, {}, [](const Run& run) { return std::pair(run.time.begin, run.op); });
    std::transform_inclusive_scan(
        runs_.begin(), runs_.end(), std::back_inserter(latest_end_),
        [](std::int64_t a, std::int64_t b) { return std::max(a, b); }, [](const Run& run) { return run.time.end; });
  }
  /// All that share some of `span`, and maybe some that ended before it.
  std::span<const Run> near(const Interval& span) const {
    const auto first = std::ranges::upper_bound(latest_end_, span.begin) - latest_end_.begin();
    const auto last = std::ranges::lower_bound(runs_, span.end, {}, [](const Run& run) { return run.time.begin; });
    return {runs_.begin() + first, last};
  }

 private:
  std::vector<Run> runs_;
  std::vector<std::int64_t> latest_end_;  // of the runs up to each
};

/// Part of the length of `run` that it would take alone.
double part_alone(const schedule::Schedule& schedule, const Run& run, std::span<const Run> others,
                  const SlowdownOf& slowdown) {
  std::vector<std::int64_t> changes{run.time.begin, run.time.end};
  for (const Run& other : others) {
    changes.push_back(std::clamp(other.time.begin, run.time.begin, run.time.end));
    changes.push_back(std::clamp(other.time.end, run.time.begin, run.time.end));
  }
  std::ranges::sort(changes);
  std::map<double, std::int64_t> slowed;  // by how much, for how long
  std::vector<std::size_t> beside;
  for (auto end = std::next(changes.begin()); end != changes.end(); ++end) {
    const std::int64_t begin = *std::prev(end);
    if (begin == *end) continue;
    beside.clear();
    for (const Run& other : others) {
      if (other.time.begin <= begin && other.time.end >= *end) beside.push_back(other.op);
    }
    if (!beside.empty()) slowed[slowdown(schedule, run.op, beside)] += *end - begin;
  }
  double part = 1;
  for (const auto& [times, ns] : slowed) {
    part -= static_cast<double>(ns) / static_cast<double>(run.time.end - run.time.begin) * (1 - 1 / times);
  }
  return part;
}

using config::CalibrationSlowdown;
using schedule::OpKind;

/// Logarithms of m, n, k of a product.
using Shape = std::array<double, 3>;

Shape log_shape(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {std::log(static_cast<double>(m)), std::log(static_cast<double>(n)), std::log(static_cast<double>(k))};
}

/// The cells of one kind of op beside another.
class Cells {
 public:
  void add(const CalibrationSlowdown::Cell& cell) {
    cells_.push_back({log_shape(cell.m, cell.n, cell.k), std::log(static_cast<double>(cell.bytes)), cell.times});
  }
  bool empty() const { return cells_.empty(); }
  /// At least one cell.
  double nearest(const Shape& shape, double log_bytes) const {
    const auto apart = [&](const Cell& cell) {
      return std::abs(cell.log_bytes - log_bytes) + std::abs(cell.shape[0] - shape[0]) +
             std::abs(cell.shape[1] - shape[1]) + std::abs(cell.shape[2] - shape[2]);
    };
    return std::ranges::min_element(cells_, {}, apart)->times;
  }

 private:
  struct Cell {
    Shape shape;
    double log_bytes = 0;
    double times = 1;
  };
  std::vector<Cell> cells_;
};

/// Cells of this dtype, if there are any, and their limit of CTAs nearest to `max_ctas`: NCCL's own choice
/// where that was measured, unless the very limit was.
struct Measured {
  DType dtype = DType::f32;
  int max_ctas = 0;
};
Measured most_alike(const std::vector<CalibrationSlowdown>& measured, DType dtype, int max_ctas) {
  std::vector<Measured> all;
  for (const CalibrationSlowdown& slowdown : measured) {
    for (const CalibrationSlowdown::Cell& cell : slowdown.cells) all.push_back({slowdown.dtype, cell.max_ctas});
  }
  const auto known = std::ranges::find(all, dtype, &Measured::dtype);
  const DType of = known == all.end() ? all.front().dtype : dtype;
  return *std::ranges::min_element(all, {}, [&](const Measured& one) {
    return std::tuple(one.dtype != of, one.max_ctas != max_ctas, one.max_ctas != 0, std::abs(one.max_ctas - max_ctas));
  });
}

bool sums_up(OpKind kind) {
  return kind == OpKind::reduce_scatter || kind == OpKind::all_reduce || kind == OpKind::tensor_all_reduce;
}

class MeasuredSlowdown {
 public:
  MeasuredSlowdown(const std::vector<CalibrationSlowdown>& measured, const config::RunConfig& config,
                   const plan::Groups& groups)
      : groups_(groups) {
    const Measured choice = most_alike(measured, config.fsdp.param_dtype, config.nccl.max_ctas);
    for (const CalibrationSlowdown& slowdown : measured) {
      if (slowdown.dtype != choice.dtype) continue;
      for (const CalibrationSlowdown::Cell& cell : slowdown.cells) {
        if (cell.max_ctas == choice.max_ctas) cells_of(slowdown.of, slowdown.beside).add(cell);
      }
    }
    const bool decoder = config.model.kind == config::ModelKind::decoder;
    for (const plan::ModuleWork& work :
         plan::module_work(plan::tensor_part(config.model, static_cast<int>(config.mesh.tensor)),
                           config.train.batch_per_rank, decoder ? config.train.seq_len : 1, 1,
                           plan::expert_split(config), config.fsdp.checkpoint_keeps, config.mesh.context)) {
      modules_.push_back(products_of(work));
    }
  }

  double operator()(const schedule::Schedule& schedule, std::size_t op, std::span<const std::size_t> beside) const {
    const schedule::Op& own = schedule.ops[op];
    if (own.is_collective()) {
      const Cells& cells = sums_up(own.kind) ? reduce_ : gather_;
      return std::ranges::max(beside | std::views::transform([&](std::size_t other) {
                                return times(cells, schedule.ops[other], log_bytes(own));
                              }));
    }
    const auto reduce = [&](std::size_t other) { return sums_up(schedule.ops[other].kind); };
    const bool both = std::ranges::any_of(beside, reduce) && !std::ranges::all_of(beside, reduce);
    const double most_bytes = std::ranges::max(
        beside | std::views::transform([&](std::size_t other) { return log_bytes(schedule.ops[other]); }));
    if (both && !beside_both_.empty()) return times(beside_both_, own, most_bytes);
    return std::ranges::max(beside | std::views::transform([&](std::size_t other) {
                              return times(reduce(other) ? beside_reduce_ : beside_gather_, own, most_bytes);
                            }));
  }

 private:
  struct Weighted {
    Shape shape;
    double flops = 0;
  };
  /// Products by pass of a module.
  struct Products {
    std::vector<Weighted> forward, recompute, backward;
  };

  static Products products_of(const plan::ModuleWork& work) {
    Products all;
    const auto add = [](std::vector<Weighted>& pass, const plan::Product& product) {
      pass.push_back({log_shape(product.m, product.n, product.k), product.flops()});
    };
    using Pass = plan::ModuleWork::Pass;
    for (const plan::Product& product : work.products_of(Pass::forward)) add(all.forward, product);
    for (const plan::Product& product : work.products_of(Pass::recompute)) add(all.recompute, product);
    for (const plan::Product& product : work.products_of(Pass::backward)) {
      for (const plan::Product& gradient : product.backward()) add(all.backward, gradient);
    }
    return all;
  }

  Cells& cells_of(std::string_view of, std::string_view beside) {
    if (of == "all_gather") return gather_;
    if (of == "reduce_scatter") return reduce_;
    return beside == "both" ? beside_both_ : beside == "all_gather" ? beside_gather_ : beside_reduce_;
  }

  double log_bytes(const schedule::Op& collective) const {
    return std::log(static_cast<double>(message_of(collective, groups_).bytes));
  }

  /// By `cells`, with the products of `computation`; at least 1.
  double times(const Cells& cells, const schedule::Op& computation, double log_bytes) const {
    if (cells.empty()) return 1;
    double flops = 0, slowed = 0;
    for (const Weighted& product : products_of(computation)) {
      flops += product.flops;
      slowed += product.flops * cells.nearest(product.shape, log_bytes);
    }
    return slowed <= flops ? 1 : slowed / flops;
  }

  std::span<const Weighted> products_of(const schedule::Op& op) const {
    switch (op.kind) {
      case OpKind::forward: return modules_[op.module].forward;
      case OpKind::recompute: return modules_[op.module].recompute;
      case OpKind::backward: return modules_[op.module].backward;
      default: return {};
    }
  }

  const plan::Groups& groups_;
  Cells beside_gather_, beside_reduce_, beside_both_;  // of products
  Cells gather_, reduce_;                              // beside products
  std::vector<Products> modules_;
};

}  // namespace

std::vector<double> parts_alone(const schedule::Schedule& schedule, std::span<const trace::Record> records,
                                const SlowdownOf& slowdown) {
  std::vector<double> parts(schedule.ops.size(), 1.0);
  std::vector<Run> runs;
  Runs collectives, computations;
  for (const trace::Record& record : records) {
    const std::size_t i = record.op;
    const schedule::Op& op = schedule.ops[i];
    if (record.begin_ns == 0) continue;
    const Run run{
        {op.is_collective() ? std::max(record.begin_ns, record.peers_arrived_ns) : record.begin_ns, record.end_ns}, i};
    if (run.time.end <= run.time.begin) continue;
    runs.push_back(run);
    if (op.is_collective()) {
      collectives.add(run);
    } else if (op.module >= 0) {
      computations.add(run);
    }
  }
  collectives.finish();
  computations.finish();
  for (const Run& run : runs) {
    const Runs& others = schedule.ops[run.op].is_collective() ? computations : collectives;
    parts[run.op] = part_alone(schedule, run, others.near(run.time), slowdown);
  }
  return parts;
}

void add_contention(const schedule::Training& training, const SlowdownOf& slowdown, OpTimes& times) {
  constexpr int kMostWalks = 8;
  StepCosts& costs = times.steps.back();
  const StepCosts alone = costs;
  const std::vector<OpTimes::ByRank> given_alone = times.given;
  const int ranks = given_alone.empty() ? 1 : static_cast<int>(given_alone.back().size());
  double last_step{};
  for (int walk = 0; walk < kMostWalks; ++walk) {
    const std::vector<trace::RankTrace> traces = forecast(training, times, SteadyStep::first, ranks).traces;
    const auto step = static_cast<double>(traces.front().steps.back().end_ns - traces.front().steps.back().begin_ns);
    if (std::abs(step - last_step) < 1e-3 * step) return;
    last_step = step;
    std::vector<std::vector<double>> parts;  // by rank
    for (const trace::RankTrace& trace : traces) {
      parts.push_back(parts_alone(training.schedules.steady(), trace.records, slowdown));
    }
    for (std::size_t i = 0; i < costs.size(); ++i) {
      costs[i].run_ns = std::nearbyint(alone[i].run_ns / parts.front()[i]);
      costs[i].link_ns = std::nearbyint(alone[i].link_ns / parts.front()[i]);
    }
    for (std::size_t s = training.schedules.steps.size() - 1; s < given_alone.size(); ++s) {
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        for (std::size_t i = 0; i < parts[rank].size(); ++i) {
          times.given[s][rank][i] = std::llround(static_cast<double>(given_alone[s][rank][i]) / parts[rank][i]);
        }
      }
    }
  }
}

double most_slowed_computation(const schedule::Schedule& schedule, std::size_t op,
                               std::span<const std::size_t> /*beside*/) {
  constexpr double kSlowest = 1.4;
  return schedule.ops[op].is_collective() || schedule.ops[op].module < 0 ? 1 : kSlowest;
}

SlowdownOf measured_slowdown(const std::vector<CalibrationSlowdown>& measured, const config::RunConfig& config,
                             const plan::Groups& groups) {
  if (measured.empty()) return {};
  return [slowdown = std::make_shared<const MeasuredSlowdown>(measured, config, groups)](
             const schedule::Schedule& schedule, std::size_t op, std::span<const std::size_t> beside) {
    return (*slowdown)(schedule, op, beside);
  };
}

}  // namespace fsdpbench::clock
