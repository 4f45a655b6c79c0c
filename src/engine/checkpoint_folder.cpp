#include "engine/checkpoint_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_lock.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;

/// Steps of the checkpoints and of what looks like one in `folder`; whether they have a manifest.
std::map<std::int64_t, bool> steps_in(const fs::path& folder) {
  std::map<std::int64_t, bool> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::optional<std::int64_t> number = steps_in_name(entry->path());
    if (number && entry->path() == step_folder(folder, *number)) steps[*number] = has_manifest(entry->path());
  }
  return steps;
}

/// The manifests in `folder`, by steps.
std::map<std::int64_t, Manifest> manifests_in(const fs::path& folder) {
  std::map<std::int64_t, Manifest> manifests;
  for (const auto& [steps, complete] : steps_in(folder)) {
    if (complete) manifests[steps] = read_manifest(step_folder(folder, steps));
  }
  return manifests;
}

void remove_checkpoint(const fs::path& folder) {
  remove_manifest(folder);  // first: half a checkpoint is none
  std::error_code error;
  fs::remove_all(folder, error);
}

/// Also what a killed run has left of one while it was written (trace::WholeFile).
bool is_shard_name(std::string_view name) {
  constexpr std::string_view kShard = "shard-", kFile = ".safetensors";
  if (name.starts_with(kShard)) return name.ends_with(kFile);
  return name.starts_with('.') && name.substr(1).starts_with(kShard) && name.find(kFile) != name.npos;
}

/// Removes shards in `folder` that its manifest does not name: an earlier save on another number of ranks left them.
void remove_other_shards(const fs::path& folder, const Manifest& manifest) {
  std::error_code error;
  std::vector<fs::path> others;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    const std::string name = file.path().filename().string();
    if (is_shard_name(name) && std::ranges::find(manifest.files, name, &ShardFile::name) == manifest.files.end()) {
      others.push_back(file.path());
    }
  }
  for (const fs::path& file : others) fs::remove(file, error);
}

}  // namespace

std::optional<fs::path> newest_checkpoint(const fs::path& given) {
  if (has_manifest(given)) return given;
  std::optional<std::pair<std::int64_t, std::int64_t>> newest;  // saved, steps: versions before 4 have the steps alone
  for (const auto& [steps, manifest] : manifests_in(given)) {
    newest = std::max(newest, std::optional(std::pair(manifest.saved, steps)));
  }
  if (!newest) return std::nullopt;
  return step_folder(given, newest->second);
}

std::string new_training() {
  std::random_device system;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", system(), system(), system(), system());
}

void check_one_training(const fs::path& folder, const std::optional<fs::path>& resume) {
  std::optional<std::string> ours;
  if (resume) ours = read_manifest(*resume).training;
  for (const auto& [steps, manifest] : manifests_in(folder)) {
    // Versions before 4 did not say whose they are; who goes on with one that is here knows.
    const bool unknown = manifest.training.empty() || ours == "";
    if (ours && (manifest.training == ours || (unknown && resume->parent_path() == folder))) continue;
    throw ConfigError(
        fmt::format("{}: is of another training, and what this one saves would take its place; expected --resume {} to "
                    "go on with it, or another checkpoint.folder.",
                    step_folder(folder, steps).string(), folder.string()));
  }
}

OwnCheckpoints::OwnCheckpoints(const fs::path& folder) {
  std::error_code error;
  for (fs::path missing = folder; !missing.empty() && !fs::exists(missing, error); missing = missing.parent_path()) {
    made_.push_back(missing);
  }
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    throw OutputError(fmt::format("{}: cannot make the folder: {}.", folder.string(),
                                  error ? error.message() : "there is a file of that name"));
  }
  lock_ = open_locked_folder(folder, "another training is being saved there; choose another checkpoint.folder.");
}

OwnCheckpoints::~OwnCheckpoints() {
  std::error_code error;
  for (const fs::path& folder : made_) fs::remove(folder, error);  // not if something is in it
  ::close(lock_);
}

CheckpointFolder::CheckpointFolder(fs::path folder, std::int64_t keep) : folder_(std::move(folder)), keep_(keep) {
  for (const auto& [steps, manifest] : manifests_in(folder_)) {
    age_[steps] = manifest.saved;
    last_ = std::max(last_, manifest.saved);
  }
}

void CheckpointFolder::complete(Manifest manifest) {
  const std::int64_t steps = manifest.position.steps;
  manifest.saved = ++last_;
  write_manifest(step_folder(folder_, steps), manifest);
  remove_other_shards(step_folder(folder_, steps), manifest);
  age_[steps] = manifest.saved;
  remove_old(steps);
}

void CheckpointFolder::finish() { remove_old(std::numeric_limits<std::int64_t>::max()); }

void CheckpointFolder::remove_old(std::int64_t before) {
  std::vector<std::pair<std::int64_t, std::int64_t>> complete;  // saved, steps
  for (const auto& [steps, has] : steps_in(folder_)) {
    const auto age = age_.find(steps);
    if (has && age != age_.end()) complete.emplace_back(age->second, steps);  // else somebody has put it there
    if (!has && steps < before) remove_checkpoint(step_folder(folder_, steps));
  }
  std::ranges::sort(complete, std::greater());
  for (std::size_t i = static_cast<std::size_t>(keep_); i < complete.size(); ++i) {
    if (complete[i].second < before) remove_checkpoint(step_folder(folder_, complete[i].second));
  }
}

}  // namespace fsdpbench::engine
