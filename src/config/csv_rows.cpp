#include "config/csv_rows.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/read_input.h"

namespace fsdpbench::config {
namespace {

std::vector<std::string> split(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);  // spreadsheets and Python's csv end lines with both
  std::vector<std::string> parts(1);
  for (const char c : line) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

template <class Number>
Number parse(const CsvRow& row, const std::string& column, const char* expected) {
  const std::string& text = row.text(column);
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value <= 0) {
    throw ConfigError(fmt::format("{}: {} = {} is not valid; expected {} above 0.", row.place, column, text, expected));
  }
  return value;
}

}  // namespace

const std::string& CsvRow::text(const std::string& column) const {
  const auto found = fields.find(column);
  if (found == fields.end()) throw ConfigError(fmt::format("{}: there is no column '{}'.", place, column));
  return found->second;
}

std::string CsvRow::text_if_any(const std::string& column) const {
  const auto found = fields.find(column);
  return found == fields.end() ? "" : found->second;
}

double CsvRow::number(const std::string& column) const { return parse<double>(*this, column, "a number"); }
int CsvRow::integer(const std::string& column) const { return parse<int>(*this, column, "an integer"); }

std::vector<CsvRow> read_csv(const std::string& path) {
  std::istringstream file(Input(path, "a table of values between commas").text(kMostOfAProfile));
  std::string line;
  if (!std::getline(file, line)) throw ConfigError(fmt::format("{}: is empty; expected a line of column names.", path));
  const std::vector<std::string> columns = split(line);
  std::vector<CsvRow> rows;
  for (int number = 2; std::getline(file, line); ++number) {
    if (line.empty() || line == "\r") continue;
    const std::vector<std::string> values = split(line);
    CsvRow row{fmt::format("{}:{}", path, number), {}};
    if (values.size() != columns.size()) {
      throw ConfigError(
          fmt::format("{}: there are {} values; expected {}, one a column.", row.place, values.size(), columns.size()));
    }
    for (std::size_t i = 0; i < values.size(); ++i) row.fields[columns[i]] = values[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace fsdpbench::config
