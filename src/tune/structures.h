#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tune/space.h"

namespace fsdpbench::tune {

/// The structures of a space that do not contradict themselves, one of each kind, counted without visiting them all.
///
/// [Note: structures as data]
/// Rules of config/validate.h relate some axes (Axis::alone says which are not among them). What these may be together
/// is found by asking of each combination once; with every axis that stands alone it multiplies. For an axis that does
/// nothing beside the others (Axis::idle), and of two spellings of one strategy, the first in order stands for all: it
/// leads them. That is a matter of counting and of time only: what leads has the schedule of what it leads.
class Structures {
 public:
  explicit Structures(const Space& space);

  /// Number of leaders.
  std::size_t size() const { return begins_.back(); }
  /// The one at `index` < size(), with orders as in force.
  Point at(std::size_t index) const;
  /// Number of structures that the one at `index` leads, itself among them.
  double led_by(std::size_t index) const { return kinds_[kind_of(index)].led; }
  /// Leader of the structure of `point`; absent: that contradicts itself or a fixed key.
  std::optional<Point> leader_of(Point point) const;

  double valid() const { return valid_; }                  ///< structures, whoever leads them
  double contradictory() const { return contradictory_; }  ///< policies, all their orders counted
  std::size_t checked() const { return checked_; }         ///< configurations that were validated to know all this

 private:
  /// Structures that differ only in axes that stand alone.
  struct Kind {
    Point first;                    ///< alone axes as in force
    double led = 1;                 ///< structures that each of them leads
    std::vector<std::size_t> free;  ///< alone axes that do something here
    std::size_t size = 1;           ///< how many lead
  };

  void add_own_engine();
  void add_other_engines();
  void add(Kind kind);
  std::size_t kind_of(std::size_t index) const;
  bool valid_at(const Point& point, std::optional<config::RunConfig>& config);
  std::string name_of(const Point& point, const config::RunConfig& config) const;

  const Space& space_;
  std::vector<Kind> kinds_;
  std::vector<std::size_t> begins_{0};  ///< by kind: the index of its first; and the end
  std::map<std::string, std::size_t> kind_named_;
  std::vector<std::vector<std::uint8_t>> alone_;  ///< by axis: choices that are valid; empty if it does not stand alone
  double valid_ = 0;
  double contradictory_ = 0;
  std::size_t checked_ = 0;
};

}  // namespace fsdpbench::tune
