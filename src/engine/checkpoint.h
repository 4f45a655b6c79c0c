#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum_table.h"
#include "config/run_config.h"
#include "engine/byte_dataset.h"
#include "engine/safetensors.h"
#include "plan/model_shapes.h"

/// A training, so far, on disk: a folder `step-000000012` of one safetensors file a shard, and of a manifest, which is
/// written last. A folder without one is no checkpoint. Everything is fp32 pieces of parameters, or of the parts of
/// them that ranks had who split layers, so that any mesh, strategy and layout finds its own
/// (docs/checkpoint.md).
namespace fsdpbench::engine {

/// State of each parameter that an optimizer step reads and writes.
enum class State : std::uint8_t { parameter, first_moment, second_moment };
inline constexpr std::size_t kStateCount = kEnumCount<State>;
std::string_view to_string(State state);
/// Those of all parameters that an optimizer has.
std::span<const State> states_of(config::Optimizer optimizer);

/// Position in a training.
struct TrainingPosition {
  std::int64_t steps = 0;    ///< optimizer steps done
  std::int64_t samples = 0;  ///< of the data, over all ranks and microbatches: the next one's number
  bool operator==(const TrainingPosition&) const = default;
};

/// Elements [begin, begin + count) of part `part` of a parameter (canonical index); 0 of one that is not split.
struct StatePiece {
  State state = State::parameter;
  int parameter = 0;
  int part = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// "shard-00002-of-00008.safetensors".
std::string shard_file_name(int shard, int shards);
/// Metadata of a shard.
std::map<std::string, std::string> shard_metadata(std::int64_t steps);
/// The tensor that a piece is: "first_moment/blocks.0.attention.wq/4096", a row of `count` elements; of a parameter
/// that ranks split ".../blocks.0.attention.wq/1-of-2/4096".
SafeTensor tensor_of(const StatePiece& piece, const plan::ModelShapes& shapes);

/// One file of a checkpoint, as the manifest lists it.
struct ShardFile {
  std::string name;
  FileDigest digest;
};

struct Manifest {
  /// The version that is written, and the only one that is read.
  static constexpr int kVersion = 5;
  TrainingPosition position;
  config::Optimizer optimizer = config::Optimizer::adamw;
  std::vector<plan::ParameterShape> parameters;  ///< names, shapes, parts, in canonical order
  std::vector<ShardFile> files;
  std::optional<DataDigest> data = {};  ///< that it was trained on; absent: not known
  std::string training = {};  ///< whose it is: new_training(), also of all that goes on with it; empty: not known
  std::int64_t saved = 0;     ///< counts what was saved in its folder, in time; 0: not known
};

/// Folder of a checkpoint after `steps` steps, in `folder`.
std::filesystem::path step_folder(const std::filesystem::path& folder, std::int64_t steps);
/// The number in such a name; absent: it is another one.
std::optional<std::int64_t> steps_in_name(const std::filesystem::path& folder);
/// Makes a folder of complete shard files a checkpoint. Throws OutputError.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);
/// So that a folder is no checkpoint until write_manifest(). Nothing, if there is none.
void remove_manifest(const std::filesystem::path& folder);
bool has_manifest(const std::filesystem::path& folder);
/// Throws ConfigError in one sentence, also if it is not as it was saved, or the folder's name says other steps.
Manifest read_manifest(const std::filesystem::path& folder);

/// One that is there, to be read. Thread-safe.
class Checkpoint {
 public:
  /// Opens all of its files. Throws ConfigError in one sentence that names the file: no checkpoint, another model,
  /// an optimizer of which it has no moments, a shard missing, damaged or of other steps, a piece
  /// missing.
  Checkpoint(const std::filesystem::path& folder, const plan::ModelShapes& shapes, config::Optimizer optimizer);

  /// Opens a checkpoint of any model, with the moments that it has.
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const TrainingPosition& position() const { return manifest_.position; }
  const Manifest& manifest() const { return manifest_; }
  /// Elements [begin, begin + out.size()) of what `state` is of `parameter`, the whole of it.
  void read(State state, int parameter, std::int64_t begin, std::span<float> out) const;
  /// Reads every byte. Throws as read().
  void verify() const;

 private:
  struct Place {
    std::int64_t begin = 0, count = 0;  ///< of the part
    const SafetensorsReader* file = nullptr;
    const SafeTensor* tensor = nullptr;
  };
  using PlacesOfParts = std::vector<std::vector<Place>>;  // by part, in order
  void open(config::Optimizer optimizer);
  void find_pieces(config::Optimizer optimizer);
  void check_whole(State state);
  void read_part(const std::vector<Place>& places, std::int64_t begin, std::span<float> out) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::array<std::vector<PlacesOfParts>, kStateCount> places_;  // by state and saved parameter
};

}  // namespace fsdpbench::engine
