#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <streambuf>
#include <string>

#include "trace/findings.h"

namespace fsdpbench::trace {

struct ValidateOptions {
  std::int64_t most_events = 20'000'000;  ///< about 2 GB of memory; the rest of a larger file is not checked
  std::size_t most_findings = 5;          ///< kept of each rule; the others are counted
};

struct Validation {
  Findings findings;
  std::int64_t events = 0;
  bool ok() const { return findings.list().empty(); }
};

/// A text on its way through, with the rank that HTA's search for `"rank":\s+(\d+)` finds in what was read so far.
class SearchedText final : public std::streambuf {
 public:
  explicit SearchedText(std::streambuf& source) : source_(source) {}
  std::optional<std::int64_t> rank() const { return rank_; }

 protected:
  int_type underflow() override;

 private:
  std::streambuf& source_;
  std::string piece_;
  std::optional<std::int64_t> rank_;
};

/// Checks a Chrome trace, of whatever origin, against the rules of FORMAT.md.
Validation validate(std::istream& in, const ValidateOptions& options = {});

/// As above for a file, gzipped or not. Throws ConfigError if it cannot be opened; a file that cannot be read to its
/// end is a finding.
Validation validate_file(const std::string& path, const ValidateOptions& options = {});

}  // namespace fsdpbench::trace
