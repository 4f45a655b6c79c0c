#include "foreign/kineto_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fsdpbench::foreign::corpus {
namespace {

std::string microseconds(std::int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

void KinetoText::slice(std::string_view category, std::string_view name, std::int64_t pid, std::int64_t tid,
                       std::int64_t begin_ns, std::int64_t end_ns, std::string_view args) {
  events_.push_back(
      fmt::format("  {{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": {}, \"pid\": {}, \"tid\": {},\n    \"ts\": {}, "
                  "\"dur\": {}{}\n  }}",
                  category, quoted(name), pid, tid, microseconds(begin_ns), microseconds(end_ns - begin_ns),
                  args.empty() ? "" : fmt::format(",\n    \"args\": {{\n      {}\n    }}", args)));
}

void KinetoText::arrow(std::int64_t id, std::int64_t pid, std::int64_t tid, std::int64_t begin_ns, std::int64_t device,
                       std::int64_t stream, std::int64_t end_ns) {
  events_.push_back(
      fmt::format("  {{\n    \"ph\": \"s\", \"id\": {}, \"pid\": {}, \"tid\": {}, \"ts\": {},\n    "
                  "\"cat\": \"ac2g\", \"name\": \"ac2g\"\n  }}",
                  id, pid, tid, microseconds(begin_ns)));
  events_.push_back(
      fmt::format("  {{\n    \"ph\": \"f\", \"id\": {}, \"pid\": {}, \"tid\": {}, \"ts\": {},\n    "
                  "\"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  }}",
                  id, device, stream, microseconds(end_ns)));
}

void KinetoText::instant(std::string_view category, std::string_view name, std::int64_t pid, std::int64_t tid,
                         std::int64_t time_ns, std::string_view args) {
  events_.push_back(
      fmt::format("  {{\n    \"ph\": \"i\", \"cat\": \"{}\", \"s\": \"t\", \"name\": {}, \"pid\": {}, "
                  "\"tid\": {},\n    \"ts\": {},\n    \"args\": {{\n      {}\n    }}\n  }}",
                  category, quoted(name), pid, tid, microseconds(time_ns), args));
}

void KinetoText::name_process(std::int64_t pid, std::string_view name) {
  events_.push_back(
      fmt::format("  {{\n    \"name\": \"process_name\", \"ph\": \"M\", \"ts\": 0.000, \"pid\": {}, "
                  "\"tid\": 0,\n    \"args\": {{\n      \"name\": {}\n    }}\n  }}",
                  pid, quoted(name)));
}

void KinetoText::shuffle(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t i = events_.size(); i > 1; --i) std::swap(events_[i - 1], events_[random() % i]);
}

std::string KinetoText::text() const {
  std::string text = "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {\n      \"id\": 0, \"name\": " +
                     quoted(facts_.device_model) +
                     ", \"totalGlobalMem\": 85045542912,\n      \"computeMajor\": 9, \"computeMinor\": 0, \"numSms\": "
                     "132\n    }\n  ],\n  \"cuda_runtime_version\": 12040,\n";
  if (!facts_.backend.empty()) {
    text += fmt::format(
        "  \"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": {}, \"pg_count\": {}, "
        "\"pg_config\": [",
        facts_.backend, facts_.rank, facts_.world, facts_.groups.size());
    for (std::size_t i = 0; i < facts_.groups.size(); ++i) {
      const Group& group = facts_.groups[i];
      text += fmt::format(
          "{}{{\"pg_name\": \"{}\", \"pg_desc\": \"{}\", \"backend_config\": \"cuda:{}\", \"pg_size\": {}, "
          "\"ranks\": [{}]}}",
          i == 0 ? "" : ", ", group.name, group.description, facts_.backend, group.ranks.size(),
          fmt::join(group.ranks, ", "));
    }
    text += "]},\n";
  }
  text += fmt::format("  \"host_name\": {},\n  \"displayTimeUnit\": \"ms\",\n", quoted(facts_.host));
  if (facts_.base_ns != 0) text += fmt::format("  \"baseTimeNanoseconds\": {},\n", facts_.base_ns);
  text += "  \"traceEvents\": [\n";
  for (std::size_t i = 0; i < events_.size(); ++i) {
    text += events_[i];
    text += i + 1 < events_.size() ? ",\n" : "\n";
  }
  return text + "  ],\n  \"traceName\": \"trace.json\"\n}\n";
}

}  // namespace fsdpbench::foreign::corpus
