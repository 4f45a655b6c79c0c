#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// JSON text on its way into a file, through one buffer of fixed size. The caller sees to the structure; strings
/// are made safe here. What is called for every field is inline: a trace is mostly such calls.
class JsonStream {
 public:
  /// `file` outlives it.
  explicit JsonStream(WholeFile& file) : file_(file), buffer_(kBufferBytes) {}

  /// As it is.
  void raw(std::string_view text) {
    if (text.size() > left()) return raw_through(text);
    std::memcpy(end_, text.data(), text.size());
    end_ += text.size();
  }
  void raw(char c) { *reserve(1) = c, ++end_; }
  void integer(std::int64_t value) {
    char* const begin = reserve(kMostDigits);
    end_ = std::to_chars(begin, begin + kMostDigits, value).ptr;
  }
  /// Microseconds with exactly three decimals, so that no nanosecond is rounded.
  void microseconds(std::int64_t ns);
  /// A number with up to six significant digits.
  void number(double value);
  /// Quoted and escaped. Bytes that are not UTF-8 become U+FFFD; '<' is escaped, so that the text may stand inside a
  /// script element of a page.
  void text(std::string_view value);
  /// Before a value: the comma, `opening` and the quoted name, which needs no escaping, with its colon.
  void key(std::string_view opening, std::string_view name) {
    char* p = reserve(opening.size() + name.size() + 2);
    std::memcpy(p, opening.data(), opening.size());
    p += opening.size();
    std::memcpy(p, name.data(), name.size());
    p += name.size();
    *p++ = '"';
    *p++ = ':';
    end_ = p;
  }
  /// To the file; also done whenever the buffer is full.
  void flush();

 private:
  static constexpr std::size_t kBufferBytes = 1 << 18;
  static constexpr std::size_t kMostDigits = 32;  // of any number

  std::size_t left() const { return static_cast<std::size_t>(buffer_.data() + buffer_.size() - end_); }
  /// Room for `bytes` more, which must be few.
  char* reserve(std::size_t bytes) {
    if (bytes > left()) flush();
    return end_;
  }
  void raw_through(std::string_view text);
  void escaped(std::string_view value);

  WholeFile& file_;
  std::vector<char> buffer_;
  char* end_ = buffer_.data();  // of what is in it
};

/// Length of the UTF-8 sequence at the beginning of `text`; 0 if it is not valid there. `text` must not be empty.
std::size_t utf8_length(std::string_view text);

}  // namespace fsdpbench::trace
