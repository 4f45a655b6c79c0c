#include "engine/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace fsdpbench::engine {

struct ParametersDigest::State {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash{XXH3_createState(), &XXH3_freeState};
};

ParametersDigest::ParametersDigest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->hash.get()); }
ParametersDigest::~ParametersDigest() = default;

void ParametersDigest::add(std::span<const float> values) {
  XXH3_128bits_update(state_->hash.get(), values.data(), values.size_bytes());
}

std::string ParametersDigest::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace fsdpbench::engine
