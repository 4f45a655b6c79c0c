#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"
#include "config/run_config.h"
#include "plan/plan.h"

/// A configuration in the words of other systems. Each system is one Dialect: a rule for every key, and the files
/// that are made of them. Nothing is dropped silently: a key that a system has no word for is named, with what the
/// system does instead.
namespace fsdpbench::dialects {

/// What becomes of a key in another system's words.
enum class Fate : std::uint8_t {
  same,     ///< what the system does anyway; nothing need be written
  written,  ///< written, and means the same there
  roughly,  ///< written, and the system does something near it
  lost,     ///< there is no word for it: the system does otherwise
  yours,    ///< not the system's to decide: the training script does, or the environment
};

/// What is to be said of a key: for written and yours how, for roughly and lost what the system does.
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

/// What rules and writers see.
struct ExportSource {
  const config::RunConfig& config;     ///< valid, its mesh filled in
  const config::RunConfig& reference;  ///< its [fsdp] is what the system does unless told otherwise
  const plan::Plan& plan;

  const config::Fsdp& fsdp() const { return config.fsdp; }
  bool offloads() const { return config.fsdp.cpu_offload != config::CpuOffload::none; }
  /// Blocks (mlp: linear layers) of each unit, in forward order; empty if the whole model is one unit.
  std::vector<int> blocks_of_units() const;
  /// Elements of the largest unit beside the root; of the root if there is no other.
  std::int64_t largest_unit() const;
};

/// What a system says about one key.
struct KeyRule {
  std::string_view key;
  /// Null: the system has no word for it, and a value other than `reference`'s is lost.
  Said (*say)(const ExportSource&) = nullptr;
  /// Null `say`: what the system does, in words; empty: it does as `reference` has it.
  std::string_view instead = {};
};

/// A system, and how it is told what a configuration has.
struct Dialect {
  std::string_view name;    ///< "pytorch-fsdp2", as of its Words
  std::string_view system;  ///< whom it is for, with the version that its words were taken from
  std::string_view what;    ///< what is written, one line
  /// The preset (config/presets.h) that does as the system does unless told otherwise.
  std::string_view (*engine)(const config::RunConfig&);
  std::span<const KeyRule> rules;
  /// `notes`: lines for the head of each file, to be made comments.
  std::vector<ExportFile> (*write)(const ExportSource&, const std::vector<std::string>& notes);
};

// One function a file; dialects() in make_export.cpp lists them.
Dialect pytorch_fsdp2();
Dialect pytorch_fsdp1();
Dialect deepspeed();
Dialect megatron_fsdp();
Dialect torchtitan();
Dialect accelerate();
Dialect hf_trainer();
Dialect maxtext();

}  // namespace fsdpbench::dialects
