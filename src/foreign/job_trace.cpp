#include "foreign/job_trace.h"

#include <array>

namespace fsdpbench::foreign {

std::string_view to_string(Activity kind) {
  static constexpr std::array<std::string_view, 4> kNames{"computation", "collective", "copy", "fill"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string_view to_string(Communication kind) {
  static constexpr std::array<std::string_view, 12> kNames{"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                                           "broadcast",  "reduce",         "gather",     "scatter",
                                                           "send",       "receive",        "barrier",    "other"};
  return kNames.at(static_cast<std::size_t>(kind));
}

}  // namespace fsdpbench::foreign
