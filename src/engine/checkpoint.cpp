#include "engine/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/digest.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "base/read_input.h"
#include "trace/whole_file.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFormat = "fsdpbench checkpoint";
constexpr std::int64_t kMostOfAManifest = std::int64_t{1} << 30;  // a digest of 24 bytes a MiB of shards: some 40 TiB
constexpr const char* kShardSteps = "steps";                      // in a shard's metadata
constexpr std::string_view kStepPrefix = "step-";
constexpr EnumNames<State> kStates{"parameter", "first_moment", "second_moment"};

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw ConfigError(fmt::format("{}: {}; expected a checkpoint that `run` saved.", path.string(), what));
}

std::uint64_t digest_of(const json& given) {
  const auto text = given.get<std::string>();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) throw std::invalid_argument("no digest");
  return value;
}

json shard_json(const ShardFile& file) {
  json blocks = json::array();
  for (const std::uint64_t block : file.digest.blocks) blocks.push_back(fmt::format("{:016x}", block));
  return {{"name", file.name}, {"bytes", file.digest.bytes}, {"xxh3_64_of_1_mib", std::move(blocks)}};
}

ShardFile shard_of(const json& given) {
  ShardFile file{given.at("name").get<std::string>(), {given.at("bytes").get<std::int64_t>(), {}}};
  for (const json& block : given.at("xxh3_64_of_1_mib")) {
    file.digest.blocks.push_back(digest_of(block));
  }
  return file;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void check_model(const fs::path& path, const std::vector<plan::ParameterShape>& all_saved,
                 const std::vector<plan::ParameterShape>& all_wanted) {
  for (std::size_t i = 0; i < std::min(all_saved.size(), all_wanted.size()); ++i) {
    const plan::ParameterShape &saved = all_saved[i], &wanted = all_wanted[i];
    if (saved.name == wanted.name && saved.whole_shape() == wanted.whole_shape()) continue;
    throw ConfigError(fmt::format("{}: is of another model: its parameter {} is {} {}, this model's {} {}.",
                                  path.string(), i, saved.name, shape_text(saved.whole_shape()), wanted.name,
                                  shape_text(wanted.whole_shape())));
  }
  if (all_saved.size() != all_wanted.size()) {
    throw ConfigError(fmt::format("{}: is of another model: it has {} parameters, this model {}.", path.string(),
                                  all_saved.size(), all_wanted.size()));
  }
}

/// Name in a file of a parameter, or a part of it.
std::string part_name(const plan::ParameterShape& shape, int part) {
  return shape.parts == 1 ? shape.name : fmt::format("{}/{}-of-{}", shape.name, part, shape.parts);
}

json parameter_json(const plan::ParameterShape& shape) {
  json j{{"name", shape.name}, {"shape", shape.whole_shape()}};
  if (shape.parts > 1) j.update({{"parts", shape.parts}, {"split", shape.split}});
  for (const plan::JoinedRows& one : shape.joined) {
    j["joined"].push_back({{"name", one.name}, {"rows", one.rows * shape.parts}});
  }
  return j;
}

/// The rows of each part of a joined parameter: they are all of its rows, and `parts` divides them.
std::vector<plan::JoinedRows> joined_of(const json& given, const plan::ParameterShape& whole, std::int64_t parts) {
  std::vector<plan::JoinedRows> joined;
  std::int64_t left = whole.shape.empty() ? 0 : whole.rows();
  for (const json& one : given) {
    const auto rows = one.at("rows").get<std::int64_t>();
    if (rows <= 0 || rows > left || rows % parts != 0) throw std::invalid_argument("no rows of " + whole.name);
    joined.push_back({one.at("name").get<std::string>(), rows / parts});
    left -= rows;
  }
  if (left != 0) throw std::invalid_argument("no rows of " + whole.name);
  return joined;
}

plan::ParameterShape parameter_of(const json& given) {
  plan::ParameterShape shape;
  shape.name = given.at("name").get<std::string>();
  shape.shape = given.at("shape").get<std::vector<std::int64_t>>();
  const bool joins = given.contains("joined");
  if (!given.contains("parts")) {
    if (joins) shape.joined = joined_of(given.at("joined"), shape, 1);
    return shape;
  }
  const auto parts = given.at("parts").get<std::int64_t>(), split = given.at("split").get<std::int64_t>();
  constexpr std::int64_t kMostParts = 4096;  // of mesh.tensor
  const bool positive = std::ranges::all_of(shape.shape, [](std::int64_t size) { return size > 0; });
  if (parts < 2 || parts > kMostParts || split < 0 || split >= std::ssize(shape.shape) || !positive ||
      shape.shape[split] % parts != 0) {
    throw std::invalid_argument("no parts of " + shape.name);
  }
  if (joins && split != 0) throw std::invalid_argument("no rows of " + shape.name);
  if (joins) shape.joined = joined_of(given.at("joined"), shape, parts);
  shape.shape[split] /= parts;
  shape.parts = static_cast<int>(parts);
  shape.split = static_cast<int>(split);
  return shape;
}

}  // namespace

std::string_view to_string(State state) { return kStates[state]; }

std::span<const State> states_of(config::Optimizer optimizer) {
  return std::span(kEnumerators<State>).first(optimizer == config::Optimizer::adamw ? 3 : 1);
}

std::map<std::string, std::string> shard_metadata(std::int64_t steps) {
  return {{"format", kFormat}, {kShardSteps, std::to_string(steps)}};
}

std::string shard_file_name(int shard, int shards) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", shard, shards);
}

SafeTensor tensor_of(const StatePiece& piece, const plan::ModelShapes& shapes) {
  const std::string name = part_name(shapes.parameters[piece.parameter], piece.part);
  return {fmt::format("{}/{}/{}", to_string(piece.state), name, piece.begin), {piece.count}, 0};
}

fs::path step_folder(const fs::path& folder, std::int64_t steps) {
  return folder / fmt::format("{}{:09}", kStepPrefix, steps);
}

std::optional<std::int64_t> steps_in_name(const fs::path& folder) {
  const std::string name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  return number_in(std::string_view(name).substr(kStepPrefix.size()));
}

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  json parameters = json::array(), files = json::array();
  for (const plan::ParameterShape& p : manifest.parameters) parameters.push_back(parameter_json(p));
  for (const ShardFile& file : manifest.files) files.push_back(shard_json(file));
  json content{{"format", kFormat},
               {"version", Manifest::kVersion},
               {"steps", manifest.position.steps},
               {"samples", manifest.position.samples},
               {"training", manifest.training},
               {"saved", manifest.saved},
               {"optimizer", manifest.optimizer == config::Optimizer::adamw ? "adamw" : "sgd"},
               {"parameters", std::move(parameters)},
               {"files", std::move(files)}};
  if (manifest.data) {
    content["data"] = {{"bytes", manifest.data->bytes}, {"xxh3_64", fmt::format("{:016x}", manifest.data->xxh3_64)}};
  }
  content["digest"] = json_digest(content);
  trace::WholeFile file((folder / kManifest).string(), trace::WholeFile::Fate::synced);
  file.write(content.dump(1) + '\n');
  file.commit();
}

void remove_manifest(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / kManifest, error);
}

bool has_manifest(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kManifest, error);
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    fail(folder, "has no manifest.json: it is no checkpoint, or was never completed");
  const std::string text = read_input(path, kMostOfAManifest, "expected the manifest of a checkpoint");
  const json content = json::parse(text, nullptr, false);
  if (!content.is_object() || content.value("format", json()) != kFormat) fail(path, "is no manifest of a checkpoint");
  const json version = content.value("version", json());
  if (!version.is_number_integer() || version != Manifest::kVersion) {
    throw ConfigError(fmt::format("{}: has version {}, and this program reads version {}.", path.string(),
                                  version.dump(), Manifest::kVersion));
  }
  try {
    Manifest manifest;
    manifest.training = content.at("training").get<std::string>();
    manifest.saved = content.at("saved").get<std::int64_t>();
    if (content.at("digest") != json_digest(content)) fail(path, "is not as it was saved: its digest is another");
    manifest.position = {content.at("steps").get<std::int64_t>(), content.at("samples").get<std::int64_t>()};
    const auto optimizer = content.at("optimizer").get<std::string>();
    if (optimizer != "adamw" && optimizer != "sgd") throw std::invalid_argument("no optimizer");
    manifest.optimizer = optimizer == "adamw" ? config::Optimizer::adamw : config::Optimizer::sgd;
    for (const json& parameter : content.at("parameters")) manifest.parameters.push_back(parameter_of(parameter));
    if (manifest.parameters.empty()) throw std::invalid_argument("no parameters");
    for (const json& file : content.at("files")) manifest.files.push_back(shard_of(file));
    if (const auto data = content.find("data"); data != content.end()) {
      manifest.data = {data->at("bytes").get<std::int64_t>(), digest_of(data->at("xxh3_64"))};
    }
    if (manifest.position.steps < 0 || manifest.position.samples < 0) throw std::invalid_argument("no position");
    if (const auto named = steps_in_name(folder); named && *named != manifest.position.steps) {
      fail(folder,
           fmt::format("is of a training after {} steps, and its name says {}", manifest.position.steps, *named));
    }
    return manifest;
  } catch (const json::exception&) {
    fail(path, "is damaged: a part is missing, or no such thing");
  } catch (const std::invalid_argument& what) {
    fail(path, fmt::format("is damaged: {} can be read there", what.what()));
  }
}

Checkpoint::Checkpoint(const fs::path& folder, const plan::ModelShapes& shapes, config::Optimizer optimizer)
    : folder_(folder), manifest_(read_manifest(folder)) {
  check_model(folder_ / kManifest, manifest_.parameters, shapes.parameters);
  if (optimizer == config::Optimizer::adamw && manifest_.optimizer == config::Optimizer::sgd) {
    throw ConfigError(
        fmt::format("{}: was saved with train.optimizer = \"sgd\" and has no moments for \"adamw\"; expected \"sgd\".",
                    folder.string()));
  }
  open(optimizer);
}

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder), manifest_(read_manifest(folder)) {
  open(manifest_.optimizer);
}

void Checkpoint::open(config::Optimizer optimizer) {
  for (const ShardFile& file : manifest_.files) {
    // A name from a file may not lead out of the folder.
    if (fs::path(file.name).filename() != file.name) fail(folder_ / kManifest, "names a file of another folder");
    std::error_code error;
    if (!fs::exists(folder_ / file.name, error)) fail(folder_ / file.name, "is missing");
    files_.push_back(std::make_unique<SafetensorsReader>(folder_ / file.name, file.digest));
    const auto& says = files_.back()->metadata();
    const auto steps = says.find(kShardSteps);
    if (steps != says.end() && steps->second != std::to_string(manifest_.position.steps)) {
      fail(folder_ / file.name,
           fmt::format("was saved after {} steps, and the manifest says {}", steps->second, manifest_.position.steps));
    }
  }
  find_pieces(optimizer);
}

void Checkpoint::find_pieces(config::Optimizer optimizer) {
  const std::vector<plan::ParameterShape>& parameters = manifest_.parameters;
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> parts;  // by name in files
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (int part = 0; part < parameters[i].parts; ++part) {
      parts[part_name(parameters[i], part)] = {i, static_cast<std::size_t>(part)};
    }
    for (auto& by_parameter : places_) by_parameter.emplace_back(static_cast<std::size_t>(parameters[i].parts));
  }
  for (const auto& file : files_) {
    for (const SafeTensor& tensor : file->tensors()) {
      const std::string_view name = tensor.name;
      const std::size_t first = name.find('/'), last = name.rfind('/');
      if (first == std::string_view::npos || first == last) continue;
      const auto state = std::ranges::find(kStates, name.substr(0, first));
      const auto part = parts.find(name.substr(first + 1, last - first - 1));
      const std::optional<std::int64_t> begin = number_in(name.substr(last + 1));
      if (state == kStates.end() || part == parts.end() || !begin) continue;
      places_[state - kStates.begin()][part->second.first][part->second.second].push_back(
          {*begin, tensor.numel(), file.get(), &tensor});
    }
  }
  for (const State state : states_of(optimizer)) check_whole(state);
}

void Checkpoint::check_whole(State state) {
  const std::vector<plan::ParameterShape>& parameters = manifest_.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (int part = 0; part < parameters[i].parts; ++part) {
      std::vector<Place>& places = places_[static_cast<std::size_t>(state)][i][part];
      std::ranges::sort(places, {}, &Place::begin);
      std::int64_t end = 0;
      for (const Place& place : places) end = place.begin == end ? end + place.count : -1;
      if (end == parameters[i].numel()) continue;
      fail(folder_, fmt::format("does not hold all of {} of {}", to_string(state), part_name(parameters[i], part)));
    }
  }
}

void Checkpoint::read(State state, int parameter, std::int64_t begin, std::span<float> out) const {
  const std::size_t index = parameter;
  const PlacesOfParts& places = places_[static_cast<std::size_t>(state)][index];
  for (std::size_t count = 0; !out.empty(); out = out.subspan(count), begin += static_cast<std::int64_t>(count)) {
    const plan::ParameterShape::InPart at = manifest_.parameters[index].in_part(begin);
    count = std::min(out.size(), static_cast<std::size_t>(at.count));
    read_part(places[at.part], at.element, out.first(count));
  }
}

void Checkpoint::read_part(const std::vector<Place>& places, std::int64_t begin, std::span<float> out) const {
  auto place = std::ranges::upper_bound(places, begin, {}, &Place::begin) - 1;
  for (; !out.empty(); ++place) {
    const std::int64_t offset = begin - place->begin;
    const std::int64_t count = std::min(place->count - offset, static_cast<std::int64_t>(out.size()));
    place->file->read(*place->tensor, offset, out.first(count));
    out = out.subspan(count);
    begin += count;
  }
}

void Checkpoint::verify() const {
  for (const auto& file : files_) file->verify();
}

}  // namespace fsdpbench::engine
