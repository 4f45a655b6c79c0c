#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "config/run_config.h"

namespace fsdpbench::tune {

/// work(0) … work(count - 1) on up to `threads` threads, this one among them. Returns when all are done; throws what
/// one of them threw.
template <class Work>
void parallel_for(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < threads && static_cast<std::size_t>(t) < count; ++t) others.emplace_back(run);
  run();
  others.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

/// Part of a configuration that an axis decides.
enum class Part : std::uint8_t {
  structure,  ///< which ops a step has, and of which bytes
  order,      ///< only when they are issued, and what they wait for
};

/// A key and a value that it may have.
struct Setting {
  const config::Field* field = nullptr;
  config::Value value;
};

/// Settings of one turn of an axis. The first choice of every axis sets nothing: all stays as it is in force.
struct Choice {
  std::string text;  ///< "fsdp.wrap=blocks:2"; of several keys those that it changes, with a blank between them
  std::string was;   ///< the same keys in force
  std::vector<Setting> settings;
};

/// Keys that are turned together, and what they may be.
struct Axis {
  std::string name;  ///< the first of its keys
  std::vector<std::string> keys;
  Part part = Part::structure;
  std::vector<Choice> choices;
  /// An axis of structures whose keys no rule relates with those of another axis: each choice is valid beside every
  /// choice of the others, or beside none.
  bool alone = false;
  /// Whether its keys do nothing in a valid configuration, whatever they are: a matter of axes that do not stand alone.
  /// Null: they always do something.
  std::function<bool(const config::RunConfig&)> idle = {};
};

/// Whether it is turned beside another engine's preset, too.
bool every_engine_has(const Axis& axis);

/// A choice of every axis.
using Point = std::vector<std::uint8_t>;

/// Freedom of a search beside the keys that are fixed.
struct SpaceOptions {
  std::vector<std::string> fixed = {};   ///< keys that stay as they are in force
  std::vector<std::string> dtypes = {};  ///< that fsdp.param_dtype and fsdp.reduce_dtype may be changed to; empty: none
  bool any_engine = false;               ///< fsdp.preset may become another engine's, else it is kept
  bool computed = false;                 ///< op times are a cluster's: mesh.expert and what no run tells may be turned
  bool free_batch = false;               ///< the global batch may change, else micro-batch times accumulation is kept
  /// Asked of each valid choice of one axis beside what is in force: false leaves it out. Null: all are offered.
  std::function<bool(const config::RunConfig&)> offers = {};
};

/// Choice::text of each turned axis, by its first key.
using Settings = std::vector<std::pair<std::string, std::string>>;
/// "fsdp.wrap=blocks:2 fsdp.backward_prefetch=2"; "as it is" where nothing is turned.
std::string settings_text(const Settings& settings);

/// Everything that may be proposed.
class Space {
 public:
  /// Around `start`, which must be valid, with its mesh filled in. Throws ConfigError if a fixed key is unknown.
  Space(config::RunConfig start, const SpaceOptions& options);

  const config::RunConfig& start() const { return start_; }
  const std::vector<Axis>& axes() const { return axes_; }
  /// The configuration in force.
  Point origin() const { return Point(axes_.size(), 0); }
  /// Whether `point` is one of the space.
  ///
  /// [Note: presets]
  /// A preset is another engine with all its knobs, so that from it only what every engine has is turned: wrapping and
  /// activation checkpointing.
  bool holds(const Point& point) const;
  /// Configuration of a point of the space, validated; absent if that contradicts itself or a fixed key.
  std::optional<config::RunConfig> config_at(const Point& point) const;
  Settings settings_at(const Point& point) const;
  /// Whether `point` turns the preset.
  bool other_engine(const Point& point) const;
  /// Number of points, contradictory ones included; and of those that differ from `structure` in order only.
  double size() const;
  double orders_of(const Point& structure) const;
  /// Every point of the space that differs from `point` in axes of `part` only, in order; calls `visit` until it
  /// returns false.
  template <class Visit>
  void visit(Point point, Part part, Visit&& visit) const;

 private:
  config::RunConfig start_;
  std::vector<Axis> axes_;
  std::vector<Setting> fixed_;
};

template <class Visit>
void Space::visit(Point point, Part part, Visit&& visit) const {
  std::vector<std::size_t> turning;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a].part != part) continue;
    turning.push_back(a);
    point[a] = 0;
  }
  for (bool more = !holds(point) || visit(static_cast<const Point&>(point)); more;) {
    // The next one, as a number whose digits are the choices.
    std::size_t digit = turning.size();
    while (digit > 0) {
      const std::size_t axis = turning[--digit];
      if (++point[axis] < axes_[axis].choices.size()) break;
      point[axis] = 0;
      if (digit == 0) return;
    }
    if (turning.empty()) return;
    more = !holds(point) || visit(static_cast<const Point&>(point));
  }
}

}  // namespace fsdpbench::tune
