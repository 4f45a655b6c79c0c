#include "schedule/wasted_gathers.h"

#include <algorithm>
#include <map>

#include "base/enum_table.h"

namespace fsdpbench::schedule {
namespace {

constexpr EnumTable<Waste, std::string_view> kNames{"never_used", "used_once", "freed_early"};

/// One all-gather as far as one unit is concerned.
struct Gathered {
  int unit = 0;
  int op = 0;
  std::int64_t bytes = 0;
  bool stays = false;  ///< into a persistent buffer
  int first_use = -1;  ///< numbers of passes, counted over the step
  int last_use = -1;
};

bool is_pass(const Op& op) {
  return op.kind == OpKind::forward || op.kind == OpKind::recompute || op.kind == OpKind::backward;
}

class Follower {
 public:
  Follower(const plan::Plan& plan, const Schedule& schedule) : plan_(plan), schedule_(schedule) {
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const Op& op = schedule.ops[i];
      if (op.kind == OpKind::all_gather) gather(op, static_cast<int>(i));
      if (op.kind == OpKind::copy_out) copy_out(op);
      if (is_pass(op)) use(op);
    }
  }

  std::vector<WastedGather> wasted() const {
    std::vector<WastedGather> result;
    for (auto g = gathers_.begin(); g != gathers_.end(); ++g) {
      if (g->stays) continue;
      const auto of_unit = [&](const Gathered& other) { return other.unit == g->unit; };
      if (g->first_use < 0) {
        const auto later = std::find_if(g, gathers_.end(),
                                        [&](const Gathered& other) { return of_unit(other) && other.first_use >= 0; });
        const bool again = later != gathers_.end();
        result.push_back(
            {again ? Waste::used_once : Waste::never_used, g->unit, g->op, again ? later->op : -1, g->bytes});
        continue;
      }
      // Those that nobody used are told for themselves.
      const auto before = std::find_if(std::make_reverse_iterator(g), gathers_.rend(),
                                       [&](const Gathered& other) { return of_unit(other) && other.last_use >= 0; });
      if (before != gathers_.rend() && before->last_use + 1 == g->first_use) {
        result.push_back({Waste::freed_early, g->unit, g->op, before->op, g->bytes});
      }
    }
    return result;
  }

 private:
  void gather(const Op& op, int index) {
    std::vector<int> units{op.unit};
    units.insert(units.end(), op.others.begin(), op.others.end());
    std::int64_t all = 0;
    for (const int u : units) all += numel(u);
    const Collective& sent = *op.collective();
    const std::int64_t bytes = sent.bytes() * (plan_.groups.size(sent.group) - 1);
    for (const int u : units) {
      const bool alone = units.size() == 1 || all == 0;
      const double share = alone ? 1 : static_cast<double>(numel(u)) / static_cast<double>(all);
      gathers_.push_back(
          {.unit = u, .op = index, .bytes = static_cast<std::int64_t>(share * static_cast<double>(bytes))});
      const int here = static_cast<int>(gathers_.size()) - 1;
      in_[{sent.output, u}] = here;
      if (alone) parameters_[sent.output] = here;
    }
  }

  void copy_out(const Op& op) {
    const auto& copy = std::get<LayoutCopy>(op.work);
    const auto found = in_.find({copy.from, op.unit});
    if (found == in_.end()) return;  // a shard that a rank has alone
    parameters_[copy.to] = found->second;
    gathers_[found->second].stays = schedule_.buffers[copy.to].persistent;
  }

  void use(const Op& op) {
    // Parts of one pass are one use.
    if (last_pass_ == nullptr || last_pass_->kind != op.kind || last_pass_->module != op.module ||
        last_pass_->micro != op.micro) {
      ++pass_;
    }
    last_pass_ = &op;
    for (const BufferId id : op.operands().reads) {
      const auto found = parameters_.find(id);
      if (found == parameters_.end()) continue;
      Gathered& g = gathers_[found->second];
      if (g.first_use < 0) g.first_use = pass_;
      g.last_use = pass_;
    }
  }

  std::int64_t numel(int unit) const { return plan_.units[unit].layout.shard_numel; }

  const plan::Plan& plan_;
  const Schedule& schedule_;
  std::vector<Gathered> gathers_;               // in the order of issue
  std::map<std::pair<BufferId, int>, int> in_;  // by message and unit
  std::map<BufferId, int> parameters_;          // by what passes read
  const Op* last_pass_ = nullptr;
  int pass_ = -1;
};

}  // namespace

std::string_view to_string(Waste waste) { return kNames[waste]; }

std::string_view words_of(Waste waste) {
  static constexpr EnumTable<Waste, std::string_view> kWords{"gathered, never used", "gathered twice, used once",
                                                             "gathered twice in a row, once would do"};
  return kWords[waste];
}

std::vector<WastedGather> wasted_gathers(const plan::Plan& plan, const Schedule& schedule) {
  return Follower(plan, schedule).wasted();
}

}  // namespace fsdpbench::schedule
