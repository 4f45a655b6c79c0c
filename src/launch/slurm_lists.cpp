#include "launch/slurm_lists.h"

#include <charconv>
#include <cstddef>
#include <vector>

namespace fsdpbench::launch {
namespace {

/// Takes the digits at the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(end - text.data());
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

constexpr std::size_t kMostListed = 1'000'000;

/// "003-007,9" as 003, 004, … 009: of as many digits as the first of a range has.
std::optional<std::vector<std::string>> numbers_in(std::string_view text) {
  std::vector<std::string> numbers;
  while (!text.empty()) {
    const std::size_t digits = text.find_first_of(",-");
    const std::size_t width = digits == std::string_view::npos ? text.size() : digits;
    const std::optional<int> first = take_number(text);
    if (!first) return std::nullopt;
    int last = *first;
    if (take(text, "-")) {
      const std::optional<int> end = take_number(text);
      if (!end || *end < *first) return std::nullopt;
      last = *end;
    }
    if (numbers.size() + static_cast<std::size_t>(last - *first) >= kMostListed) return std::nullopt;
    for (int i = *first; i <= last; ++i) {
      std::string number = std::to_string(i);
      if (number.size() < width) number.insert(0, width - number.size(), '0');
      numbers.push_back(std::move(number));
    }
    if (!text.empty() && !take(text, ",")) return std::nullopt;
  }
  if (numbers.empty()) return std::nullopt;
  return numbers;
}

}  // namespace

std::optional<std::vector<std::string>> all_hosts(std::string_view node_list) {
  std::vector<std::string> all;
  while (!node_list.empty()) {
    std::vector<std::string> names{""};
    while (!node_list.empty() && node_list.front() != ',') {
      if (node_list.front() != '[') {
        for (std::string& name : names) name += node_list.front();
        node_list.remove_prefix(1);
        continue;
      }
      const std::size_t close = node_list.find(']');
      if (close == std::string_view::npos) return std::nullopt;
      const auto numbers = numbers_in(node_list.substr(1, close - 1));
      if (!numbers || names.size() * numbers->size() > kMostListed) return std::nullopt;
      std::vector<std::string> longer;
      for (const std::string& name : names) {
        for (const std::string& number : *numbers) longer.push_back(name + number);
      }
      names = std::move(longer);
      node_list.remove_prefix(close + 1);
    }
    if (names.front().empty() || all.size() + names.size() > kMostListed) return std::nullopt;
    all.insert(all.end(), names.begin(), names.end());
    if (!node_list.empty()) node_list.remove_prefix(1);
  }
  if (all.empty()) return std::nullopt;
  return all;
}

std::optional<std::string> first_host(std::string_view node_list) {
  std::string host;
  // A name may have several bracketed parts, and letters after them.
  while (!node_list.empty() && node_list.front() != ',') {
    if (node_list.front() != '[') {
      host += node_list.front();
      node_list.remove_prefix(1);
      continue;
    }
    const std::size_t close = node_list.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view numbers = node_list.substr(1, close - 1);
    const std::string_view first = numbers.substr(0, numbers.find_first_of(",-"));
    if (first.empty()) return std::nullopt;
    host += first;
    node_list.remove_prefix(close + 1);
  }
  if (host.empty() || host.find(']') != std::string::npos) return std::nullopt;
  return host;
}

std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node) {
  while (!tasks_per_node.empty()) {
    const std::optional<int> tasks = take_number(tasks_per_node);
    if (!tasks) return std::nullopt;
    int nodes = 1;
    if (take(tasks_per_node, "(x")) {
      const std::optional<int> repeated = take_number(tasks_per_node);
      if (!repeated || !take(tasks_per_node, ")")) return std::nullopt;
      nodes = *repeated;
    }
    if (node < nodes) return tasks;
    node -= nodes;
    if (!take(tasks_per_node, ",")) break;
  }
  return std::nullopt;
}

}  // namespace fsdpbench::launch
