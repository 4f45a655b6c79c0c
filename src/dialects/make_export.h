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

/// A warning for whoever reads a configuration that was recognised in traces of a job.
inline constexpr std::string_view kNotTold =
    "No trace tells batch, sequence length, optimizer or layer sizes: values for them are made up, and with them "
    "tokens/s and memory, its total and its differences; keep the job's own.";

/// `config` must be valid (config/validate.h), its mesh filled in. `traced`: it was recognised in traces, so that the
/// files have kNotTold, and do not say where to set what no trace tells. Runs nothing and reads no file.
Export make_export(const Dialect& target, const config::RunConfig& config, bool traced = false);

}  // namespace fsdpbench::dialects
