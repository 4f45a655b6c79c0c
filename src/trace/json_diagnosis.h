#pragma once

#include <cstddef>
#include <string>

namespace fsdpbench::trace {

/// Where and why a text is no JSON. simdjson is fast and says neither, so what it refuses is read once more.
class JsonDiagnosis {
 public:
  explicit JsonDiagnosis(const std::string& text);

  bool valid() const { return what_.empty(); }
  bool ended_early() const { return what_.find("unexpected end of input") != std::string::npos; }
  std::size_t byte() const { return byte_; }      ///< from 1
  std::size_t line() const { return line_; }      ///< from 1
  std::size_t column() const { return column_; }  ///< from 1
  const std::string& what() const { return what_; }

 private:
  class Reader;

  std::size_t byte_ = 0, line_ = 0, column_ = 0;
  std::string what_;
};

}  // namespace fsdpbench::trace
