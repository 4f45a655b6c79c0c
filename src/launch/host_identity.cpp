#include "launch/host_identity.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>

#include "launch/variables.h"

namespace fsdpbench::launch {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof name) != 0) return "unknown";
  name[HOST_NAME_MAX] = '\0';
  return name;
}

std::string node_name() {
  const Environment environment = process_environment();
  const Variables variables(environment);
  const std::string known = variables.first_set({"SLURMD_NODENAME", "NODE_NAME"});
  return known.empty() ? host_name() : variables.text(known);
}

std::string clock_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) return {};
  std::error_code none;  // kernels before 5.6 have no time namespaces
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

std::string random_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", static_cast<std::uint32_t>(source()), static_cast<std::uint32_t>(source()));
}

}  // namespace fsdpbench::launch
