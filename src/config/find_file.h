#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fsdpbench::config {

/// Kinds of TOML files of this project. Each kind has a folder: profiles/runs, profiles/sweeps, profiles/models,
/// profiles/clusters, profiles/published, profiles/acceptance; calibrations are the user's own and lie anywhere.
enum class FileKind : std::uint8_t { run, sweep, model, cluster, calibration, accuracy, acceptance };

/// Folder of this program's profiles: share/fsdpbench beside its folder, which in a build folder is the source
/// tree. Without that, two folders above the program.
const std::filesystem::path& home_folder();

/// The run profile that a person means by `given`: a file; a result folder, which means its config.toml; or the name of
/// a profile, with or without .toml, in profiles/runs of the working folder or of the program's home; or else of a
/// model in profiles/models, which load_profile() completes. Files come first. Throws ConfigError that says what was
/// tried and which name is nearest.
std::string find_profile(const std::string& given);

/// Path of a sweep file, in profiles/sweeps.
std::string find_sweep(const std::string& given);

/// The cluster file that `given` means: a file, or the name of one in profiles/clusters. Throws ConfigError that lists
/// the names and says which is nearest.
std::string find_cluster(const std::string& given);

/// Path of an acceptance profile, in profiles/acceptance.
std::string find_acceptance(const std::string& given);

/// The model file of `preset`: of that name in ../models or models beside the profile, then in profiles/models as
/// above; or, if it ends in .toml, a path from the profile's folder or the working one. Throws ConfigError that lists
/// the names and says which is nearest.
std::filesystem::path find_model(const std::string& preset, const std::string& profile);

/// The file of that kind and name in its folder under profiles, as above; empty if there is none.
std::string find_named_file(FileKind kind, const std::string& name);

/// Name of a profile in the names of its results: its file's stem; for a result's config.toml, its folder.
std::string profile_name(const std::string& profile);

}  // namespace fsdpbench::config
