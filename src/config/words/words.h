#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

/// What engines and frameworks call things, one file each: plain tables that the reader of profiles (config/) and the
/// reader of traces (foreign/) look into. Nobody else knows another system's words. What is written in a system's
/// words is code, and one folder up: dialects/dialect.h.
namespace fsdpbench::dialects {

/// A key of a profile with the value that an engine has for it.
using Setting = std::pair<std::string_view, std::variant<bool, std::int64_t, double, std::string_view>>;

/// What fsdp.preset may be: an engine's defaults; docs/engines.md says where each line comes from.
struct Preset {
  std::string_view name;              ///< "deepspeed-z3"
  std::string_view like;              ///< the preset that it differs from; empty for the one that all come from
  std::span<const Setting> settings;  ///< where it differs
};

// Words that people bring along are compared squeezed: lower case, without what stands before the last dot (Python's
// enum in ShardingStrategy.FULL_SHARD), without dashes, underscores and spaces.

/// A word for exactly one value of a key.
struct Meaning {
  std::string_view key, word, value;
};

/// A word that means none of a key's values, or more than one; an empty key: a key whose values do.
struct Answer {
  std::string_view key, word, sentence;
};

/// What a system calls a key.
struct KeyWord {
  std::string_view word, key;
};

/// What the engine is called where a trace shows what it does; empty where that says nothing of the engine.
struct ProgramNames {
  std::string_view sharded = {};            ///< "PyTorch FSDP2 (fully_shard)"
  std::string_view quantized = {};          ///< sharded, and quantised numbers are sent
  std::string_view sharded_optimizer = {};  ///< gradients are reduced, updated parameters gathered
  std::string_view data_parallel = {};      ///< gradients are all-reduced
};

/// What the rows of an engine's trace are called: parts of their names.
struct TraceNames {
  std::span<const std::string_view> parts = {};  ///< any of them tells that it is this engine's
  bool of_one_program = false;                   ///< they are the engine's own; else those of a compiler
  ProgramNames program = {};
  std::span<const std::string_view> presets = {};            ///< that may be meant, the likeliest first
  std::span<const std::string_view> expert_presets = {};     ///< the same where experts are split over other ranks
  std::span<const std::string_view> quantized_presets = {};  ///< the same where gradients are exchanged as integers
  std::span<const std::string_view> quantization = {};       ///< kernels that quantise
  std::span<const std::string_view> layout_copies = {};      ///< rows that only a copy between layouts has
  std::span<const std::string_view> copies = {};             ///< rows that such a copy may be
  std::string_view prefetch = {};                            ///< around what is gathered before it is needed
  std::string_view forward_prefetch = {};                    ///< around what the program was told to gather ahead
  std::string_view backward_prefetch = {};                   ///< around what is gathered before a unit's backward
  std::string_view post_backward_prefetch = {};              ///< around what is gathered after a unit's backward
  std::string_view limiter = {};                             ///< around a wait of the all-gather limit
  // Ranges that name a unit in brackets, and none for the root; they begin with these.
  std::string_view copy_out = {};        ///< around what makes a gather's parameters ready, just before a unit's pass
  std::string_view after_forward = {};   ///< when a unit's forward is over
  std::string_view after_backward = {};  ///< when its backward is
  std::string_view drops_gathers = {};   ///< where gathers that nothing has copied out are dropped; it names no unit
  /// The unit that a range is of: "layers.0", "" for the root's. None: it names no unit.
  std::optional<std::string> (*unit)(std::string_view name) = nullptr;
};

/// How a person sets what takes a cause of exposure away; empty: there is no such setting.
struct Remedies {
  std::string_view prefetch_forward, prefetch_backward, no_limit, separate_reductions, accumulate;
  // Against wasted all-gathers.
  std::string_view keep_after_forward = {}, keep_after_backward = {}, prefetch_less = {}, no_reentrant = {};
};

struct Words {
  std::string_view name;  ///< "deepspeed"
  std::span<const Preset> presets = {};
  std::span<const Meaning> meanings = {};
  std::span<const Answer> answers = {};
  std::span<const KeyWord> keys = {};
  TraceNames traces = {};
  std::optional<Remedies> remedies = {};  ///< none: those of this program's own keys
};

/// Those of all systems, in the order in which their presets are listed.
std::span<const Words* const> all_words();
/// Those that traces are searched for; where names of several are found, the first of these counts.
std::span<const Words* const> words_in_traces();

/// Null: no system has this preset.
const Preset* find_preset(std::string_view name);
/// The system that has this preset. Null: none.
const Words* words_of_preset(std::string_view preset);

/// Presets of sharded training of which no name tells the engine, the likeliest first. `layout_copies`: parameters
/// are copied between layouts.
std::span<const std::string_view> likely_presets(bool layout_copies);

// One function a file.
const Words& common_words();  ///< several systems' or nobody's in particular
const Words& fsdpbench_words();
const Words& pytorch_fsdp1_words();
const Words& pytorch_fsdp2_words();
const Words& pytorch_ddp_words();
const Words& deepspeed_words();
const Words& megatron_fsdp_words();
const Words& simplefsdp_words();
const Words& maxtext_words();
const Words& torchtitan_words();
const Words& accelerate_words();
const Words& hf_trainer_words();

}  // namespace fsdpbench::dialects
