#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// JSON text on its way into a file, through one buffer of fixed size. The caller sees to the structure; strings
/// are made safe here.
class JsonStream {
 public:
  /// `file` outlives it.
  explicit JsonStream(WholeFile& file);

  /// As it is.
  void raw(std::string_view text);
  void raw(char c) { raw(std::string_view(&c, 1)); }
  void integer(std::int64_t value);
  /// Microseconds with exactly three decimals, so that no nanosecond is rounded.
  void microseconds(std::int64_t ns);
  /// A number with up to six significant digits.
  void number(double value);
  /// Quoted and escaped. Bytes that are not UTF-8 become U+FFFD; '<' is escaped, so that the text may stand inside a
  /// script element of a page.
  void text(std::string_view value);
  /// To the file; also done whenever the buffer is full.
  void flush();

 private:
  /// Room for `bytes` more, which must be few.
  char* reserve(std::size_t bytes);

  WholeFile& file_;
  std::string buffer_;
  std::size_t used_ = 0;
};

/// Length of the UTF-8 sequence at the beginning of `text`; 0 if it is not valid there. `text` must not be empty.
std::size_t utf8_length(std::string_view text);

}  // namespace fsdpbench::trace
