#include "published/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>

#include "base/error.h"

namespace fsdpbench::bench {
namespace {

std::string median_line(const char* name, std::vector<double> errors) {
  if (errors.empty()) return fmt::format("{:<44} {:>4}\n", name, 0);
  for (double& e : errors) e = std::abs(e);
  std::ranges::sort(errors);
  const std::size_t middle = errors.size() / 2;
  const double median = errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
  return fmt::format("{:<44} {:>4} {:>8.1f} % {:>8.1f} %\n", name, errors.size(), 100 * median, 100 * errors.back());
}

std::string remark(const Prediction& row) {
  if (!row.calibrates.empty()) return "calibrates: " + row.calibrates;
  if (!row.assumed.empty()) return "assumed: " + row.assumed;
  return row.in_domain ? "" : "small";
}

}  // namespace

void print(const Predictions& rows, const char* title, const char* unit) {
  fmt::print("{}\n\n{:<5} {:<44} {:>10} {:>10} {:>8}  {:<22} {}\n", title, "row", "what", "published", "predicted",
             "error", "how", "");
  fmt::print("{:<5} {:<44} {:>10} {:>10}\n", "", "", unit, unit);
  std::vector<double> all, stated;
  std::map<std::string, std::vector<double>> groups;
  for (const Prediction& row : rows) {
    fmt::print("{:<5} {:<44} {:>10.4g} {:>10.4g} {:>+6.1f} %  {:<22} {}\n", row.id, row.what, row.published,
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
  file << "id,group,what,published,predicted,error,how,calibrates,assumed,counts,source,note\n";
  for (const Prediction& row : rows) {
    file << fmt::format("{},{},{},{:.6g},{:.6g},{:.4f},{},{},{},{},{},{}\n", row.id, row.group, row.what, row.published,
                        row.predicted, row.error(), row.how, row.calibrates, row.assumed, row.counts(), row.source,
                        row.note);
  }
  if (!file.flush()) throw OutputError(fmt::format("{}: cannot be written.", path));
}

}  // namespace fsdpbench::bench
