#pragma once

#include <optional>
#include <string_view>

namespace fsdpbench::dialects {

/// The op and unit that this program wrote into the name of a row: "ncclDevKernel_AllGather(all_gather 3*)".
struct OwnName {
  std::string_view op, unit;  ///< "all_gather", "3"
  bool prefetch = false;
};
std::optional<OwnName> own_name(std::string_view name);

}  // namespace fsdpbench::dialects
