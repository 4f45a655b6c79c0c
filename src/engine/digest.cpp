#include "engine/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <memory>

namespace fsdpbench::engine {

std::string parameters_digest(const std::vector<std::vector<float>>& parameters) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (const std::vector<float>& parameter : parameters) {
    XXH3_128bits_update(state.get(), parameter.data(), parameter.size() * sizeof(float));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace fsdpbench::engine
