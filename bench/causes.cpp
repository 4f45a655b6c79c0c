// Does the diagnosis find what is known to be wrong? Runs a generated suite on emulated clusters (cases with one cause,
// with two, and with none) on this machine, with so many of its cores kept busy by other threads, prints the confusion
// matrix of each run and, with a file, writes them to it as JSON. Jitter is no cause: it is never right.
//   bench_causes [RUNS] [BUSY CORES] [FILE.json]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "busy_cores.h"
#include "support/cause_cases.h"

using fsdpbench::account::Cause;
using fsdpbench::account::CauseShare;
using fsdpbench::account::to_string;
using fsdpbench::testing::CauseCase;

namespace {

constexpr int kEach = 8;

std::vector<CauseCase> suite() {
  fsdpbench::testing::CauseCases cases(1);
  std::vector<CauseCase> result;
  for (int i = 0; i < kEach; ++i) {
    for (Cause cause :
         {Cause::late_prefetch, Cause::all_gather_limit, Cause::straggler, Cause::host_sync, Cause::link_bound,
          Cause::inefficient_collective, Cause::communicator_serialisation, Cause::host_bound, Cause::unknown}) {
      result.push_back(cases.one(cause));
    }
  }
  for (int i = 0; i < 10; ++i) result.push_back(cases.none());
  for (int i = 0; i < 5; ++i) {
    result.push_back(cases.two(Cause::late_prefetch, Cause::straggler));
    result.push_back(cases.two(Cause::late_prefetch, Cause::host_sync));
  }
  return result;
}

struct Outcome {
  int cases = 0, right = 0, single = 0, single_right = 0, none = 0, invented = 0;
  std::map<std::string, std::map<std::string, int>> matrix;
};

Outcome run_suite() {
  Outcome o;
  std::vector<CauseCase> cases = suite();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CauseCase& c = cases[i];
    c.config.train.steps = 7;
    const std::vector<CauseShare> found = fsdpbench::testing::found_causes(fsdpbench::testing::diagnose(
        c.config, [](const auto& config) { return fsdpbench::testing::run_tiny(config); }));
    const bool is_right = fsdpbench::testing::right(c, found);
    ++o.cases;
    o.right += is_right ? 1 : 0;
    if (c.expected.size() == 1) {
      ++o.single;
      o.single_right += is_right ? 1 : 0;
    }
    std::string answer = found.empty() ? "none" : std::string(to_string(found.front().cause));
    if (c.expected.size() == 2) {
      answer = is_right ? c.name : answer + (found.size() > 1 ? " + " + std::string(to_string(found[1].cause)) : "");
    }
    if (c.expected.empty()) {
      ++o.none;
      o.invented += found.empty() ? 0 : 1;
    }
    ++o.matrix[c.name][answer];
    fmt::print(stderr, "\r{}/{} {:<50}", i + 1, cases.size(), c.name);
  }
  fmt::print(stderr, "\r{:70}\r", "");
  return o;
}

void print(const Outcome& o) {
  fmt::print("{:<40} {:<40} {}\n", "known", "diagnosed", "cases");
  for (const auto& [known, answers] : o.matrix) {
    for (const auto& [answer, count] : answers) fmt::print("{:<40} {:<40} {}\n", known, answer, count);
  }
  fmt::print(
      "\nright: {} of {} ({:.1f} %); of single causes {} of {} ({:.1f} %); invented where there is none: {} of {}\n\n",
      o.right, o.cases, 100.0 * o.right / o.cases, o.single_right, o.single, 100.0 * o.single_right / o.single,
      o.invented, o.none);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 1;
  const int busy = argc > 2 ? std::atoi(argv[2]) : 0;
  const fsdpbench::BusyCores others(busy);
  nlohmann::json list = nlohmann::json::array();
  for (int run = 0; run < runs; ++run) {
    const Outcome o = run_suite();
    print(o);
    list.push_back({{"cases", o.cases},
                    {"right", o.right},
                    {"single", o.single},
                    {"single_right", o.single_right},
                    {"none", o.none},
                    {"invented", o.invented},
                    {"matrix", o.matrix}});
  }
  if (argc > 3) std::ofstream(argv[3]) << nlohmann::json{{"busy_cores", busy}, {"runs", list}}.dump(2) << '\n';
  return 0;
}
