#include "foreign/watch/accusation.h"

#include "base/enum_table.h"

namespace fsdpbench::watch {

std::string_view to_string(Verdict verdict) {
  static constexpr EnumNames<Verdict> kVerdicts{"mismatch",          "hang",        "silent",  "late rank",
                                                "slow communicator", "GPU trouble", "unknown", "clean"};
  return kVerdicts[verdict];
}

}  // namespace fsdpbench::watch
