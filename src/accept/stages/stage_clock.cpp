#include "accept/stages/stage_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "runs/measure.h"

namespace fsdpbench::app {

StageClock::StageClock(double budget_s, std::function<double()> now_s, std::function<void(const std::string&)> say)
    : budget_s_(budget_s), now_s_(std::move(now_s)), say_(std::move(say)), began_s_(now_s_()) {}

void StageClock::begin(std::string name, std::optional<double> estimate_s) {
  end();
  std::string text = fmt::format("{} of {}: {}", format_duration(spent_s()), format_duration(budget_s_), name);
  if (estimate_s) text += fmt::format(", about {}", format_duration(*estimate_s));
  if (!next_note_.empty()) text += fmt::format(" ({})", next_note_);
  stage_began_s_ = now_s_();
  stages_.push_back({std::move(name), estimate_s, 0, std::exchange(next_note_, {}), false});
  open_ = true;
  say_(text);
}

void StageClock::end() {
  if (!std::exchange(open_, false)) return;
  stages_.back().took_s = now_s_() - stage_began_s_;
}

void StageClock::note(std::string what) {
  say_(what);
  std::string& note = stages_.back().note;
  note = note.empty() ? std::move(what) : note + "; " + what;
}

std::string StageClock::spent() const {
  return fmt::format("{} of the budget of {} are spent", format_duration(spent_s()), format_duration(budget_s_));
}

void StageClock::skip(std::string name, std::string why) {
  end();
  next_note_.clear();
  say_(fmt::format("not measured: {}: {}", name, why));
  stages_.push_back({std::move(name), std::nullopt, 0, std::move(why), true});
}

bool StageClock::admits(const std::string& name, double least_s) {
  const double left = left_s();
  const bool is_spent = left <= 0;
  if (!is_spent && least_s <= left) return true;
  skip(name, is_spent ? spent()
                      : fmt::format("it takes {} at least, and {} of the budget of {} are left",
                                    format_duration(least_s), format_duration(left), format_duration(budget_s_)));
  return false;
}

int StageClock::fitting(int wanted, int least, double each_s, double share) {
  if (!(each_s > 0)) return wanted;
  const double left = left_s();
  if (left < least * each_s) {
    next_note_ = fmt::format("the fewest repetitions: {} of the budget are left", format_duration(left));
    return 0;
  }
  const int fit = static_cast<int>(std::min(static_cast<double>(wanted), std::floor(share * left / each_s)));
  const int taken = std::min(wanted, std::max(least, fit));
  if (taken < wanted) {
    next_note_ = fmt::format("{} of {} repetitions: {} of the budget are left", taken, wanted, format_duration(left));
  }
  return taken;
}

int StageClock::begin_fitting(const std::string& name, int wanted, int least, int more, double each_s, double share) {
  if (!admits(name, each_s * (least + more))) return 0;
  const int taken = fitting(wanted, least, each_s, share);
  if (taken > 0) {
    begin(name, each_s * (taken + more));
  } else {
    skip(name, spent());
  }
  return taken;
}

double duration_s(const std::string& text) {
  constexpr double kMost_s = 1e6;
  char* end = nullptr;
  double seconds = std::strtod(text.c_str(), &end);
  const std::string unit(end);
  if (unit == "m") seconds *= 60;
  if (unit == "h") seconds *= 3600;
  const bool known = unit.empty() || unit == "s" || unit == "m" || unit == "h";
  if (end == text.c_str() || !known || !(seconds >= 1 && seconds <= kMost_s)) {
    throw ConfigError(fmt::format(
        "'{}' is no duration; expected seconds, or a number with s, m or h, from 1s to 277h, as 5m.", text));
  }
  return seconds;
}

}  // namespace fsdpbench::app
