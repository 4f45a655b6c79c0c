#include "accept/gate/machine_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/enum_table.h"
#include "runs/result_fields.h"
#include "runs/world.h"

namespace fsdpbench::app {
namespace {

using Fact = MachinePrint::Fact;
using Part = MachinePrint::Part;

/// The GPUs by model, without their places on the bus: "8 x NVIDIA H100 80GB HBM3 (sm_90)".
std::string gpus(const World& world) {
  std::map<std::string, int> models;
  for (const World::RankPlace& place : world.places) {
    for (const auto& [name, value] : place.device) {
      if (name == "GPU") ++models[value.substr(0, value.find(", PCI"))];
    }
  }
  std::string text;
  for (const auto& [model, count] : models) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, model);
  return text;
}

std::size_t nodes(const World& world) {
  std::set<std::string> hosts;
  for (const World::RankPlace& place : world.places) hosts.insert(place.host);
  return hosts.size();
}

/// Whether a fact of a rank's device is about the software under it.
bool is_software(std::string_view fact) { return fact == "CUDA" || fact == "nccl" || fact.starts_with("nccl "); }
/// These are counted and measured anew in every run.
bool changes_by_itself(std::string_view fact) { return fact == "nccl launches" || fact == "nccl windows"; }

}  // namespace

std::string_view to_string(Part part) {
  constexpr EnumNames<Part> kNames{"hardware", "software", "program"};
  return kNames[part];
}

MachinePrint MachinePrint::of_world(const JsonPart& world) {
  const World w = fields<World>().read(world);
  MachinePrint print;
  const auto add = [&](std::string name, std::string value, Part part) {
    if (!value.empty()) print.facts_.push_back({std::move(name), std::move(value), part});
  };
  const auto hardware = [&](std::string name, std::string value) {
    add(std::move(name), std::move(value), Part::hardware);
  };
  const auto software = [&](std::string name, std::string value) {
    add(std::move(name), std::move(value), Part::software);
  };
  hardware("backend", w.backend);
  hardware("ranks", fmt::format("{}", w.ranks));
  if (!w.simulated()) {  // a computed clock is the same everywhere
    hardware("processor", w.cpu);
    hardware("hardware threads", fmt::format("{}", w.threads));
    // A kernel keeps some of it: the same memory is not the same number of bytes under another one.
    hardware("memory", fmt::format("{:.0f} GiB", std::round(static_cast<double>(w.memory_bytes) / (1 << 30))));
    hardware("GPUs", gpus(w));
    if (const std::size_t count = nodes(w); count > 0) hardware("nodes", fmt::format("{}", count));
    hardware("ranks are", w.transport.empty() ? "threads of one process" : "processes, " + w.transport);
    if (w.emulated_link) hardware("links", "emulated");
    if (w.emulated_compute) hardware("computation", "emulated");
    software("kernel", w.kernel);
    software("scheduling", w.realtime);
    for (const auto& [name, version] : w.libraries) software(name, version);
    for (const auto& [name, value] : w.places.empty() ? backend::Facts{} : w.places.front().device) {
      if (is_software(name) && !changes_by_itself(name)) software(name, value);
    }
  }
  software("compiler", w.program.compiler);
  software("build", w.program.build_type);
  software("sanitizers", w.program.sanitize);
  add("fsdpbench", w.program.version, Part::program);
  add("git revision", w.program.git_revision + (w.program.git_dirty ? " with changes" : ""), Part::program);
  return print;
}

nlohmann::json MachinePrint::to_json() const {
  nlohmann::json j = nlohmann::json::object();
  for (const Fact& fact : facts_) j[to_string(fact.part)].push_back({{"name", fact.name}, {"value", fact.value}});
  return j;
}

std::string MachinePrint::value(std::string_view name) const {
  const auto found = std::ranges::find(facts_, name, &Fact::name);
  return found == facts_.end() ? std::string() : found->value;
}

std::string MachinePrint::summary() const {
  std::string what = value("GPUs");
  if (what.empty()) what = value("processor");
  if (what.empty()) what = value("backend") == "virtual" ? "computed clock" : "unknown machine";
  return fmt::format("{}, {} ranks", what, value("ranks"));
}

std::vector<MachineDifference> differences(const MachinePrint& before, const MachinePrint& now) {
  std::vector<MachineDifference> all;
  for (const Fact& fact : before.facts()) {
    const std::string other = now.value(fact.name);
    if (other != fact.value) all.push_back({fact.name, fact.value, other, fact.part});
  }
  for (const Fact& fact : now.facts()) {
    if (before.value(fact.name).empty()) all.push_back({fact.name, "", fact.value, fact.part});
  }
  std::ranges::stable_sort(all, {}, &MachineDifference::part);
  return all;
}

}  // namespace fsdpbench::app
