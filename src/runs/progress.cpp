#include "runs/progress.h"

#include <fmt/format.h>

#include "account/divergence.h"

namespace fsdpbench::app {

Progress::Progress(Console& console, std::int64_t steps, std::int64_t now_ns)
    : console_(console), steps_(steps), begin_ns_(now_ns), next_ns_(now_ns) {}

void Progress::update(std::int64_t done, const std::optional<engine::StepLoss>& loss, std::int64_t now_ns) {
  if (now_ns < next_ns_ && done != steps_) return;
  next_ns_ = now_ns + (console_.terminal() ? 100'000'000 : 2'000'000'000);
  std::string line = fmt::format("step {:>{}}/{}", done, fmt::formatted_size("{}", steps_), steps_);
  if (loss) {  // other ranks may not have told theirs of this step yet
    line += fmt::format("  loss {}", account::loss_text(loss->mean));
    if (loss->steps != done) line += fmt::format(" (step {})", loss->steps);
  }
  if (done > 0) {
    const double seconds = static_cast<double>(now_ns - begin_ns_) * 1e-9;
    line += done == steps_ ? fmt::format("  {}", format_duration(seconds))
                           : fmt::format("  {} left", format_duration(seconds / static_cast<double>(done) *
                                                                      static_cast<double>(steps_ - done)));
  }
  console_.progress(line);
}

std::string format_duration(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace fsdpbench::app
