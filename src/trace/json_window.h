#pragma once

#include <cstdint>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

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

  /// What is in the window and was not dropped; good until the next call that is not const.
  std::string_view text() const { return {data_.data() + begin_, end_ - begin_}; }
  /// The byte at the beginning that is no white space, which is dropped; 0 at the end of the text.
  char next();
  void drop(std::size_t bytes);

  /// How many bytes from the beginning on are whole values of a list, with the commas between them: all that end within
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

  /// Where the beginning lies in the whole text: bytes before it, lines before it, bytes before it in its own line.
  std::uint64_t position() const { return position_; }
  std::uint64_t lines() const { return lines_; }
  std::uint64_t column() const { return column_; }
  /// Read so far.
  std::uint64_t bytes() const { return bytes_; }
  /// What HTA's search for `"rank":\s+(\d+)` in each line finds in what was read.
  std::optional<std::int64_t> searched_rank() const { return rank_; }
  /// The first two bytes that are no white space.
  const std::string& first_two() const { return first_two_; }

 private:
  bool more();
  std::size_t scan(bool list);
  void search_rank(std::string_view text);

  std::streambuf& source_;
  std::vector<char> data_;
  std::size_t begin_ = 1;  // one byte before it is enclosed()'s
  std::size_t end_ = 1;
  bool ended_ = false;
  std::uint64_t bytes_ = 0, position_ = 0, lines_ = 0, column_ = 0;
  std::string first_two_;
  // What enclosed() replaced.
  std::size_t behind_ = 0;
  char was_before_ = 0, was_behind_ = 0;
  // The search for a rank.
  std::size_t matched_ = 0;
  bool blank_ = false;
  std::string digits_;
  std::optional<std::int64_t> rank_;
};

}  // namespace fsdpbench::trace
