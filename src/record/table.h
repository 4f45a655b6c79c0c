#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::app {

/// A number of a file for people: three digits in the unit that suits it, without exponents; 0.0351 "of a step" is
/// 3.51 %. Numbers beside each other share the unit of the largest.
class Shown {
 public:
  /// The first word of a unit counts: "us of waiting" is a time, "of a step" a share.
  Shown(std::string_view unit, double largest);

  const std::string& unit() const { return unit_; }  ///< empty: none
  std::string number(double value) const;            ///< "68.6"
  std::string range(double low, double high) const { return number(low) + " to " + number(high); }
  std::string change(double value) const { return (value < 0 ? "" : "+") + number(value); }
  std::string text(double value) const { return number(value) + (unit_.empty() ? "" : " " + unit_); }

 private:
  std::string unit_;
  double scale_ = 1;
};
/// "68.6 ms" of 68600 us.
inline std::string shown(double value, std::string_view unit) { return Shown(unit, value).text(value); }
/// A number without a unit, as a ratio: "1.04".
std::string three_digits(double value);

/// How wide the terminal is that `stream` goes to; 0: it goes to none, or nobody knows.
std::size_t terminal_columns(std::FILE* stream);

/// How many columns a text takes on a terminal: its characters, not its bytes.
std::size_t width_of(std::string_view text);

/// Text in columns. A column whose cells all begin like numbers is flushed right, so that digits line up; put the
/// unit into a column of its own.
struct Table {
  std::string title;                           ///< a line above; empty: none
  std::vector<std::string> header;             ///< empty: no header line
  std::vector<std::vector<std::string>> rows;  ///< a row with a single empty cell is a blank line
};

/// A table on a terminal: at most `width` columns, by cells of text on several lines. Ends in a newline. UTF-8
/// characters count as one column each. 0: as wide as the terminal that results go to, 100 where there is none.
std::string format_table(const Table& table, std::size_t width = 0);

/// A table on a page of Markdown, without its title.
std::string markdown_table(const Table& table);
/// Text that may come from outside, as one cell or one line of Markdown: its markup is shown and has no effect.
std::string markdown_cell(std::string_view text);

/// A sentence beside a table: text from outside makes no lines of its own. `width` is as of format_table(), but where
/// there is no terminal it is one line, for programs that search it.
std::string text_line(std::string_view text, std::size_t width = 0);

}  // namespace fsdpbench::app
