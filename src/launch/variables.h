#pragma once

#include <functional>
#include <string>
#include <vector>

namespace fsdpbench::launch {

/// Reads one environment variable; null if it is not set.
using Environment = std::function<const char*(const char* name)>;
/// The process's own.
Environment process_environment();

inline constexpr int kMostPort = 65535;

/// The variables a launcher sets, read with messages that name them.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  /// Set and not empty.
  bool has(const std::string& name) const { return !text(name).empty(); }
  /// Empty if not set.
  std::string text(const std::string& name) const;
  /// Throws ConfigError if it is not set or no integer between `least` and `most`.
  int number(const std::string& name, int least, int most) const;
  /// `otherwise` if it is not set.
  int number(const std::string& name, int least, int most, int otherwise) const;
  /// A host by name or address. Throws ConfigError if it cannot be one; whether there is such a host is not asked.
  std::string host(const std::string& name) const;
  /// The first of `names` that is set; empty if none is.
  std::string first_set(const std::vector<std::string>& names) const;

 private:
  const Environment& environment_;
};

}  // namespace fsdpbench::launch
