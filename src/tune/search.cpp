#include "tune/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/enum_table.h"
#include "base/error.h"
#include "schedule/memory_walk.h"
#include "tune/bound.h"
#include "tune/space.h"
#include "tune/structures.h"

namespace fsdpbench::tune {
namespace {

constexpr std::size_t kBatch = 64;     // policies between two looks at what is known
constexpr std::size_t kDescents = 24;  // structures from which axes are turned one by one
constexpr double kTie = 0.001;         // parts of the objective that are no reason to need more memory
constexpr double kNever = std::numeric_limits<double>::infinity();

double tokens_of(const config::RunConfig& config) {
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  return static_cast<double>(config.mesh.sample_groups() * config.train.batch_per_rank * config.train.accumulate *
                             (decoder ? config.train.seq_len : 1));
}

/// Policies that share one bound, and what is known of them.
struct Structure {
  Point point;  ///< with orders as in force
  double bound = 0;
  double orders = 0;     ///< policies of it
  double evaluated = 0;  ///< of which so many were tried, or need not be
  bool closed = false;
};

class Search {
 public:
  Search(const Space& space, const clock::Machine& machine, const SearchOptions& options,
         const std::function<void(const SearchProgress&)>& progress)
      : space_(space), machine_(machine), options_(options), progress_(progress), kinds_(space) {
    result_.seed = options.seed;
  }

  SearchResult run() {
    all_ = space_.size();
    start();
    if (!options_.exhaustive) turn_what_is_in_force();
    find_structures();
    if (!options_.exhaustive) {
      probe();
      descend();
    }
    exhaust();
    finish();
    return std::move(result_);
  }

 private:
  using Batch = std::vector<Point>;

  bool stopped() {
    if (!result_.stopped && options_.stop && options_.stop()) result_.stopped = true;
    return result_.stopped;
  }
  bool over() {
    return stopped() || (!options_.exhaustive && result_.evaluated >= static_cast<double>(options_.evaluations));
  }

  /// Smaller is better; what does not fit is worse than all that does.
  std::tuple<bool, double, double> rank(const Tried& tried) const {
    if (!tried.fits) return {true, static_cast<double>(tried.predicted_bytes + tried.margin_bytes), tried.step_ns};
    const bool slower = options_.objective == Objective::memory && !options_.any_step && !result_.tried.empty() &&
                        tried.step_ns > result_.start().step_ns;
    const double other =
        options_.objective == Objective::memory ? tried.step_ns : static_cast<double>(tried.predicted_bytes);
    return {slower, objective_of(options_.objective, tried) * (slower ? 2 : 1), other};
  }
  bool better(std::size_t a, std::size_t b) const { return rank(result_.tried[a]) < rank(result_.tried[b]); }

  /// Computes what is not known yet of `batch`. Entries of `found` that are absent contradict themselves.
  std::vector<std::optional<std::size_t>> try_all(const Batch& batch) {
    std::vector<std::optional<Tried>> computed(batch.size());
    std::vector<char> asked(batch.size(), 0);
    std::map<Point, std::size_t> first;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      asked[i] = !known_.contains(batch[i]) && first.emplace(batch[i], i).second;
    }
    parallel_for(batch.size(), options_.threads, [&](std::size_t i) {
      if (!asked[i] || (options_.stop && options_.stop())) return;
      const auto config = space_.config_at(batch[i]);
      Tried tried;
      tried.step_ns = -1;
      if (config) tried = evaluate_known(*config);
      tried.point = batch[i];
      computed[i] = std::move(tried);
    });
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (computed[i]) learn(std::move(*computed[i]));
    }
    std::vector<std::optional<std::size_t>> found;
    for (const Point& point : batch) {
      const auto known = known_.find(point);
      found.push_back(known == known_.end() ? std::nullopt : known->second);
    }
    show();
    return found;
  }

  /// Recognises a schedule that was walked before; called from several threads, which only read.
  Tried evaluate_known(const config::RunConfig& config) const {
    try {
      const schedule::Training training = machine_.training(config);
      const std::uint64_t print = schedule::fingerprint(training);
      if (const auto same = prints_.find(print); same != prints_.end()) {
        Tried tried = result_.tried[same->second];
        tried.tokens = tokens_of(config);
        return tried;
      }
      return evaluate_training(training, print);
    } catch (const Error&) {  // not for this model or this memory
      Tried none;
      none.step_ns = -1;
      return none;
    }
  }

  Tried evaluate_training(const schedule::Training& training, std::uint64_t print) const;

  /// Whether a policy tried before has no more memory and no longer a step, for as many tokens.
  bool beaten(const Tried& tried) const {
    const auto front = front_.upper_bound(tried.predicted_bytes);
    return front != front_.begin() && std::prev(front)->second <= tried.step_ns / tried.tokens;
  }

  /// Keeps of `front_` what nothing beats.
  void add_to_front(const Tried& tried) {
    if (!tried.exact || beaten(tried)) return;
    auto next = front_.insert_or_assign(tried.predicted_bytes, tried.step_ns / tried.tokens).first;
    for (++next; next != front_.end() && next->second >= tried.step_ns / tried.tokens;) next = front_.erase(next);
  }

  void learn(Tried tried) {
    if (tried.step_ns < 0) {
      known_[tried.point] = std::nullopt;
      ++result_.contradictory;
      return;
    }
    known_[tried.point] = result_.tried.size();
    const bool is_new = prints_.emplace(tried.fingerprint, result_.tried.size()).second;
    ++(is_new ? result_.evaluated : result_.same);
    add_to_front(tried);
    result_.tried.push_back(std::move(tried));
    const std::size_t latest = result_.tried.size() - 1;
    if (!best_ || better(latest, *best_)) best_ = latest;
  }

  double best_value() const {
    const Tried& best = result_.tried[*best_];
    const auto [worse, value, other] = rank(best);
    return worse ? kNever : value;
  }

  void start() {
    Tried tried = evaluate(space_.start(), machine_, options_.budget);
    // The setting in force may need an allocator that returns its cache; that costs time, so nothing of the sort is
    // proposed.
    if (const MemoryBudget& budget = options_.budget; !tried.fits && budget.need_of) {
      const schedule::Training training = machine_.training(space_.start());
      const MemoryNeed least = budget.need_of(training, budget.capacity(training.plan));
      tried.fits = tried.retries = budget.fits(least, training.plan);
    }
    tried.point = space_.origin();
    learn(std::move(tried));
  }

  /// Every change of one axis, then from the best of them axis by axis. They are first because most users look for a
  /// small change, and because the probed structures may all turn out not to fit.
  void turn_what_is_in_force() {
    doing_ = "neighbours";
    for (std::size_t a = 0; a < space_.axes().size() && !over(); ++a) try_all(along(space_.origin(), a));
    turn_axes(*best_);
  }

  void find_structures() {
    doing_ = "bounds";
    result_.contradictory += kinds_.contradictory();
    const std::vector<Leader> leaders = leaders_to_bound();
    struct Found {
      bool valid = false;
      Bound bound;
      double tokens = 0;
      std::uint64_t print = 0;
    };
    std::vector<Found> found(leaders.size());
    std::map<std::uint64_t, bool> seen;
    for (std::size_t from = 0; from < leaders.size(); from += kBatch) {
      if (stopped()) {  // bounds are no evaluations
        result_.bounded = false;
        break;
      }
      const std::size_t count = std::min(kBatch, leaders.size() - from);
      parallel_for(count, options_.threads, [&](std::size_t k) { bound(leaders[from + k].point, found[from + k]); });
      for (std::size_t i = from; i < from + count; ++i) {
        const auto& [point, led] = leaders[i];
        const double orders = space_.orders_of(point);
        const bool is_new = found[i].valid && seen.emplace(found[i].print, true).second;
        const auto counted = found[i].valid ? &SearchResult::same : &SearchResult::contradictory;
        if (is_new) {
          add_structure(point, found[i].bound, found[i].tokens, orders);
          result_.same += orders * (led - 1);
        } else {
          result_.*counted += orders * led;
        }
        counted_[point] = {is_new ? nullptr : counted, counted};
      }
      show();
    }
    std::ranges::stable_sort(structures_, {}, &Structure::bound);
  }

  /// A point that leads other structures, and how many it leads.
  struct Leader {
    Point point;
    double led = 1;
  };

  /// All, in order, or as many as may be bounded.
  std::vector<Leader> leaders_to_bound() {
    const auto most = std::max(options_.structures, static_cast<std::size_t>(options_.evaluations));
    std::vector<Leader> leaders;
    const auto add = [&](std::size_t index) { leaders.push_back({kinds_.at(index), kinds_.led_by(index)}); };
    if (options_.exhaustive || kinds_.size() <= most) {
      for (std::size_t index = 0; index < kinds_.size(); ++index) add(index);
    } else {
      result_.bounded = false;
      std::set<std::size_t> drawn;
      while (drawn.size() < most) drawn.insert(random_below(kinds_.size()));
      for (const std::size_t index : drawn) add(index);
    }
    std::ranges::sort(leaders, {}, &Leader::point);
    return leaders;
  }

  template <class Found>
  void bound(const Point& point, Found& found) const {
    const auto config = space_.config_at(point);
    if (!config) return;
    try {
      const schedule::Training training = machine_.training(*config);
      found.print = schedule::fingerprint(training);
      const clock::LeastTimes least = machine_.least_times(training);
      found.bound = lower_bound(training, least.costs);
      found.bound.step_ns = std::max(found.bound.step_ns, least.issue_ns);
      found.tokens = tokens_of(*config);
      found.valid = true;
    } catch (const Error&) {  // as evaluate_known()
    }
  }

  void add_structure(const Point& point, const Bound& bound, double tokens, double orders) {
    Structure structure{point, 0, orders, 0, false};
    Tried least;
    least.step_ns = bound.step_ns;
    least.tokens = tokens;
    least.predicted_bytes = bound.live_bytes;
    structure.bound = objective_of(options_.objective, least);
    if (!options_.exhaustive && !options_.budget.may_fit(bound.live_bytes)) structure.bound = kNever;
    structures_.push_back(std::move(structure));
  }

  /// Structures that may hold something better than the best.
  bool open(const Structure& structure) const {
    return !structure.closed && (options_.exhaustive || structure.bound < best_value());
  }

  Point with_orders(Point structure, const Point& orders) const {
    for (std::size_t a = 0; a < structure.size(); ++a) {
      if (space_.axes()[a].part == Part::order) structure[a] = orders[a];
    }
    return structure;
  }

  /// The choice of each order axis whose text is among `wanted`; else as in force.
  Point orders_with(const std::vector<std::string_view>& wanted) const {
    Point point = space_.origin();
    for (std::size_t a = 0; a < point.size(); ++a) {
      const std::vector<Choice>& choices = space_.axes()[a].choices;
      for (std::size_t c = 0; c < choices.size(); ++c) {
        if (std::ranges::find(wanted, choices[c].text) != wanted.end()) point[a] = static_cast<std::uint8_t>(c);
      }
    }
    return point;
  }

  void probe() {
    doing_ = "structures";
    const std::array<Point, 3> orders{
        space_.origin(),
        orders_with({"fsdp.forward_prefetch=2", "fsdp.backward_prefetch=explicit:2", "fsdp.forward_prefetch=explicit:2",
                     "fsdp.all_gather_limit=unlimited", "fsdp.reduce_scatter_buffers=0"}),
        orders_with({"fsdp.forward_prefetch=none", "fsdp.backward_prefetch=none", "fsdp.reduce_scatter_buffers=1"})};
    constexpr std::size_t kStructures = 16;
    for (std::size_t from = 0; from < structures_.size() && !over(); from += kStructures) {
      Batch batch;
      const std::size_t end = std::min(from + kStructures, structures_.size());
      for (std::size_t s = from; s < end; ++s) {
        if (!open(structures_[s])) continue;
        for (const Point& order : orders) {
          batch.push_back(with_orders(structures_[s].point, order));
          if (!space_.holds(batch.back())) batch.pop_back();
        }
      }
      if (!batch.empty()) try_all(batch);
    }
  }

  /// From the best of the structures tried so far.
  void descend() {
    doing_ = "axes";
    for (std::size_t round = 0; round < kDescents && !over(); ++round) {
      std::optional<std::size_t> from;
      for (std::size_t i = 0; i < result_.tried.size(); ++i) {
        if (descended_.contains(structure_of(result_.tried[i].point))) continue;
        if (!from || better(i, *from)) from = i;
      }
      if (!from) return;
      descended_[structure_of(result_.tried[*from].point)] = true;
      turn_axes(*from);
    }
  }

  Point structure_of(const Point& point) const { return with_orders(point, space_.origin()); }

  /// The points of the space that differ from `point` in this axis at most, each as whatever leads its structure: of
  /// two spellings of one policy the answer has the first.
  Batch along(Point point, std::size_t axis) const {
    Batch batch;
    for (std::size_t c = 0; c < space_.axes()[axis].choices.size(); ++c) {
      point[axis] = static_cast<std::uint8_t>(c);
      if (!space_.holds(point)) continue;
      const auto leader = kinds_.leader_of(structure_of(point));
      batch.push_back(leader ? with_orders(*leader, point) : point);
    }
    return batch;
  }

  void turn_axes(std::size_t at) {
    for (bool gained = true; gained && !over();) {
      gained = false;
      for (std::size_t a = 0; a < space_.axes().size() && !over(); ++a) {
        for (const std::optional<std::size_t>& found : try_all(along(result_.tried[at].point, a))) {
          if (!found || !better(*found, at)) continue;
          at = *found;
          gained = true;
        }
      }
    }
  }

  /// Order by order, the smallest bound first.
  void exhaust() {
    doing_ = "the rest";
    for (Structure& structure : structures_) {
      if (over()) return;
      if (!open(structure)) continue;
      std::vector<Point> orders;
      space_.visit(structure.point, Part::order, [&](const Point& point) {
        orders.push_back(point);
        return true;
      });
      shuffle(orders);
      bool all = true;
      for (std::size_t from = 0; from < orders.size(); from += kBatch) {
        if (over() || !open(structure)) {
          all = false;
          break;
        }
        const std::size_t count = std::min(kBatch, orders.size() - from);
        try_all(Batch(orders.begin() + static_cast<std::ptrdiff_t>(from),
                      orders.begin() + static_cast<std::ptrdiff_t>(from + count)));
      }
      structure.closed = all && !result_.stopped;
    }
  }

  void shuffle(std::vector<Point>& points) {
    for (std::size_t i = points.size(); i > 1; --i) std::swap(points[i - 1], points[random_below(i)]);
  }

  std::size_t random_below(std::size_t end) {
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL + 2 * options_.seed;
    return (random_ >> 33) % end;
  }

  /// Where all policies of a structure were counted when structures were: null if each is counted for itself.
  double SearchResult::*counted_whole(const Point& structure) const {
    const auto leader = kinds_.leader_of(structure);
    if (!leader) return &SearchResult::contradictory;
    const auto counted = counted_.find(*leader);
    if (counted == counted_.end()) return nullptr;
    return *leader == structure ? counted->second.leader : counted->second.led;
  }

  void finish() {
    std::map<Point, double> tried_of;
    for (const auto& [point, found] : known_) ++tried_of[structure_of(point)];
    for (const auto& [structure, tried] : tried_of) {
      // Tried on the way to something else, and so counted a second time.
      if (const auto whole = counted_whole(structure)) result_.*whole -= tried;
    }
    const double best = best_value();
    result_.bound = best;
    for (const Structure& structure : structures_) {
      const double rest = structure.orders - tried_of[structure.point];
      if (structure.closed) continue;
      if (!options_.exhaustive && structure.bound >= best) {
        result_.pruned += rest;
      } else {
        result_.bound = std::min(result_.bound, structure.bound);
      }
    }
    if (!result_.bounded) result_.bound = 0;
    result_.left = std::max(0.0, all_ - result_.considered());
    if (best != kNever) result_.best = leanest_of_equals();
  }

  /// The one with the least memory among policies as good as the best, then the one with the fewest changes.
  std::size_t leanest_of_equals() const {
    if (options_.objective == Objective::memory) return *best_;
    const auto cost = [&](std::size_t i) {
      const Tried& tried = result_.tried[i];
      return std::pair(tried.predicted_bytes,
                       std::ranges::count_if(tried.point, [](auto choice) { return choice > 0; }));
    };
    const double most = objective_of(options_.objective, result_.tried[*best_]) * (1 + kTie);
    std::size_t chosen = *best_;
    for (std::size_t i = 0; i < result_.tried.size(); ++i) {
      const Tried& tried = result_.tried[i];
      const bool equal = tried.fits && tried.exact && objective_of(options_.objective, tried) <= most;
      if (equal && cost(i) < cost(chosen)) chosen = i;
    }
    return chosen;
  }

  void show() const {
    if (!progress_) return;
    SearchProgress progress{doing_, result_.considered(), all_, {}};
    if (best_ && result_.tried[*best_].fits) progress.best = result_.tried[*best_];
    progress_(progress);
  }

  const Space& space_;
  const clock::Machine& machine_;
  const SearchOptions& options_;
  const std::function<void(const SearchProgress&)>& progress_;
  Structures kinds_;
  SearchResult result_;
  std::optional<std::size_t> best_;
  std::map<Point, std::optional<std::size_t>> known_;  // absent: contradictory
  std::map<std::uint64_t, std::size_t> prints_;
  std::map<std::int64_t, double> front_;  // nanoseconds a token by bytes: what nothing tried beats in both
  std::vector<Structure> structures_;
  struct Counted {
    double SearchResult::*leader;  // null: policy by policy
    double SearchResult::*led;
  };
  std::map<Point, Counted>
      counted_;  // where the policies of a leader and those of what it leads are counted, by leader
  std::map<Point, bool> descended_;
  std::uint64_t random_ = 1;
  const char* doing_ = "";
  double all_ = 0;
};

/// A policy but for its memory, of which `need` is a lower bound.
Tried walked(const schedule::Training& training, std::uint64_t print, const clock::Machine& machine) {
  Tried tried;
  tried.fingerprint = print;
  tried.tokens = tokens_of(training.config);
  tried.step_ns = machine.forecast(training).slowest_ns();
  tried.need.live = tried.need.reserved = live_in_order(training.schedules.steady());
  tried.exact = false;
  return tried;
}

void judge(const MemoryBudget& budget, const plan::Plan& plan, Tried& tried) {
  tried.predicted_bytes = budget.predicted(tried.need, plan);
  tried.margin_bytes = budget.margin(tried.need, plan);
  tried.fits = budget.fits(tried.need, plan);
}

void find_need(const schedule::Training& training, const MemoryBudget& budget, Tried& tried) {
  tried.exact = true;
  if (budget.need_of) {
    tried.need = budget.need_of(training, 0);
    return;
  }
  const config::Train& train = training.config.train;
  const PoolStatistics pool = schedule::memory_walk(training.schedules, train.warmup + train.steps);
  tried.need = {pool.peak_occupied_total, pool.reserved};
}

Tried Search::evaluate_training(const schedule::Training& training, std::uint64_t print) const {
  Tried tried = walked(training, print, machine_);
  judge(options_.budget, training.plan, tried);
  if (!tried.fits || beaten(tried)) return tried;
  find_need(training, options_.budget, tried);
  judge(options_.budget, training.plan, tried);
  return tried;
}

}  // namespace

std::string_view to_string(Objective objective) {
  constexpr EnumNames<Objective> kNames{"step", "memory", "tokens_per_s"};
  return kNames[objective];
}

double objective_of(Objective objective, const Tried& tried) {
  switch (objective) {
    case Objective::step: return tried.step_ns;
    case Objective::memory: return static_cast<double>(tried.predicted_bytes);
    case Objective::tokens_per_s: return tried.step_ns / tried.tokens;
  }
  return tried.step_ns;
}

double optimality_gap(Objective objective, const SearchResult& result) {
  if (!result.best) return 0;
  const double best = objective_of(objective, result.tried[*result.best]);
  return best > 0 ? 1 - result.bound / best : 0;
}

SearchResult search(const Space& space, const clock::Machine& machine, const SearchOptions& options,
                    const std::function<void(const SearchProgress&)>& progress) {
  return Search(space, machine, options, progress).run();
}

Tried evaluate(const config::RunConfig& config, const clock::Machine& machine, const MemoryBudget& budget) {
  const schedule::Training training = machine.training(config);
  Tried tried = walked(training, schedule::fingerprint(training), machine);
  find_need(training, budget, tried);
  judge(budget, training.plan, tried);
  return tried;
}

}  // namespace fsdpbench::tune
