#include "engine/checkpoint_folder.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "trace/whole_file.h"

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

using nlohmann::json;
using plan::Group;

constexpr const char* kTopic = "checkpoint";
constexpr std::int64_t kFloat = sizeof(float);

json to_json(const SavedShard& shard) {
  return {{"steps", shard.steps}, {"bytes", shard.digest.bytes}, {"blocks", shard.digest.blocks}};
}

SavedShard from_json(const json& j) {
  return {j.at("steps").get<std::int64_t>(),
          {j.at("bytes").get<std::int64_t>(), j.at("blocks").get<std::vector<std::uint64_t>>()}};
}

/// Part of its shard that this rank writes: of all elements in order, as many as any other replica, but for one.
std::vector<Masters::Piece> share_of(std::vector<Masters::Piece> pieces, int replica, int replicas) {
  std::int64_t all = 0;
  for (const Masters::Piece& piece : pieces) all += piece.of.count;
  const std::int64_t begin = all * replica / replicas, end = all * (replica + 1) / replicas;
  std::vector<Masters::Piece> share;
  std::int64_t at = 0;
  for (Masters::Piece piece : pieces) {
    const std::int64_t first = std::max(begin, at) - at, last = std::min(end, at + piece.of.count) - at;
    at += piece.of.count;
    if (first >= last) continue;
    piece.of.begin += first;
    piece.of.count = last - first;
    piece.memory += first * kFloat;
    share.push_back(piece);
  }
  return share;
}

/// Pieces that a rank holds: those of the first shard write what all ranks hold.
std::vector<Masters::Piece> pieces_of(const Setup& setup, int rank, const Masters& masters) {
  const plan::Groups& groups = setup.plan.groups;
  return share_of(masters.pieces(states_of(setup.config.train.optimizer), groups.index(Group::shard, rank) == 0),
                  groups.index(Group::replicate, rank), setup.plan.mesh.replicate);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw OutputError(fmt::format("{}: cannot make the folder: {}.", folder.string(), error.message()));
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
  trace::sync_folder_of(step_folder(folder_, steps));  // the new step's name, before an older step goes
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
  for (std::size_t i = keep_; i < complete.size(); ++i) {
    if (complete[i].second < before) remove_checkpoint(step_folder(folder_, complete[i].second));
  }
}

void ThreadCheckpointBoard::report(int rank, const SavedShard& shard) {
  const std::lock_guard lock(mutex_);
  reports_[rank].push_back(shard);
}

std::optional<SavedShard> ThreadCheckpointBoard::next(int rank, bool /*wait*/) {
  const std::lock_guard lock(mutex_);
  std::vector<SavedShard>& reports = reports_[rank];
  if (reports.empty()) return std::nullopt;
  SavedShard first = std::move(reports.front());
  reports.erase(reports.begin());
  return first;
}

void ChannelCheckpointBoard::report(int rank, const SavedShard& shard) {
  if (rank == 0) return own_.report(rank, shard);
  channel_.send(0, kTopic, to_json(shard).dump());
}

std::optional<SavedShard> ChannelCheckpointBoard::next(int rank, bool wait) {
  if (rank == 0) return own_.next(rank, wait);
  const std::optional<std::string> message = wait ? channel_.receive(rank, kTopic) : channel_.poll(rank, kTopic);
  if (!message) return std::nullopt;
  return from_json(json::parse(*message));
}

CheckpointSaver::CheckpointSaver(const Setup& setup, int rank, Executor& executor, CheckpointBoard& board,
                                 std::optional<DataDigest> data, std::string training, TrainingPosition start)
    : setup_(setup),
      rank_(rank),
      executor_(executor),
      board_(board),
      data_(data),
      training_(std::move(training)),
      start_(start),
      folder_(setup.config.checkpoint.folder),
      pieces_(pieces_of(setup, rank, executor.masters())) {
  if (rank == 0) own_.emplace(folder_, setup.config.checkpoint.keep);
}

TrainingPosition CheckpointSaver::position(std::int64_t steps_of_run) const {
  const config::Train& train = setup_.config.train;
  return {start_.steps + steps_of_run,
          start_.samples + steps_of_run * train.accumulate * train.batch_per_rank * setup_.plan.mesh.data_ranks()};
}

void CheckpointSaver::after_step(std::int64_t steps_of_run) {
  const std::int64_t every = setup_.config.checkpoint.every;
  if (every > 0 && position(steps_of_run).steps % every == 0) save(steps_of_run);
  if (rank_ == 0) complete_ready(false);
}

void CheckpointSaver::finish(std::int64_t steps_of_run) {
  if (steps_of_run > saved_) save(steps_of_run);
}

std::vector<SavedCheckpoint> CheckpointSaver::complete() {
  complete_ready(true);
  own_->finish();
  return std::move(completed_);
}

void CheckpointSaver::save(std::int64_t steps_of_run) {
  saved_ = steps_of_run;
  const TrainingPosition at = position(steps_of_run);
  if (rank_ == 0) expected_.push_back(at);
  board_.report(rank_, write(at.steps));
}

SavedShard CheckpointSaver::write(std::int64_t steps) {
  const fs::path folder = step_folder(folder_, steps);
  make_folder(folder);
  remove_manifest(folder);  // of an earlier run: what it promised is about to change
  std::vector<SafeTensor> tensors;
  for (const Masters::Piece& piece : pieces_) tensors.push_back(tensor_of(piece.of, setup_.plan.shapes));
  SafetensorsWriter file(folder / shard_file_name(rank_, setup_.plan.mesh.ranks()), tensors, shard_metadata(steps));
  staging_.resize(Masters::kPieceNumel);
  for (const Masters::Piece& piece : pieces_) {
    for (std::int64_t done = 0; done < piece.of.count; done += Masters::kPieceNumel) {
      const auto some = std::span(staging_).first(std::min(Masters::kPieceNumel, piece.of.count - done));
      executor_.masters().download(piece, done, some);
      file.write(some);
    }
  }
  return {steps, file.finish()};
}

void CheckpointSaver::complete_ready(bool wait) {
  const int ranks = setup_.plan.mesh.ranks();
  while (!expected_.empty()) {
    for (int rank = static_cast<int>(reported_.size()); rank < ranks; ++rank) {
      std::optional<SavedShard> saved = board_.next(rank, wait);
      if (!saved) return;
      reported_.push_back(std::move(*saved));
    }
    const TrainingPosition position = expected_.front();
    const fs::path folder = step_folder(folder_, position.steps);
    SavedCheckpoint done{folder.string(), position.steps, 0};
    Manifest manifest{position, setup_.config.train.optimizer, setup_.plan.shapes.parameters, {}, data_, training_};
    for (int rank = 0; rank < ranks; ++rank) {
      SavedShard& saved = reported_[rank];
      done.bytes += saved.digest.bytes;
      manifest.files.push_back({shard_file_name(rank, ranks), std::move(saved.digest)});
    }
    own_->complete(std::move(manifest));
    completed_.push_back(std::move(done));
    expected_.erase(expected_.begin());
    reported_.clear();
  }
}

}  // namespace fsdpbench::engine
