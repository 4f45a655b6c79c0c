#include "launch/slurm_lists.h"

#include <charconv>

namespace fsdpbench::launch {
namespace {

/// Takes the digits at the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

}  // namespace

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
