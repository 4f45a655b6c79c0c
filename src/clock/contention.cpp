#include "clock/contention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string_view>
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
    for (const Run& run : runs_)
      latest_end_.push_back(std::max(latest_end_.empty() ? 0 : latest_end_.back(), run.time.end));
  }
  /// Those that share some of `span`.
  void within(const Interval& span, std::vector<Run>& found) const {
    found.clear();
    const auto first = std::ranges::upper_bound(latest_end_, span.begin) - latest_end_.begin();
    for (auto run = runs_.begin() + first; run != runs_.end() && run->time.begin < span.end; ++run) {
      if (run->time.end > span.begin) found.push_back(*run);
    }
  }

 private:
  std::vector<Run> runs_;
  std::vector<std::int64_t> latest_end_;  // of the runs up to each
};

/// Part of the length of `run` that it would take alone.
double part_alone(const schedule::Schedule& schedule, const Run& run, const std::vector<Run>& others,
                  const SlowdownOf& slowdown) {
  std::vector<std::int64_t> changes{run.time.begin, run.time.end};
  for (const Run& other : others) {
    changes.push_back(std::clamp(other.time.begin, run.time.begin, run.time.end));
    changes.push_back(std::clamp(other.time.end, run.time.begin, run.time.end));
  }
  std::ranges::sort(changes);
  std::vector<std::pair<double, std::int64_t>> slowed;  // by how much, for how long
  std::vector<std::size_t> beside;
  for (std::size_t c = 0; c + 1 < changes.size(); ++c) {
    if (changes[c] == changes[c + 1]) continue;
    beside.clear();
    for (const Run& other : others) {
      if (other.time.begin <= changes[c] && other.time.end >= changes[c + 1]) beside.push_back(other.op);
    }
    const double times = beside.empty() ? 1 : slowdown(schedule, run.op, beside);
    if (times <= 1) continue;
    const auto known = std::ranges::find(slowed, times, &std::pair<double, std::int64_t>::first);
    if (known == slowed.end()) {
      slowed.emplace_back(times, changes[c + 1] - changes[c]);
    } else {
      known->second += changes[c + 1] - changes[c];
    }
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
  const auto log_of = [](std::int64_t value) {
    return std::log(static_cast<double>(std::max<std::int64_t>(value, 1)));
  };
  return {log_of(m), log_of(n), log_of(k)};
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
    double least = std::numeric_limits<double>::infinity(), times = 1;
    for (const Cell& cell : cells_) {
      double apart = std::abs(cell.log_bytes - log_bytes);
      for (std::size_t i = 0; i < shape.size(); ++i) apart += std::abs(cell.shape[i] - shape[i]);
      if (apart < least) {
        least = apart;
        times = cell.times;
      }
    }
    return times;
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
  Measured choice{measured.front().dtype, 0};
  for (const CalibrationSlowdown& slowdown : measured) {
    if (slowdown.dtype == dtype) choice.dtype = dtype;
  }
  int least = std::numeric_limits<int>::max();
  for (const CalibrationSlowdown& slowdown : measured) {
    if (slowdown.dtype != choice.dtype) continue;
    for (const CalibrationSlowdown::Cell& cell : slowdown.cells) {
      const int apart = cell.max_ctas == max_ctas ? -2 : cell.max_ctas == 0 ? -1 : std::abs(cell.max_ctas - max_ctas);
      if (apart >= least) continue;
      least = apart;
      choice.max_ctas = cell.max_ctas;
    }
  }
  return choice;
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
      double most = 1;
      for (const std::size_t other : beside) most = std::max(most, times(cells, schedule.ops[other], log_bytes(own)));
      return most;
    }
    bool gathers = false, reduces = false;
    double most_bytes = 0;
    for (const std::size_t other : beside) {
      (sums_up(schedule.ops[other].kind) ? reduces : gathers) = true;
      most_bytes = std::max(most_bytes, log_bytes(schedule.ops[other]));
    }
    if (gathers && reduces && !beside_both_.empty()) return times(beside_both_, own, most_bytes);
    return std::max(gathers ? times(beside_gather_, own, most_bytes) : 1,
                    reduces ? times(beside_reduce_, own, most_bytes) : 1);
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
    return std::log(static_cast<double>(std::max<std::int64_t>(message_of(collective, groups_).bytes, 1)));
  }

  /// By `cells`, with the products of `computation`; at least 1.
  double times(const Cells& cells, const schedule::Op& computation, double log_bytes) const {
    const std::vector<Weighted>* products = products_of(computation);
    if (cells.empty() || products == nullptr) return 1;
    double flops = 0, slowed = 0;
    for (const Weighted& product : *products) {
      flops += product.flops;
      slowed += product.flops * cells.nearest(product.shape, log_bytes);
    }
    return flops > 0 ? std::max(1.0, slowed / flops) : 1;
  }

  const std::vector<Weighted>* products_of(const schedule::Op& op) const {
    if (op.module < 0 || static_cast<std::size_t>(op.module) >= modules_.size()) return nullptr;
    const Products& products = modules_[op.module];
    switch (op.kind) {
      case OpKind::forward: return &products.forward;
      case OpKind::recompute: return &products.recompute;
      case OpKind::backward: return &products.backward;
      default: return nullptr;
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
    if (!op.has_work() || record.begin_ns == 0) continue;
    const Run run{
        {op.is_collective() ? std::max(record.begin_ns, record.peers_arrived_ns) : record.begin_ns, record.end_ns}, i};
    if (run.time.end <= run.time.begin) continue;
    runs.push_back(run);
    if (op.is_collective()) collectives.add(run);
    if (!op.is_collective() && op.module >= 0) computations.add(run);
  }
  collectives.finish();
  computations.finish();
  std::vector<Run> others;
  for (const Run& run : runs) {
    (schedule.ops[run.op].is_collective() ? computations : collectives).within(run.time, others);
    if (!others.empty()) parts[run.op] = part_alone(schedule, run, others, slowdown);
  }
  return parts;
}

void add_contention(const schedule::Training& training, const SlowdownOf& slowdown, OpTimes& times) {
  constexpr int kMostWalks = 8;
  StepCosts& costs = times.steps.back();
  const StepCosts alone = costs;
  const std::vector<OpTimes::ByRank> given_alone = times.given;
  const int ranks = given_alone.empty() ? 1 : static_cast<int>(given_alone.back().size());
  double last_step = 0;
  for (int walk = 0; walk < kMostWalks; ++walk) {
    const std::vector<trace::RankTrace> traces = forecast(training, times, SteadyStep::first, ranks).traces;
    const auto step = static_cast<double>(traces.front().steps.back().end_ns - traces.front().steps.back().begin_ns);
    if (std::abs(step - last_step) < 1e-3 * step) return;
    last_step = step;
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      const std::vector<double> parts = parts_alone(training.schedules.steady(), traces[rank].records, slowdown);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (rank == 0) {
          costs[i].run_ns = std::nearbyint(alone[i].run_ns / parts[i]);
          costs[i].link_ns = std::nearbyint(alone[i].link_ns / parts[i]);
        }
        for (std::size_t s = training.schedules.steps.size() - 1; s < given_alone.size(); ++s) {
          times.given[s][rank][i] = std::llround(static_cast<double>(given_alone[s][rank][i]) / parts[i]);
        }
      }
    }
  }
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
