#include "app/experiment/world.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "app/machine/machine_facts.h"
#include "config/spelling.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S%z}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

/// A fact of rank 0's place; empty if it does not say, or before the trial.
std::string fact(const World& world, std::string_view name) {
  if (world.places.empty()) return "";
  for (const auto& [key, value] : world.places.front().device) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace

World current_world(const config::RunConfig& config, const launch::Session* session,
                    std::vector<std::string> command_line) {
  static const MachineFacts kMachine = machine_facts();
  World world;
  world.program = build_info();
  world.command_line = std::move(command_line);
  world.backend = config::to_string(config.device.backend);
  // The same seed gives the same bytes, so nothing of the moment is in a simulation's files.
  world.date = world.simulated() ? "" : date_now();
  world.ranks = static_cast<int>(config.mesh.ranks);
  world.launcher = session != nullptr  ? session->placement().source
                   : world.simulated() ? "computed clock"
                                       : "threads of one process";
  if (session != nullptr) world.transport = session->transport();
  world.cpu = kMachine.cpu;
  world.threads = kMachine.threads;
  world.memory_bytes = kMachine.memory_bytes;
  world.kernel = kMachine.kernel;
  world.realtime = kMachine.realtime;
  world.libraries = kMachine.libraries;
  std::ranges::sort(world.libraries);
  world.emulated_link = config.emulate.link_gb_per_s.has_value() || config.emulate.pcie_gb_per_s.has_value();
  world.emulated_compute = config.emulate.compute_tflops.has_value();
  return world;
}

bool same_program_and_machine(const World& a, const World& b) {
  const auto host = [](const World& w) { return w.places.empty() ? std::string() : w.places.front().host; };
  const std::string gpu_a = fact(a, "GPU"), gpu_b = fact(b, "GPU");
  if (!gpu_a.empty() && !gpu_b.empty() && gpu_a != gpu_b) return false;
  return a.program == b.program && a.libraries == b.libraries && a.cpu == b.cpu && a.threads == b.threads &&
         a.kernel == b.kernel && a.realtime == b.realtime && host(a) == host(b);
}

json to_json(const World& w) {
  json j{{"version", w.program.version},
         {"git_revision", w.program.git_revision},
         {"git_dirty", w.program.git_dirty},
         {"build_type", w.program.build_type},
         {"compiler", w.program.compiler},
         {"command_line", w.command_line},
         {"date", w.date},
         {"backend", w.backend},
         {"launch", {{"ranks", w.ranks}, {"source", w.launcher}}},
         {"cpu", w.cpu},
         {"threads", w.threads},
         {"memory_bytes", w.memory_bytes},
         {"kernel", w.kernel},
         {"realtime", w.realtime},
         {"libraries", json::object()},
         {"emulated_link", w.emulated_link},
         {"emulated_compute", w.emulated_compute},
         {"simulated", w.simulated()}};
  if (!w.program.sanitize.empty()) j["sanitize"] = w.program.sanitize;
  if (!w.transport.empty()) j["launch"]["transport"] = w.transport;
  for (const auto& [name, version] : w.libraries) j["libraries"][name] = version;
  for (std::size_t rank = 0; rank < w.places.size(); ++rank) {
    json place{{"rank", rank}, {"host", w.places[rank].host}};
    for (const auto& [name, value] : w.places[rank].device) place[name] = value;
    j["devices"].push_back(std::move(place));
  }
  return j;
}

World world_from_json(const JsonPart& j) {
  constexpr std::int64_t kMost = 1'000'000'000;
  World w;
  w.program.version = j.at("version").text();
  w.program.git_revision = j.at("git_revision").text();
  w.program.git_dirty = j.at("git_dirty").flag();
  w.program.build_type = j.at("build_type").text();
  w.program.compiler = j.at("compiler").text();
  w.program.sanitize = j.text("sanitize", "");
  for (const JsonPart& word : j.at("command_line").list()) w.command_line.push_back(word.text());
  w.date = j.at("date").text();
  w.backend = j.at("backend").text();
  w.ranks = static_cast<int>(j.at("launch").at("ranks").whole(0, kMost));
  w.launcher = j.at("launch").at("source").text();
  w.transport = j.at("launch").text("transport", "");
  w.cpu = j.at("cpu").text();
  w.threads = static_cast<int>(j.at("threads").whole(0, kMost));
  w.memory_bytes = j.at("memory_bytes").size();
  w.kernel = j.at("kernel").text();
  w.realtime = j.at("realtime").text();
  for (const auto& [name, version] : j.at("libraries").members()) w.libraries.emplace_back(name, version.text());
  w.emulated_link = j.at("emulated_link").flag();
  w.emulated_compute = j.at("emulated_compute").flag();
  if (!j.has("devices")) return w;
  for (const JsonPart& device : j.at("devices").list()) {
    World::RankPlace& place = w.places.emplace_back();
    place.host = device.at("host").text();
    for (const auto& [name, value] : device.members()) {
      if (name != "rank" && name != "host") place.device.emplace_back(name, value.text());
    }
  }
  return w;
}

}  // namespace fsdpbench::app
