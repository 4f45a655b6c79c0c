#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// One stage of an acceptance, as it went.
struct Stage {
  std::string name;
  std::optional<double> estimate_s;  ///< what was said before it began
  double took_s = 0;
  std::string note;      ///< what was left out of it, and why; empty: nothing
  bool skipped = false;  ///< it was not measured, for the reason in `note`
};

/// Time that an acceptance may take, that its stages took, and that remains for later ones. One thread at a time.
class StageClock {
 public:
  /// `now_s`: a clock; `say`: hears of each stage when it begins: its name, about how long it will take, and what of
  /// the budget is spent.
  StageClock(double budget_s, std::function<double()> now_s, std::function<void(const std::string&)> say);

  /// Ends the stage before.
  void begin(std::string name, std::optional<double> estimate_s = std::nullopt);
  void end();
  /// Notes what was left out of the stage under way.
  void note(std::string what);
  /// A stage that is not measured.
  void skip(std::string name, std::string why);
  /// Whether at least `least_s` are left for a stage of which less is of no use; else it is skipped, with that reason.
  bool admits(const std::string& name, double least_s);
  /// Number of repetitions of work of `each_s` s in a stage that begins now and may take `share` of what is left:
  /// `wanted` times, or as often as it fits, but `least` times; 0 if not even those fit into all that is left. Less
  /// than wanted is noted with the stage that begins next.
  int fitting(int wanted, int least, double each_s, double share);
  /// Begins a stage of `wanted` repetitions beside `more`, or of as many as fit; returns their number. 0: it is
  /// skipped, with its reason, for there is no time for `least` of them.
  int begin_fitting(const std::string& name, int wanted, int least, int more, double each_s, double share);

  double spent_s() const { return now_s_() - began_s_; }
  double left_s() const { return budget_s_ - spent_s(); }
  bool is_spent() const { return left_s() <= 0; }
  double budget_s() const { return budget_s_; }
  /// "12 s of the budget of 8 s are spent": why a stage is skipped.
  std::string spent() const;
  /// So far; the last one may be under way.
  const std::vector<Stage>& stages() const { return stages_; }

 private:
  const double budget_s_;
  const std::function<double()> now_s_;
  const std::function<void(const std::string&)> say_;
  const double began_s_;
  double stage_began_s_ = 0;
  bool open_ = false;
  std::string next_note_;
  std::vector<Stage> stages_;
};

/// "5m", "90s", "2h", "300" (seconds), as `--budget` has it. Throws ConfigError that says what would be valid.
double duration_s(const std::string& text);

}  // namespace fsdpbench::app
