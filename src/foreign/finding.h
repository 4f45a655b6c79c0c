#pragma once

#include <string>

namespace fsdpbench::foreign {

/// One thing that was found out, how, and how sure that is.
struct Finding {
  std::string what;         ///< "strategy"
  std::string value;        ///< "full_shard"
  std::string evidence;     ///< a sentence without its full stop
  double confidence = 0.0;  ///< from 0 to 1
};

}  // namespace fsdpbench::foreign
