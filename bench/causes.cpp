// Does the diagnosis find what is known to be wrong? Runs a generated suite on emulated clusters (cases with one cause,
// with two, and with none), prints the confusion matrix and, with an argument, writes it to that file as JSON.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/cause_cases.h"

using fsdpbench::metrics::Cause;
using fsdpbench::metrics::CauseShare;
using fsdpbench::metrics::to_string;
using fsdpbench::testing::CauseCase;

namespace {

constexpr int kEach = 8;

std::vector<CauseCase> suite() {
  fsdpbench::testing::CauseCases cases(1);
  std::vector<CauseCase> result;
  for (int i = 0; i < kEach; ++i) {
    for (Cause cause :
         {Cause::late_prefetch, Cause::all_gather_limit, Cause::straggler, Cause::injected_sync, Cause::link_bound,
          Cause::inefficient_collective, Cause::communicator_serialisation, Cause::host_bound, Cause::unknown}) {
      result.push_back(cases.one(cause));
    }
  }
  for (int i = 0; i < 10; ++i) result.push_back(cases.none());
  for (int i = 0; i < 5; ++i) {
    result.push_back(cases.two(Cause::late_prefetch, Cause::straggler));
    result.push_back(cases.two(Cause::late_prefetch, Cause::injected_sync));
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::map<std::string, int>> matrix;
  int right = 0, invented = 0, none = 0;
  const std::vector<CauseCase> cases = suite();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CauseCase& c = cases[i];
    const std::vector<CauseShare> found = fsdpbench::testing::found_causes(fsdpbench::testing::diagnose(
        c.config, [](const auto& config) { return fsdpbench::testing::run_tiny(config); }));
    const bool is_right = fsdpbench::testing::right(c, found);
    right += is_right ? 1 : 0;
    std::string answer = found.empty() ? "none" : std::string(to_string(found.front().cause));
    if (c.expected.size() == 2)
      answer = is_right ? c.name : answer + (found.size() > 1 ? " + " + std::string(to_string(found[1].cause)) : "");
    if (c.expected.empty()) {
      ++none;
      invented += found.empty() ? 0 : 1;
    }
    ++matrix[c.name][answer];
    fmt::print(stderr, "\r{}/{} {:<50}", i + 1, cases.size(), c.name);
  }
  fmt::print(stderr, "\r{:70}\r", "");
  fmt::print("{:<40} {:<40} {}\n", "known", "diagnosed", "cases");
  for (const auto& [known, answers] : matrix) {
    for (const auto& [answer, count] : answers) fmt::print("{:<40} {:<40} {}\n", known, answer, count);
  }
  fmt::print("\nright: {} of {} ({:.1f} %); invented where there is none: {} of {}\n", right, cases.size(),
             100.0 * right / static_cast<double>(cases.size()), invented, none);
  if (argc > 1) {
    const nlohmann::json j{
        {"cases", cases.size()}, {"right", right}, {"none", none}, {"invented", invented}, {"matrix", matrix}};
    std::ofstream(argv[1]) << j.dump(2) << '\n';
  }
  return 0;
}
