#include "record/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

#include "base/read_input.h"

namespace fsdpbench::app {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::size_t kWidthOfFiles = 100, kLeastOfText = 12;

/// Markdown's markup for cells, code, HTML, links, emphasis, entities, mentions and issues: a backslash takes its
/// meaning away. Without `_`, which names of figures contain, and which has no meaning within a word.
constexpr std::string_view kMarkup = "\\|`<>[]*~&#@";

/// Units of one kind, each `step` times the one before it.
struct Ladder {
  double step;
  std::array<std::string_view, 5> units;
};
constexpr std::array kLadders{Ladder{1e3, {"ns", "us", "ms", "s"}}, Ladder{1024, {"B", "KiB", "MiB", "GiB", "TiB"}},
                              Ladder{1e3, {"KB", "MB", "GB", "TB"}}};

bool like_a_number(std::string_view cell) {
  if (cell == "-" || cell == "–") return true;  // not measured
  if (!cell.empty() && (cell.front() == '-' || cell.front() == '+')) cell.remove_prefix(1);
  return !cell.empty() && std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
}

struct Column {
  std::size_t width = 0;
  bool right = false;
  std::size_t least = kLeastOfText;  ///< it can be made so narrow
  std::size_t piece = kLeastOfText;  ///< its longest part that cannot be cut
};

/// Lines of at most `width` columns: they end at blanks, or within names behind a dot or the like; what is neither is
/// not cut. What the text was indented by, all are; those of a list go on below its words.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  std::string indent;
  std::string_view left = text;
  while (width_of(left) + indent.size() > width) {
    std::size_t end = 0;  // the last place that fits, else the first one
    for (const std::string_view ends : {" ", "._=/,"}) {
      std::size_t at = left.find_first_not_of(' ');
      while (at != left.npos && (at = left.find_first_of(ends, at)) != left.npos && at + 1 < left.size()) {
        at += ends == " " ? 0 : 1;
        if (end > 0 && width_of(left.substr(0, at)) + indent.size() > width) break;
        if (ends == " " || width_of(left.substr(0, at)) + indent.size() <= width) end = at;
        at += ends == " " ? 1 : 0;
      }
      if (end > 0 && width_of(left.substr(0, end)) + indent.size() <= width) break;
    }
    if (end == 0) break;
    lines.push_back(indent + std::string(left.substr(0, end)));
    left.remove_prefix(left[end] == ' ' ? end + 1 : end);
    indent.assign(std::min(text.find_first_not_of(text.starts_with("- ") ? "- " : " "), width / 2), ' ');
  }
  lines.push_back(indent + std::string(left));
  return lines;
}

/// Width of the longest part of a text that wrapped() does not cut.
std::size_t longest_piece(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t begin = 0, end = 0; end < text.size(); begin = end) {
    end = std::min(text.find_first_of(" ._=/,", begin), text.size() - 1) + 1;
    longest = std::max(longest, width_of(text.substr(begin, end - begin)));
  }
  return longest;
}

std::vector<Column> columns_of(const Table& table) {
  std::vector<Column> columns(table.header.size());
  for (const auto& row : table.rows) columns.resize(std::max(columns.size(), row.size()));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    bool any = false;
    bool numbers = true;
    for (const auto& row : table.rows) {
      if (c >= row.size() || row[c].empty()) continue;
      any = true;
      numbers = numbers && like_a_number(row[c]);
      columns[c].width = std::max(columns[c].width, width_of(row[c]));
    }
    columns[c].right = any && numbers;
    if (columns[c].right) columns[c].piece = 1;
    for (const auto& row : table.rows) {
      if (c < row.size()) columns[c].piece = std::max(columns[c].piece, longest_piece(row[c]));
    }
    if (c < table.header.size()) columns[c].piece = std::max(columns[c].piece, longest_piece(table.header[c]));
    columns[c].least = columns[c].right ? std::max(columns[c].width, columns[c].piece) : columns[c].piece;
    if (c < table.header.size()) columns[c].width = std::max(columns[c].width, width_of(table.header[c]));
  }
  return columns;
}

/// The widest columns give way first, and numbers last.
void narrow(std::vector<Column>& columns, std::size_t width) {
  std::size_t total = 0;
  for (const Column& column : columns) total += column.width + kGap.size();
  const auto spare = [](const Column& column) { return column.width > column.least ? column.width : 0; };
  while (total > width + kGap.size()) {
    Column& widest = *std::ranges::max_element(columns, {}, spare);
    if (spare(widest) == 0) {
      if (std::ranges::all_of(columns, [](const Column& column) { return column.least <= column.piece; })) return;
      for (Column& column : columns) column.least = std::min(column.least, column.piece);
      continue;
    }
    --widest.width;
    --total;
  }
}

std::string format_row(const std::vector<std::string>& cells, const std::vector<Column>& columns) {
  std::vector<std::vector<std::string>> parts;
  std::size_t height = 1;
  for (const std::string& cell : cells) {
    parts.push_back(wrapped(cell, columns[parts.size()].width));
    height = std::max(height, parts.back().size());
  }
  std::string text;
  for (std::size_t at = 0; at < height; ++at) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line += kGap;
      const std::string part = at < parts[c].size() ? parts[c][at] : "";
      const std::string padding(columns[c].width - std::min(columns[c].width, width_of(part)), ' ');
      line += columns[c].right ? padding + part : part + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace

Shown::Shown(std::string_view unit, double largest) : unit_(unit.substr(0, unit.find(' '))) {
  if (unit_ == "of") {
    unit_ = "%";
    scale_ = 100;
  }
  for (const Ladder& ladder : kLadders) {
    const auto* const named = std::ranges::find(ladder.units, unit_);
    if (unit_.empty() || named == ladder.units.end() || largest == 0) continue;
    std::size_t at = named - ladder.units.begin();
    const auto size = [&] { return std::abs(largest) * scale_; };
    for (; size() >= 999.5 && at + 1 < ladder.units.size() && !ladder.units[at + 1].empty(); ++at)
      scale_ /= ladder.step;
    for (; size() < 0.9995 && at > 0; --at) scale_ *= ladder.step;
    unit_ = ladder.units[at];
    return;
  }
}

std::string Shown::number(double value) const { return three_digits(value * scale_); }

std::string three_digits(double value) {
  if (!std::isfinite(value)) return "unknown";
  constexpr std::array kFrom{99.95, 9.995, 0.9995, 0.09995, 0.009995};  // with no decimal, one, …
  const double size = std::abs(value);
  const auto decimals = std::ranges::find_if(kFrom, [&](double from) { return size >= from; }) - kFrom.begin();
  return size < 0.000005 ? "0" : fmt::format("{:.{}f}", value, decimals);
}

std::size_t terminal_columns(std::FILE* stream) {
  winsize size{};
  return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string format_table(const Table& raw, std::size_t width) {
  if (width == 0) width = terminal_columns(stdout);
  Table table = raw;  // titles, headers and cells may hold what users wrote
  table.title = clean_text(table.title, kMostOfAMessage);
  for (std::string& cell : table.header) cell = clean_text(cell, kMostOfACell);
  for (auto& row : table.rows) {
    for (std::string& cell : row) {  // on several lines; a cell alone is a sentence or a paragraph
      cell = clean_text(cell, row.size() > 1 ? 2 * kMostOfACell : kMostOfAMessage);
    }
  }
  std::vector<Column> columns = columns_of(table);
  narrow(columns, width == 0 ? kWidthOfFiles : width);
  std::string out;
  if (!table.title.empty()) out += table.title + '\n';
  if (!table.header.empty()) {
    out += format_row(table.header, columns);
    std::vector<std::string> rule;
    for (const Column& column : columns) rule.emplace_back(column.width, '-');
    out += format_row(rule, columns);
  }
  for (const auto& row : table.rows) out += format_row(row, columns);
  return out;
}

std::string markdown_table(const Table& table) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    for (const std::string& cell : row) text += fmt::format("| {} ", markdown_cell(cell));
    text += "|\n";
  };
  add(table.header);
  for (std::size_t c = 0; c < table.header.size(); ++c) text += "|---";
  text += "|\n";
  for (const auto& row : table.rows) add(row);
  return text;
}

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text, kMostOfAMessage)) {
    if (kMarkup.find(c) != kMarkup.npos) out += '\\';
    out += c;
  }
  return out;
}

std::string text_line(std::string_view text, std::size_t width) {
  if (width == 0) width = terminal_columns(stdout);
  const std::string line = clean_text(text, kMostOfAMessage);
  return fmt::format("{}\n", fmt::join(width == 0 ? std::vector{line} : wrapped(line, width), "\n"));
}

}  // namespace fsdpbench::app
