// Takes the place of nsys_events.cpp where SQLite was not found.
#include "base/error.h"
#include "foreign/nsys_events.h"

namespace fsdpbench::foreign {

NsysFacts read_nsys_events(const std::string&, std::int64_t, std::uint64_t,
                           const std::function<void(std::int64_t, const trace::ParsedEvent&)>&) {
  throw ConfigError(
      "is a database of Nsight Systems, which this build does not read: libsqlite3-dev was missing when it was "
      "configured.");
}

}  // namespace fsdpbench::foreign
