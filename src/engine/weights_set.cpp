#include "engine/weights_set.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/read_input.h"
#include "trace/whole_file.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

[[noreturn]] void fail_index(const fs::path& path, const std::string& what) {
  throw ConfigError(
      fmt::format("{}: {}; expected an index with \"weight_map\", the file of each tensor.", path.string(), what));
}

/// The file or index that is meant by `path`.
fs::path file_at(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {kIndex, kSingle}) {
    if (fs::exists(path / name, error)) return path / name;
  }
  throw ConfigError(
      fmt::format("{}: has neither {} nor {}; expected one, or the name of a file.", path.string(), kIndex, kSingle));
}

}  // namespace

WeightsReader::WeightsReader(const fs::path& path) {
  const fs::path file = file_at(path);
  if (file.extension() == ".json") {
    read_index(file);
  } else {
    read_file(file);
  }
}

void WeightsReader::read_file(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsReader>(path));
  for (const SafeTensor& tensor : files_.back()->tensors()) {
    if (tensors_.try_emplace(tensor.name, Tensor{files_.back().get(), &tensor}).second) continue;
    throw ConfigError(
        fmt::format("{}: holds {}, which is in two files of the set; expected it in one.", path.string(), tensor.name));
  }
}

void WeightsReader::read_index(const fs::path& path) {
  const std::string text = read_input(path, kMostOfAResult, "expected the index of a set of safetensors files");
  const json index = json::parse(text, nullptr, false);
  if (!index.is_object() || !index.value("weight_map", json()).is_object()) fail_index(path, "is none");
  const json& map = index.at("weight_map");
  std::map<std::string, const SafetensorsReader*> files;  // by name
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) fail_index(path, fmt::format("names no file for {}", tensor));
    const auto name = file.get<std::string>();
    // A name from a file may not lead out of the folder.
    if (fs::path(name).filename() != name) fail_index(path, fmt::format("has {} in a file of another folder", tensor));
    files[name] = nullptr;
  }
  if (files.empty()) fail_index(path, "names no tensor");
  for (auto& [name, file] : files) {
    std::error_code error;
    if (!fs::exists(path.parent_path() / name, error))
      fail_index(path, fmt::format("names {}, which is missing", name));
    read_file(path.parent_path() / name);
    file = files_.back().get();
  }
  for (const auto& [tensor, file] : map.items()) {
    const auto found = tensors_.find(tensor);
    if (found != tensors_.end() && found->second.file == files.at(file.get<std::string>())) continue;
    fail_index(path, fmt::format("says that {} holds {}, which it does not", file.get<std::string>(), tensor));
  }
}

WeightsWriter::WeightsWriter(const fs::path& path, const std::vector<SafeTensor>& tensors,
                             std::map<std::string, std::string> metadata, std::int64_t most_bytes)
    : path_(path), metadata_(std::move(metadata)), split_(most_bytes > 0) {
  std::int64_t bytes = 0;
  for (const SafeTensor& tensor : tensors) {
    if (parts_.empty() || (split_ && bytes + tensor.bytes() > most_bytes)) {
      parts_.emplace_back();
      bytes = 0;
    }
    parts_.back().tensors.push_back(tensor);
    parts_.back().numel += tensor.numel();
    bytes += tensor.bytes();
  }
  if (split_) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) throw OutputError(fmt::format("{}: cannot make the folder: {}.", path_.string(), error.message()));
    fs::remove(path_ / kIndex, error);  // of what was there before: it is about to change
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].path = split_ ? path_ / fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts_.size()) : path_;
  }
  begin_part();
}

void WeightsWriter::begin_part() {
  writer_ = std::make_unique<SafetensorsWriter>(parts_[part_].path, parts_[part_].tensors, metadata_);
  left_ = parts_[part_].numel;
}

void WeightsWriter::end_part() { bytes_ += writer_->finish().bytes; }

void WeightsWriter::write(std::span<const float> values) {
  while (left_ == 0) {
    end_part();
    ++part_;
    begin_part();
  }
  writer_->write(values);
  left_ -= std::ssize(values);
}

std::int64_t WeightsWriter::finish() {
  end_part();
  if (split_) write_index();
  return bytes_;
}

void WeightsWriter::write_index() const {
  json map = json::object();
  std::int64_t bytes = 0;
  for (const Part& part : parts_) {
    for (const SafeTensor& tensor : part.tensors) {
      map[tensor.name] = part.path.filename().string();
      bytes += tensor.bytes();
    }
  }
  trace::WholeFile file((path_ / kIndex).string(), trace::WholeFile::Fate::synced);
  file.write(json{{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}}.dump(2) + '\n');
  file.commit();
}

}  // namespace fsdpbench::engine
