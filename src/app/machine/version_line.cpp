#include <fmt/format.h>

#include "app/machine/build_info.h"

namespace fsdpbench::app {

std::string version_line() {
  const BuildInfo& info = build_info();
  return fmt::format("fsdpbench {} ({}{}, {}{}, {})", info.version, info.git_revision,
                     info.git_dirty ? " with changes" : "", info.build_type,
                     info.sanitize.empty() ? "" : " with -fsanitize=" + info.sanitize, info.compiler);
}

}  // namespace fsdpbench::app
