#include "engine/checkpoint_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using plan::Group;

constexpr const char* kTopic = "checkpoint";
constexpr std::int64_t kPieceNumel = Masters::kPieceBytes / static_cast<std::int64_t>(sizeof(float));

json to_json(const SavedShard& shard) {
  return {{"steps", shard.steps},
          {"bytes", shard.digest.bytes},
          {"blocks", shard.digest.blocks},
          {"stall_ns", shard.stall_ns},
          {"write_ns", shard.write_ns}};
}

SavedShard from_json(const json& j) {
  return {j.at("steps").get<std::int64_t>(),
          {j.at("bytes").get<std::int64_t>(), j.at("blocks").get<std::vector<std::uint64_t>>()},
          j.at("stall_ns").get<std::int64_t>(),
          j.at("write_ns").get<std::int64_t>()};
}

/// Whether this rank writes: of equal shards the first.
bool writes(const plan::Plan& plan, int rank) { return plan.groups.index(Group::replicate, rank) == 0; }

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw OutputError(fmt::format("{}: cannot make the folder: {}.", folder.string(), error.message()));
}

}  // namespace

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

CheckpointSaver::CheckpointSaver(const Setup& setup, int rank, const Masters& masters, CheckpointBoard& board,
                                 TrainingPosition start)
    : setup_(setup),
      rank_(rank),
      masters_(masters),
      board_(board),
      start_(start),
      folder_(setup.config.checkpoint.folder) {}

CheckpointSaver::~CheckpointSaver() {
  if (writer_.joinable()) writer_.join();
}

std::int64_t CheckpointSaver::host_bytes(const config::RunConfig& config, const plan::Plan& plan) {
  if (config.checkpoint.folder.empty()) return 0;
  if (!config.checkpoint.asynchronous) return Masters::kPieceBytes;
  return ceil_div(file_bytes(config, plan), plan.mesh.shard);
}

std::int64_t CheckpointSaver::file_bytes(const config::RunConfig& config, const plan::Plan& plan) {
  constexpr std::int64_t kNames = 256;  // of a piece in the header, and its block in the manifest
  const auto states = static_cast<std::int64_t>(states_of(config.train.optimizer).size());
  const auto pieces = static_cast<std::int64_t>(plan.shapes.parameters.size()) * plan.mesh.shard;
  return states * (plan.shapes.parameter_count() * static_cast<std::int64_t>(sizeof(float)) + pieces * kNames);
}

TrainingPosition CheckpointSaver::position(std::int64_t steps_of_run) const {
  const config::Train& train = setup_.config.train;
  return {start_.steps + steps_of_run,
          start_.samples + steps_of_run * train.accumulate * train.batch_per_rank * setup_.plan.mesh.ranks()};
}

void CheckpointSaver::after_step(std::int64_t steps_of_run) {
  const std::int64_t every = setup_.config.checkpoint.every;
  if (every > 0 && position(steps_of_run).steps % every == 0) save(steps_of_run);
  if (rank_ == 0) complete_ready(false);
}

void CheckpointSaver::finish(std::int64_t steps_of_run) {
  if (steps_of_run > saved_) save(steps_of_run);
  join();
}

std::vector<SavedCheckpoint> CheckpointSaver::complete() {
  complete_ready(true);
  return std::move(completed_);
}

void CheckpointSaver::join() {
  if (writer_.joinable()) writer_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CheckpointSaver::save(std::int64_t steps_of_run) {
  saved_ = steps_of_run;
  const std::int64_t steps = position(steps_of_run).steps;
  if (rank_ == 0) expected_.push_back(position(steps_of_run));
  if (!writes(setup_.plan, rank_)) return;
  const std::int64_t begin = now_ns();
  join();  // the last one: its copy is still in use
  const std::vector<Masters::Piece> pieces =
      masters_.pieces(states_of(setup_.config.train.optimizer), setup_.plan.groups.index(Group::shard, rank_) == 0);
  if (!setup_.config.checkpoint.asynchronous) {
    SavedShard saved = write(steps, pieces, [this](const Masters::Piece& piece, const Take& take) {
      staging_.resize(static_cast<std::size_t>(std::min(kPieceNumel, piece.of.count)));
      for (std::int64_t done = 0; done < piece.of.count; done += kPieceNumel) {
        const auto some =
            std::span(staging_).first(static_cast<std::size_t>(std::min(kPieceNumel, piece.of.count - done)));
        masters_.download(piece, done, some);
        take(some);
      }
    });
    saved.stall_ns = now_ns() - begin;
    board_.report(rank_, saved);
    return;
  }
  copy_.clear();
  for (const Masters::Piece& piece : pieces) {
    const std::size_t at = copy_.size();
    copy_.resize(at + static_cast<std::size_t>(piece.of.count));
    masters_.download(piece, 0, std::span(copy_).subspan(at));
  }
  const std::int64_t stall = now_ns() - begin;
  writer_ = std::thread([this, steps, stall, pieces] {
    try {
      std::size_t at = 0;
      SavedShard saved = write(steps, pieces, [&](const Masters::Piece& piece, const Take& take) {
        const auto count = static_cast<std::size_t>(piece.of.count);
        take(std::span(copy_).subspan(at, count));
        at += count;
      });
      saved.stall_ns = stall;
      board_.report(rank_, saved);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

SavedShard CheckpointSaver::write(std::int64_t steps, const std::vector<Masters::Piece>& pieces,
                                  const ShowPiece& show) const {
  const std::int64_t begin = now_ns();
  const fs::path folder = step_folder(folder_, steps);
  make_folder(folder);
  remove_manifest(folder);  // of an earlier run: what it promised is about to change
  std::vector<SafeTensor> tensors;
  for (const Masters::Piece& piece : pieces) tensors.push_back(tensor_of(piece.of, setup_.plan.shapes));
  const std::string name = shard_file_name(setup_.plan.groups.index(Group::shard, rank_), setup_.plan.mesh.shard);
  SafetensorsWriter file(folder / name, tensors,
                         {{"format", "fsdpbench checkpoint"}, {"steps", std::to_string(steps)}});
  for (const Masters::Piece& piece : pieces) {
    show(piece, [&](std::span<const float> values) { file.write(values); });
  }
  FileDigest digest = file.finish();
  return {steps, std::move(digest), 0, now_ns() - begin};
}

void CheckpointSaver::complete_ready(bool wait) {
  const int shards = setup_.plan.mesh.shard;
  while (!expected_.empty()) {
    for (int shard = static_cast<int>(reported_.size()); shard < shards; ++shard) {
      std::optional<SavedShard> saved = board_.next(shard, wait);
      if (!saved) return;
      reported_.push_back(std::move(*saved));
    }
    const TrainingPosition position = expected_.front();
    const fs::path folder = step_folder(folder_, position.steps);
    SavedCheckpoint done{folder.string(), position.steps, 0, 0, 0};
    Manifest manifest{position, setup_.config.train.optimizer, setup_.plan.shapes.parameters, {}};
    for (int shard = 0; shard < shards; ++shard) {
      SavedShard& saved = reported_[static_cast<std::size_t>(shard)];
      done.bytes += saved.digest.bytes;
      done.stall_ns = std::max(done.stall_ns, saved.stall_ns);
      done.write_ns = std::max(done.write_ns, saved.write_ns);
      manifest.files.push_back({shard_file_name(shard, shards), std::move(saved.digest)});
    }
    write_manifest(folder, manifest);
    remove_old_checkpoints(folder_, static_cast<int>(setup_.config.checkpoint.keep));
    completed_.push_back(std::move(done));
    expected_.erase(expected_.begin());
    reported_.clear();
  }
}

}  // namespace fsdpbench::engine
