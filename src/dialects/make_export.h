#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"

namespace fsdpbench::dialects {

/// All systems that a configuration can be written for: those whose file in profiles/systems has [export].
std::span<const Dialect> dialects();

/// Throws ConfigError that names the nearest.
const Dialect& find_export_target(std::string_view name);

/// "pytorch-fsdp2,deepspeed", or "all". Throws ConfigError as find_export_target does.
std::vector<const Dialect*> read_export_targets(std::string_view names);

/// Fates of `fields`, which are of exported_fields(). `config` must be valid, its mesh filled in.
std::vector<KeyFate> key_fates(const Dialect& target, const config::RunConfig& config,
                               std::span<const config::Field* const> fields);

/// `config` must be valid (config/validate.h), its mesh filled in. Runs nothing and reads no file.
Export make_export(const Dialect& target, const config::RunConfig& config);

}  // namespace fsdpbench::dialects
