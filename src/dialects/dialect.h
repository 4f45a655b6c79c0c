#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "config/run_config.h"
#include "config/words/system_file.h"
#include "dialects/vocabulary.h"

/// A configuration in the words of other systems. Each system is one file, profiles/systems/NAME.toml: a rule for every
/// key, and the files that are made of them. Nothing is dropped silently: a key that a system has no word for is named,
/// with what the system does instead.
namespace fsdpbench::dialects {

/// Fate of a key in another system's words.
enum class Fate : std::uint8_t {
  same,     ///< what the system does anyway; nothing need be written
  written,  ///< written, and means the same there
  roughly,  ///< written, and the system does something near it
  lost,     ///< there is no word for it: the system does otherwise
  yours,    ///< not the system's to decide: the training script does, or the environment
};

/// Sentence on a key: for written and yours how, for roughly and lost what the system does.
struct Said {
  Fate fate = Fate::same;
  std::string text;
};

struct KeyFate {
  std::string key;    ///< "fsdp.wrap"
  std::string value;  ///< as a profile has it
  Said said;
};

struct ExportFile {
  std::string name;  ///< without a folder; no two targets share one
  std::string text;
};

/// A configuration in one system's words.
struct Export {
  std::vector<ExportFile> files;
  std::vector<KeyFate> keys;  ///< of every key of exported_fields(), in their order

  /// The keys with this fate, in order.
  std::vector<KeyFate> with(Fate fate) const;
};

/// A system, and how it is told what a configuration has. Its file is understood at the first question: const use by
/// several threads is safe, and throws ConfigError with file and line where the file is wrong, which a test finds.
class Dialect {
 public:
  /// `files`: the system's own, then those whose rules, parts and `let` count where it has none.
  explicit Dialect(std::vector<const SystemFile*> files);

  std::string name;        ///< "pytorch-fsdp2"
  std::string system;      ///< whom it is for, with the version that its words were taken from
  std::string what;        ///< what is written, one line
  std::int64_t place = 0;  ///< in which systems are listed

  /// The preset (config/presets.h) that does as the system does unless told otherwise.
  std::string engine(const config::RunConfig& config) const;
  bool has_rule(const config::Field& field) const;
  Said say(const ExportSource& source, const config::Field& field) const;
  std::vector<ExportFile> write(const ExportSource& source) const;

 private:
  struct Understood;
  const Understood& understood() const;

  std::vector<const SystemFile*> files_;
  std::shared_ptr<Understood> understood_;
};

}  // namespace fsdpbench::dialects
