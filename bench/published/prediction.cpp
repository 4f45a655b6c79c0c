#include "published/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>

#include "base/error.h"

namespace fsdpbench::bench {
double median_error(std::vector<double> errors) {
  for (double& error : errors) error = std::abs(error);
  std::ranges::sort(errors);
  return (errors[(errors.size() - 1) / 2] + errors[errors.size() / 2]) / 2;
}

namespace {

std::string median_line(const char* name, const std::vector<double>& errors) {
  if (errors.empty()) return fmt::format("{:<44} {:>4}\n", name, 0);
  double largest = 0;
  for (const double error : errors) largest = std::max(largest, std::abs(error));
  return fmt::format("{:<44} {:>4} {:>8.1f} % {:>8.1f} %\n", name, errors.size(), 100 * median_error(errors),
                     100 * largest);
}

std::string remark(const Prediction& row) {
  if (!row.calibrates.empty()) return "calibrates: " + row.calibrates;
  if (row.experts) return "experts" + (row.assumed.empty() ? "" : "; assumed: " + row.assumed);
  if (!row.assumed.empty()) return "assumed: " + row.assumed;
  return row.in_domain ? "" : "small";
}

/// As a cell of a CSV without quotes.
std::string cell(std::string text) {
  std::ranges::replace(text, ',', ';');
  return text;
}

}  // namespace

void print(const Predictions& rows, const char* title, const char* unit) {
  std::size_t width = 0;
  for (const Prediction& row : rows) width = std::max(width, row.what.size());
  fmt::print("{}\n\n{:<5} {:<{}} {:>10} {:>10} {:>8}  {:<22} {}\n", title, "row", "what", width, "published",
             "predicted", "error", "how", "");
  fmt::print("{:<5} {:<{}} {:>10} {:>10}\n", "", "", width, unit, unit);
  std::vector<double> all, stated;
  std::map<std::string, std::vector<double>> groups;
  for (const Prediction& row : rows) {
    if (!row.not_predicted.empty()) {
      fmt::print("{:<5} {:<{}} {:>10.5g} not predicted: {}\n", row.id, row.what, width, row.published,
                 row.not_predicted);
      continue;
    }
    fmt::print("{:<5} {:<{}} {:>10.5g} {:>10.5g} {:>+6.1f} %  {:<22} {}\n", row.id, row.what, width, row.published,
               row.predicted, 100 * row.error(), row.how, remark(row));
    if (!row.counts()) continue;
    all.push_back(row.error());
    groups[row.group].push_back(row.error());
    if (row.assumed.empty()) stated.push_back(row.error());
  }
  fmt::print("\n{:<44} {:>4} {:>10} {:>10}\n", "", "rows", "median", "largest");
  fmt::print("{}{}", median_line("predicted", all), median_line("predicted, of which nothing was assumed", stated));
  for (const auto& [group, errors] : groups) fmt::print("{}", median_line(("  " + group).c_str(), errors));
}

void write_csv(const Predictions& rows, const std::string& path) {
  std::ofstream file(path);
  file << "id,group,what,published,predicted,error,how,calibrates,assumed,counts,not_predicted,source,note,plain\n";
  for (const Prediction& row : rows) {
    const std::string predicted = row.not_predicted.empty() ? fmt::format("{:.6g}", row.predicted) : "";
    const std::string error = row.not_predicted.empty() ? fmt::format("{:.4f}", row.error()) : "";
    file << fmt::format("{},{},{},{:.6g},{},{},{},{},{},{},{},{},{},{}\n", row.id, cell(row.group), cell(row.what),
                        row.published, predicted, error, cell(row.how), cell(row.calibrates), cell(row.assumed),
                        row.counts(), cell(row.not_predicted), row.source, cell(row.note),
                        row.plain > 0 ? fmt::format("{:.6g}", row.plain) : "");
  }
  if (!file.flush()) throw OutputError(fmt::format("{}: cannot be written.", path));
}

}  // namespace fsdpbench::bench
