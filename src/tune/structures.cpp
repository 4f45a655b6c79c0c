#include "tune/structures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/fields.h"
#include "config/spelling.h"
#include "config/validate.h"
#include "schedule/policy.h"

namespace fsdpbench::tune {
namespace {

/// Calls `visit` with `point` and every other choice of `turning`, in order.
template <class Visit>
void for_each_choice(const Space& space, const std::vector<std::size_t>& turning, Point point, Visit&& visit) {
  for (std::size_t digit = turning.size();;) {
    visit(static_cast<const Point&>(point));
    for (digit = turning.size(); digit > 0; --digit) {
      const std::size_t axis = turning[digit - 1];
      if (++point[axis] < space.axes()[axis].choices.size()) break;
      point[axis] = 0;
    }
    if (digit == 0) return;
  }
}

bool is_structure(const Axis& axis) { return axis.part == Part::structure && axis.name != "fsdp.preset"; }

}  // namespace

Structures::Structures(const Space& space) : space_(space), alone_(space.axes().size()) {
  add_own_engine();
  add_other_engines();
}

bool Structures::valid_at(const Point& point, std::optional<config::RunConfig>& config) {
  ++checked_;
  config = space_.config_at(point);
  return config.has_value();
}

void Structures::add(Kind kind) {
  begins_.push_back(begins_.back() + kind.size);
  kinds_.push_back(std::move(kind));
}

void Structures::add_own_engine() {
  const std::vector<Axis>& axes = space_.axes();
  std::vector<std::size_t> joined, alone;
  double all = 1;
  std::optional<config::RunConfig> config;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (!is_structure(axes[a])) continue;
    all *= static_cast<double>(axes[a].choices.size());
    if (!axes[a].alone) {
      joined.push_back(a);
      continue;
    }
    alone.push_back(a);
    alone_[a] = {0};
    for (std::size_t c = 1; c < axes[a].choices.size(); ++c) {
      Point point = space_.origin();
      point[a] = static_cast<std::uint8_t>(c);
      if (valid_at(point, config)) alone_[a].push_back(point[a]);
    }
  }
  double alone_valid = 1;
  for (const std::size_t a : alone) alone_valid *= static_cast<double>(alone_[a].size());

  std::vector<Kind> kinds;
  for_each_choice(space_, joined, space_.origin(), [&](const Point& point) {
    if (!valid_at(point, config)) return;
    valid_ += alone_valid;
    const auto [known, is_new] = kind_named_.emplace(name_of(point, *config), kinds.size());
    if (!is_new) {
      ++kinds[known->second].led;
      return;
    }
    Kind kind;
    kind.first = point;
    for (const std::size_t a : alone) {
      if (axes[a].idle && axes[a].idle(*config)) continue;
      kind.free.push_back(a);
      kind.size *= alone_[a].size();
    }
    kinds.push_back(std::move(kind));
  });
  for (Kind& kind : kinds) {
    kind.led *= alone_valid / static_cast<double>(kind.size);
    add(std::move(kind));
  }
  contradictory_ += (all - valid_) * space_.orders_of(space_.origin());
}

/// There are few, so each is validated by itself, and none of their axes counts as idle.
void Structures::add_other_engines() {
  std::vector<std::size_t> turning;
  std::size_t preset = 0;
  for (std::size_t a = 0; a < space_.axes().size(); ++a) {
    const Axis& axis = space_.axes()[a];
    if (axis.name == "fsdp.preset") preset = a;
    if (axis.part == Part::structure && every_engine_has(axis)) turning.push_back(a);
  }
  std::optional<config::RunConfig> config;
  for_each_choice(space_, turning, space_.origin(), [&](const Point& point) {
    if (point[preset] == 0) return;
    if (!valid_at(point, config)) {
      contradictory_ += space_.orders_of(point);
      return;
    }
    ++valid_;
    Kind kind;
    kind.first = point;
    add(std::move(kind));
  });
}

std::size_t Structures::kind_of(std::size_t index) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(begins_, index) - begins_.begin()) - 1;
}

Point Structures::at(std::size_t index) const {
  const std::size_t k = kind_of(index);
  const Kind& kind = kinds_[k];
  Point point = kind.first;
  std::size_t rest = index - begins_[k];
  for (std::size_t f = kind.free.size(); f > 0; --f) {
    const std::vector<std::uint8_t>& choices = alone_[kind.free[f - 1]];
    point[kind.free[f - 1]] = choices[rest % choices.size()];
    rest /= choices.size();
  }
  return point;
}

std::optional<Point> Structures::leader_of(Point point) const {
  for (std::size_t a = 0; a < point.size(); ++a) {
    if (space_.axes()[a].part == Part::order) point[a] = 0;
  }
  const auto config = space_.config_at(point);
  if (!config) return std::nullopt;
  if (space_.other_engine(point)) return point;
  const Kind& kind = kinds_[kind_named_.at(name_of(point, *config))];
  Point leader = kind.first;
  for (const std::size_t a : kind.free) leader[a] = point[a];
  return leader;
}

/// A name that is equal for structures that differ only in axes that stand alone, or in nothing that a schedule shows.
std::string Structures::name_of(const Point& point, const config::RunConfig& config) const {
  using Mode = config::ReshardAfterForward::Mode;
  std::string name;
  for (std::size_t a = 0; a < point.size(); ++a) {
    const Axis& axis = space_.axes()[a];
    if (!is_structure(axis) || axis.alone) continue;
    if (axis.name == "fsdp.strategy" || axis.name == "fsdp.reshard_after_forward") continue;
    name += fmt::format("{} ", axis.idle && axis.idle(config) ? 0 : point[a]);
  }
  // A strategy implies a reshard_after_forward, too, but the key itself wins.
  const config::Fsdp& fsdp = config.fsdp;
  const bool asks_strategy = fsdp.keep_unreduced && config.train.accumulate > 1;
  const bool automatic = fsdp.reshard_after_forward.mode == Mode::automatic;
  const bool reshards = schedule::strategy_reshards(fsdp.strategy);
  const bool no_shard = fsdp.strategy == config::Strategy::no_shard;
  name +=
      fmt::format("{} {} {} {}", config.mesh.shard, config.mesh.replicate, no_shard, config::is_hybrid(fsdp.strategy));
  if (asks_strategy) {
    name += fmt::format(" {} {}", reshards, config::to_toml(config::encode(fsdp.reshard_after_forward)));
  } else if (!no_shard) {
    const bool never = automatic && !reshards;
    name += never ? " false" : " " + config::to_toml(config::encode(fsdp.reshard_after_forward));
  }
  return name;
}

}  // namespace fsdpbench::tune
