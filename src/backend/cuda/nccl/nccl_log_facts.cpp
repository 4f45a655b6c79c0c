#include "backend/cuda/nccl/nccl_log_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <vector>

namespace fsdpbench::backend::cuda {
namespace {

using Match = std::match_results<std::string_view::const_iterator>;

/// A kind of line, and what it adds.
struct Line {
  std::string_view mark;  ///< in every such line; cheaper to look for than the pattern
  std::regex pattern;
  void (*add)(NcclLogFacts& facts, const Match& match);
};

void add_transport(NcclLogFacts& facts, const Match& match) {
  facts.transports[match[3]].emplace(std::stoi(match[1]), std::stoi(match[2]));
}

void add_collnet(NcclLogFacts& facts, const Match& match) {
  facts.transports[match[2]].emplace(std::stoi(match[1]), -1);  // the other end is the network itself
}

void add_network(NcclLogFacts& facts, const Match& match) { facts.networks.insert(match[1]); }

void add_multicast(NcclLogFacts& facts, const Match& match) {
  facts.multicast = facts.multicast.value_or(true) && !match[1].matched;
}

void add_channels(NcclLogFacts& facts, const Match& match) {
  facts.channels = std::max(facts.channels, std::stoi(match[1]));
  facts.nvls_channels = std::max(facts.nvls_channels, std::stoi(match[2]));
}

void add_algorithm(NcclLogFacts& facts, const Match& match) {
  facts.algorithms[match[1]].insert(match[2].str() + "/" + match[3].str());
}

void add_symmetric_kernel(NcclLogFacts& facts, const Match& match) {
  facts.algorithms[match[1]].insert("symmetric kernel " + match[2].str());
}

const std::vector<Line>& lines() {
  // The numbers are bounded, so that none of them is too large for an int.
  static const std::vector<Line> kLines{
      {" via ",
       std::regex(R"(Channel \d+(?:/\d+)? : (\d{1,6})\[[^\]]*\] -> (\d{1,6})\[[^\]]*\] (?:\[(?:send|receive)\] )?via )"
                  R"((P2P/direct pointer[^ ]*|[^ ]+))"),
       add_transport},
      {" via COLLNET", std::regex(R"(CollNet \d+/\d+ : (\d{1,6}) \[(?:send|receive)\] via ([^ ]+))"), add_collnet},
      {"Using network ", std::regex(R"(NCCL INFO Using network (.+?) *$)"), add_network},
      {"NVLS multicast ", std::regex(R"(NVLS multicast support is (not )?available)"), add_multicast},
      {" coll channels,", std::regex(R"((\d{1,6}) coll channels,.* (\d{1,6}) nvls channels)"), add_channels},
      {" -> Algo ", std::regex(R"(NCCL INFO (\w+): \d+ Bytes -> Algo (\w+) proto (\w+))"), add_algorithm},
      {"[Symmetric]", std::regex(R"(NCCL INFO (\w+) \[Symmetric\]: \d+ Bytes -> Kernel (\w+))"), add_symmetric_kernel},
  };
  return kLines;
}

void read_line(std::string_view text, NcclLogFacts& facts) {
  constexpr std::size_t kLongest = 1000;  // of lines of interest; a longer one would only tire the patterns
  if (text.size() > kLongest) return;
  for (const Line& line : lines()) {
    if (text.find(line.mark) == std::string_view::npos) continue;
    Match match;
    if (std::regex_search(text.begin(), text.end(), match, line.pattern)) line.add(facts, match);
  }
}

std::string counted(const std::string& transport, std::size_t connections) {
  return fmt::format("{} ({} connection{})", transport, connections, connections == 1 ? "" : "s");
}

}  // namespace

NcclLogFacts parse_nccl_log(std::string_view text) {
  NcclLogFacts facts;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    read_line(text.substr(0, end), facts);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return facts;
}

Facts describe(const NcclLogFacts& log) {
  Facts facts;
  std::vector<std::string> transports;
  for (const auto& [transport, connections] : log.transports) {
    transports.push_back(counted(transport, connections.size()));
  }
  if (!transports.empty()) facts.emplace_back("nccl transport", fmt::format("{}", fmt::join(transports, ", ")));
  if (!log.networks.empty()) facts.emplace_back("nccl network", fmt::format("{}", fmt::join(log.networks, ", ")));
  if (log.multicast) {
    facts.emplace_back("nccl nvls",
                       *log.multicast ? fmt::format("available, {} channels", log.nvls_channels) : "not available");
  }
  if (log.channels > 0) facts.emplace_back("nccl channels", std::to_string(log.channels));
  std::vector<std::string> algorithms;
  for (const auto& [collective, names] : log.algorithms) {
    algorithms.push_back(fmt::format("{}: {}", collective, fmt::join(names, ", ")));
  }
  if (!algorithms.empty()) facts.emplace_back("nccl algorithms", fmt::format("{}", fmt::join(algorithms, "; ")));
  return facts;
}

}  // namespace fsdpbench::backend::cuda
