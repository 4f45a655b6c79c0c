#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "trace/whole_file.h"

namespace fsdpbench::trace {

/// JSON text of any length, seen through a window that moves on: whole values lie in it in one piece, with the padding
/// that simdjson wants behind them. It only finds where values end, by their quotes and brackets; whether they are
/// valid is for simdjson to say. What it takes is the longest value, kPiece more, and kMostValue at most.
class JsonWindow {
 public:
  static constexpr std::size_t kPiece = 1 << 20;
  static constexpr std::size_t kMostValue = 16 << 20;

  /// `source` must outlive it.
  explicit JsonWindow(std::streambuf& source);

  /// Text in the window that was not dropped; good until the next call that is not const.
  std::string_view text() const { return {data_.data() + begin_, end_ - begin_}; }
  /// The byte at the beginning that is no white space, which is dropped; 0 at the end of the text.
  char next();
  void drop(std::size_t bytes);

  /// Bytes from the beginning that are whole values of a list, with the commas between them: all that end within
  /// a piece of what is read, but one at least. They end at the comma or bracket behind them; at the end of the text
  /// one with brackets of its own needs neither. 0 if not even one does.
  std::size_t whole_values();
  /// The length of the text, quotes and all, at the beginning, where its opening quote is. 0 if it is not whole.
  std::size_t whole_text();
  /// Until the end of one value; at the beginning stands none of white space. 0 if it has none.
  std::size_t whole_value();
  /// Why nothing is whole: the text has ended. If it has not, a value is longer than kMostValue.
  bool ended() const { return ended_; }

  /// A text in the window, with `before` in place of the byte before it (there is one) and `after` in place of the
  /// one behind it; put back by restore(). For simdjson: room_behind() bytes from its begin on may be read.
  std::string_view enclosed(std::size_t bytes, char before, char after);
  std::size_t room_behind() const { return data_.size() - (begin_ - 1); }
  void restore();

  /// Position of the beginning in the whole text: bytes before it, lines before it, bytes before it in its own line.
  std::uint64_t position() const { return position_; }
  std::uint64_t lines() const { return lines_; }
  std::uint64_t column() const { return column_; }
  /// Read so far.
  std::uint64_t bytes() const { return bytes_; }

 private:
  bool more();
  std::size_t scan(bool list);

  std::streambuf& source_;
  std::vector<char> data_;
  std::size_t begin_ = 1;  // one byte before it is enclosed()'s
  std::size_t end_ = 1;
  bool ended_ = false;
  std::uint64_t bytes_ = 0, position_ = 0, lines_ = 0, column_ = 0;
  // Character that enclosed() replaced.
  std::size_t behind_ = 0;
  char was_before_ = 0, was_behind_ = 0;
};

/// Place and reason of a fault in JSON. simdjson is fast and says neither, so what it refuses is read once more.
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

  std::size_t left() const { return buffer_.data() + buffer_.size() - end_; }
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
