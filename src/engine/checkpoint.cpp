#include "engine/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/read_input.h"
#include "config/fields.h"
#include "trace/whole_file.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFormat = "fsdpbench checkpoint";
constexpr int kVersion = 6;  // the one that is written, and the only one that is read
constexpr std::string_view kStepPrefix = "step-";

ConfigError error_of(const fs::path& path, const std::string& what) {
  return ConfigError(fmt::format("{}: {}; expected a checkpoint that `run` saved.", path.string(), what));
}

bool has_manifest(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kManifest, error);
}

/// Steps of the checkpoints and of what looks like one in `folder`, the most first; whether they are complete.
std::map<std::int64_t, bool, std::greater<>> steps_in(const fs::path& folder) {
  std::map<std::int64_t, bool, std::greater<>> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::int64_t number{};
    if (!name.starts_with(kStepPrefix)) continue;
    std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), number);
    if (entry->path() == step_folder(folder, number)) steps[number] = has_manifest(entry->path());
  }
  return steps;
}

/// Removes a checkpoint, or part of one. Its manifest goes first: what is left of it then is no checkpoint.
void remove_step(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / kManifest, error);
  fs::remove_all(folder, error);
}

/// Keys on which the bytes of a rank depend, and which must be the same for training to go on as if it had never
/// stopped, with their values.
std::map<std::string, std::string> plan_keys(const config::RunConfig& config) {
  constexpr std::array<std::string_view, 5> kOf{"model", "mesh", "fsdp", "data.path", "train.optimizer"};
  std::map<std::string, std::string> keys;
  for (const config::Field& field : config::fields()) {
    if (std::ranges::find(kOf, field.table) == kOf.end() && std::ranges::find(kOf, field.name()) == kOf.end()) continue;
    keys[field.name()] = config::to_toml(field.write(config));
  }
  return keys;
}

/// The file with a rank's state. Replicas have one, which the first of them writes.
std::string file_name(const plan::Plan& plan, int rank) {
  return fmt::format("rank-{:05}.bin", plan.groups.members(plan::Group::replicate, rank)[0]);
}

}  // namespace

fs::path step_folder(const fs::path& folder, std::int64_t steps) {
  return folder / fmt::format("{}{:09}", kStepPrefix, steps);
}

std::optional<fs::path> newest_checkpoint(const fs::path& given) {
  if (has_manifest(given)) return given;
  for (const auto& [steps, complete] : steps_in(given)) {
    if (complete) return step_folder(given, steps);
  }
  return std::nullopt;
}

void check_one_training(const fs::path& folder, const std::optional<fs::path>& resume) {
  const std::optional<fs::path> newest = newest_checkpoint(folder);
  if (!newest || newest == resume) return;
  throw ConfigError(
      fmt::format("{}: a training has been saved there, and what this one saves would take its place; expected "
                  "--resume {} to go on with it, or another checkpoint.folder.",
                  newest->string(), folder.string()));
}

OwnCheckpoints::OwnCheckpoints(const fs::path& folder) {
  trace::make_folder(folder);
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0) {
    throw OutputError(
        fmt::format("{}: this user may not write there; choose another checkpoint.folder.", folder.string()));
  }
  lock_ = open_locked_folder(folder, "another training is being saved there; choose another checkpoint.folder.");
}

OwnCheckpoints::~OwnCheckpoints() { ::close(lock_); }

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder) {
  constexpr std::int64_t kMostOfAManifest = std::int64_t{1} << 28;  // a million ranks
  const fs::path path = folder / kManifest;
  const json content =
      json::parse(read_input(path, kMostOfAManifest, "expected a complete checkpoint"), nullptr, false);
  if (!content.is_object() || content.value("format", json()) != kFormat)
    throw error_of(path, "is no manifest of a checkpoint");
  if (const json version = content.value("version", json()); version != kVersion) {
    throw ConfigError(
        fmt::format("{}: has version {}, and this program reads version {}.", path.string(), version.dump(), kVersion));
  }
  if (content.value("digest", json()) != json_digest(content)) {
    throw error_of(path, "is not as it was saved: its digest is another");
  }
  try {
    position_ = {content.at("steps").get<std::int64_t>(), content.at("samples").get<std::int64_t>()};
    plan_ = content.at("plan").get<std::map<std::string, std::string>>();
    for (const auto& [name, file] : content.at("files").items()) {
      files_[name] = {file.at("bytes").get<std::int64_t>(), file.at("xxh3_128").get<std::string>()};
    }
  } catch (const json::exception&) {
    throw error_of(path, "is damaged: a part is missing, or no such thing");
  }
}

void Checkpoint::check(const config::RunConfig& config) const {
  for (const auto& [key, value] : plan_keys(config)) {
    const auto saved = plan_.find(key);
    if (saved != plan_.end() && saved->second == value) continue;
    throw ConfigError(fmt::format(
        "{}: was saved with {} = {}, and this run has {}; expected the model, mesh, FSDP settings, data.path and "
        "train.optimizer that it was saved with.",
        folder_.string(), key, saved == plan_.end() ? "nothing" : saved->second, value));
  }
  for (const auto& [name, file] : files_) {
    std::error_code error;
    const fs::path path = folder_ / name;
    if (!fs::is_regular_file(path, error)) throw error_of(path, "is missing");
    if (const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error)); bytes != file.bytes) {
      throw error_of(path, fmt::format("has {} bytes and was saved with {}", bytes, file.bytes));
    }
  }
}

void Checkpoint::load(const plan::Plan& plan, int rank, Masters& masters) const {
  const std::string name = file_name(plan, rank);
  const fs::path path = folder_ / name;
  const auto saved = files_.find(name);
  if (saved == files_.end()) throw error_of(path, "is not in the manifest");
  std::ifstream file(path, std::ios::binary);
  ParametersDigest digest;
  masters.upload([&](std::span<float> values) {
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
    if (!file) throw error_of(path, "cannot be read, or is too short");
    digest.add(values);
  });
  std::string end(ParametersDigest::kText, '\0');
  file.read(end.data(), std::ssize(end));
  if (digest.bits() != saved->second.digest || end != saved->second.digest) {
    throw error_of(path, "is damaged: its bytes are not those that were saved");
  }
}

TrainingPosition CheckpointSaver::position(std::int64_t steps_of_run) const {
  const config::Train& train = setup_.config.train;
  return {start_.steps + steps_of_run,
          start_.samples + steps_of_run * train.accumulate * train.batch_per_rank * setup_.plan.mesh.data_ranks()};
}

void CheckpointSaver::after_step(std::int64_t steps_of_run) {
  const std::int64_t every = setup_.config.checkpoint.every;
  if (every > 0 && position(steps_of_run).steps % every == 0) save(steps_of_run);
}

void CheckpointSaver::finish(std::int64_t steps_of_run) {
  if (steps_of_run > saved_) save(steps_of_run);
}

void CheckpointSaver::save(std::int64_t steps_of_run) {
  const std::int64_t began_ns = now_ns();
  const TrainingPosition at = position(steps_of_run);
  const fs::path folder = step_folder(setup_.config.checkpoint.folder, at.steps);
  if (context_.rank == 0) remove_step(folder);  // a killed run may have left it
  context_.world.barrier();
  trace::make_folder(folder);
  write_state(folder);
  context_.world.barrier();
  if (context_.rank == 0) {
    const std::int64_t bytes = write_manifest(folder, at);
    trace::sync_folder_of(folder);  // the new step's name, before an older step goes
    remove_old(at.steps);
    completed_.push_back({folder.string(), at.steps, bytes, static_cast<double>(now_ns() - began_ns) * 1e-6});
  }
  context_.world.barrier();
  saved_ = steps_of_run;
}

void CheckpointSaver::write_state(const fs::path& folder) const {
  if (setup_.plan.groups.index(plan::Group::replicate, context_.rank) != 0) return;
  trace::WholeFile file((folder / file_name(setup_.plan, context_.rank)).string(), trace::WholeFile::Fate::synced);
  ParametersDigest digest;
  masters_.download([&](std::span<const float> values) {
    digest.add(values);
    file.write({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  });
  file.write(digest.bits());
  file.commit();
}

std::int64_t CheckpointSaver::write_manifest(const fs::path& folder, const TrainingPosition& at) const {
  json files = json::object();
  std::int64_t all = 0;
  for (int rank = 0; rank < setup_.plan.mesh.ranks(); ++rank) {
    const std::string name = file_name(setup_.plan, rank);
    if (files.contains(name)) continue;
    std::ifstream file(folder / name, std::ios::binary);
    std::string digest(ParametersDigest::kText, '\0');
    file.seekg(-ParametersDigest::kText, std::ios::end).read(digest.data(), ParametersDigest::kText);
    const auto bytes = static_cast<std::int64_t>(file.tellg());
    if (!file)
      throw OutputError(fmt::format("{}: is not there; all ranks must see one folder.", (folder / name).string()));
    files[name] = {{"bytes", bytes}, {"xxh3_128", digest}};
    all += bytes;
  }
  json content{{"format", kFormat},
               {"version", kVersion},
               {"steps", at.steps},
               {"samples", at.samples},
               {"plan", plan_keys(setup_.config)},
               {"files", std::move(files)}};
  content["digest"] = json_digest(content);
  trace::WholeFile file((folder / kManifest).string(), trace::WholeFile::Fate::synced);
  file.write(content.dump(1) + '\n');
  file.commit();
  return all;
}

void CheckpointSaver::remove_old(std::int64_t steps) const {
  const fs::path& folder = setup_.config.checkpoint.folder;
  std::int64_t kept = 0;
  for (const auto& [number, complete] : steps_in(folder)) {
    if (number > steps || (complete && ++kept <= setup_.config.checkpoint.keep)) continue;
    remove_step(step_folder(folder, number));
  }
}

}  // namespace fsdpbench::engine
