#include "foreign/job_trace.h"

#include "base/enum_table.h"

namespace fsdpbench::foreign {

std::string_view to_string(Activity kind) {
  static constexpr EnumNames<Activity> kNames{"computation", "collective", "copy", "fill"};
  return kNames[kind];
}

std::string_view to_string(Communication kind) {
  static constexpr EnumNames<Communication> kNames{"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                                   "broadcast",  "reduce",         "gather",     "scatter",
                                                   "send",       "receive",        "barrier",    "other"};
  return kNames[kind];
}

}  // namespace fsdpbench::foreign
