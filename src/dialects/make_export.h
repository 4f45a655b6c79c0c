#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"

namespace fsdpbench::dialects {

/// All systems that a configuration can be written for; the one place that lists them.
std::span<const Dialect> dialects();

/// Throws ConfigError that names the nearest.
const Dialect& find_export_target(std::string_view name);

/// "pytorch-fsdp2,deepspeed", or "all". Throws ConfigError as find_export_target does.
std::vector<const Dialect*> read_export_targets(std::string_view names);

/// The keys that another system could have a word for: of the mesh, the training, the sharding and NCCL. Not among them
/// is what only a measurement needs (train.steps, train.warmup …).
std::span<const config::Field* const> exported_fields();

/// The rule of a key: the target's own, else the one for keys that no system offers. Null if there is none, which is a
/// mistake in the tables.
const KeyRule* find_rule(const Dialect& target, std::string_view key);

/// What becomes of `fields`, which are of exported_fields(). `config` must be valid, its mesh filled in.
std::vector<KeyFate> key_fates(const Dialect& target, const config::RunConfig& config,
                               std::span<const config::Field* const> fields);

/// `config` must be valid (config/validate.h), its mesh filled in. Runs nothing and reads no file.
Export make_export(const Dialect& target, const config::RunConfig& config);

}  // namespace fsdpbench::dialects
