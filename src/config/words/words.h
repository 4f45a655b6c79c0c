#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// Vocabularies of engines and frameworks: plain tables, one file a system in profiles/systems, that the reader of
/// profiles (config/) and the reader of traces (foreign/) look into. Nobody else knows another system's words.
namespace fsdpbench::dialects {

/// A key of a profile with the value that an engine has for it.
using Setting = std::pair<std::string, std::variant<bool, std::int64_t, double, std::string>>;

/// Value of fsdp.preset: an engine's defaults; docs/engines.md says where each line comes from.
struct Preset {
  std::string name;               ///< "deepspeed-z3"
  std::string like;               ///< the preset that it differs from; empty for the one that all come from
  std::vector<Setting> settings;  ///< where it differs
};

// Words that people bring along are compared squeezed: lower case, without what stands before the last dot (Python's
// enum in ShardingStrategy.FULL_SHARD), without dashes, underscores and spaces.

/// A word for exactly one value of a key.
struct Meaning {
  std::string key, word, value;
};

/// A word that means none of a key's values, or more than one; an empty key: a key whose values do.
struct Answer {
  std::string key, word, sentence;
};

/// Name that a system has for a key.
struct KeyWord {
  std::string word, key;
};

/// Names of the engine where a trace shows what it does; empty where that says nothing of it.
struct ProgramNames {
  std::string sharded;            ///< "PyTorch FSDP2 (fully_shard)"
  std::string quantized;          ///< sharded, and quantised numbers are sent
  std::string sharded_optimizer;  ///< gradients are reduced, updated parameters gathered
  std::string data_parallel;      ///< gradients are all-reduced
};

/// Parts of names of rows in an engine's trace.
struct TraceNames {
  std::int64_t place = 0;               ///< where names of several systems are found, the first counts; 0: none has any
  std::vector<std::string_view> parts;  ///< any of them tells that it is this engine's
  bool of_one_program = false;          ///< they are the engine's own; else those of a compiler
  ProgramNames program;
  std::vector<std::string_view> presets;         ///< that may be meant, the likeliest first
  std::vector<std::string_view> expert_presets;  ///< the same where experts are split over other ranks
  std::vector<std::string_view> quantization;    ///< kernels that quantise
  std::vector<std::string_view> layout_copies;   ///< rows that only a copy between layouts has
  std::vector<std::string_view> copies;          ///< rows that such a copy may be
  std::string prefetch;                          ///< around what is gathered before it is needed
  std::string forward_prefetch;                  ///< around what the program was told to gather ahead
  std::string backward_prefetch;                 ///< around what is gathered before a unit's backward
  std::string post_backward_prefetch;            ///< around what is gathered after a unit's backward
  std::string limiter;                           ///< around a wait of the all-gather limit
  // Ranges that name a unit in brackets, and none for the root; they begin with these.
  std::string copy_out;        ///< around what makes a gather's parameters ready, just before a unit's pass
  std::string after_forward;   ///< when a unit's forward is over
  std::string after_backward;  ///< when its backward is
  std::string drops_gathers;   ///< where gathers that nothing has copied out are dropped; it names no unit
  std::string units_begin;     ///< such a range begins with this, and then one of these; empty: none names a unit
  std::vector<std::string_view> units_verbs;
  std::string units_prefetch;                                ///< or has this before the unit
  std::vector<std::string_view> likely, likely_with_copies;  ///< of nobody's in particular: likely_presets()

  /// The unit that a range is of: "layers.0", "" for the root's. None: it names no unit.
  std::optional<std::string> unit(std::string_view name) const;
};

/// Settings by which a person removes a cause of exposure; empty: there is no such setting.
struct Remedies {
  std::string prefetch_forward, prefetch_backward, no_limit, more_buffers, separate_reductions, one_communicator;
  std::string accumulate;
  // Against wasted all-gathers.
  std::string keep_after_forward, keep_after_backward, prefetch_less, no_reentrant;
};

/// Times in which a host issues a training's kernels, in microseconds on the machine that they were measured on.
struct HostTimes {
  double step = 0;                            ///< loop, embedding, head and loss
  double forward = 0, backward = 0;           ///< a block, beside the launches of its kernels
  double rotation = 0;                        ///< of these, what a block takes more that rotates queries and keys
  double compiled = 1;                        ///< of these, what a compiled block takes instead
  double checkpoint = 1;                      ///< times as long if the block is recomputed
  double reentrant_checkpoint = 1;            ///< the same with fsdp.checkpoint_reentrant
  double launch = 0;                          ///< a kernel, beyond what the cluster's file says
  double gather = 0, free = 0, reduce = 0;    ///< a unit
  double gather_tensor = 0;                   ///< a parameter of it, where it is gathered
  double alone = 1;                           ///< of these, where there is one rank
  double tensor = 0;                          ///< a parameter, in backward
  double exchange = 0;                        ///< what ranks that split a layer exchange
  double part = 0;                            ///< a rank's part of a parameter, where it is gathered
  double visit = 0;                           ///< a call of a module, in any pass
  double second_step = 0;                     ///< two calls of modules, once
  double update = 0;                          ///< the optimizer's step
  double update_unit = 0, update_tensor = 0;  ///< a unit and a parameter of it
  double fused_update = 1;                    ///< of the last three, where an update is one kernel
  double update_sharded = 0;                  ///< a parameter that is a DTensor, in any update
  double spread = 0;                          ///< standard deviation of the logarithm of what was measured over this
};

struct Words {
  std::string name;        ///< "deepspeed", as its file
  std::int64_t place = 0;  ///< in which its presets are listed
  std::vector<Preset> presets;
  std::vector<Meaning> meanings;
  std::vector<Answer> answers;
  std::vector<KeyWord> keys;
  TraceNames traces;
  std::optional<Remedies> remedies;  ///< none: those of this program's own keys
};

struct SystemFile;  // config/words/system_file.h
/// Refers to the file. Throws ConfigError with file and line, also for a name that says nothing.
Words read_words(const SystemFile& file);

/// Those of all systems, in the order in which their presets are listed. Throws ConfigError with file and line for a
/// file that is not right, which a test finds: files are built into the program.
std::span<const Words* const> all_words();
/// Those that traces are searched for; where names of several are found, the first of these counts.
std::span<const Words* const> words_in_traces();

/// `engines`: names of tables host.NAME of profiles/systems; a later one's figures replace those of the ones before it.
/// Those that there are not are left out.
HostTimes host_times(std::span<const std::string_view> engines);

/// Null: no system has this preset.
const Preset* find_preset(std::string_view name);
/// The system that has this preset. Null: none.
const Words* words_of_preset(std::string_view preset);
/// The words of a system that there is.
const Words& words_of(std::string_view system);

/// Presets of sharded training of which no name tells the engine, the likeliest first. `layout_copies`: parameters
/// are copied between layouts.
std::span<const std::string_view> likely_presets(bool layout_copies);

}  // namespace fsdpbench::dialects
