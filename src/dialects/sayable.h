#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "config/spelling.h"
#include "config/words/words.h"
#include "dialects/dialect.h"

namespace fsdpbench::dialects {

/// System whose words set a traced program of this engine. Null: no system is known whose words it takes.
const Dialect* dialect_of_program(const Words* engine);

/// The system that a configuration is for, by its fsdp.preset. Null: none that it can be written for.
const Dialect* dialect_of(const config::RunConfig& config);

/// That system's words for a key: what it writes, that its default does, or that it has no word for it.
std::string in_words(const Said& said);

/// A key that two configurations do not share.
struct KeyChange {
  std::string key, was, is;  ///< values as a profile has them
  Said said;                 ///< of the new value
};

/// Changes in a system that lead from one valid configuration to another: of exported_fields(), in order.
std::vector<KeyChange> changes_in_words(const Dialect& target, const config::RunConfig& was,
                                        const config::RunConfig& is);

/// Required fit of a system's words.
enum class Fit : std::uint8_t {
  near,   ///< it does something near, Fate::roughly, at least
  exact,  ///< it does the same, so that what the change gains here it gains there
};

/// Configurations that a system can be told in place of one. Const use by several threads is safe.
class Sayable {
 public:
  /// `in_force` must be valid, its mesh filled in.
  Sayable(const Dialect& dialect, config::RunConfig in_force, Fit fit = Fit::near);

  /// Whether the system has words for all that `other`, which is valid, has otherwise: each key has one that has one
  /// now, also those that stay as they are but depend on one that does not. `Own::may_change`: keys without a word now
  /// are this program's own, and may become anything.
  enum class Own : std::uint8_t { stays, may_change };
  bool says(const config::RunConfig& other, Own own = Own::stays) const;
  /// Says one key; what the value makes of others is as in a profile: fsdp.preset brings all that it stands for.
  /// False for a value that is not valid here.
  bool says(std::string_view key, const config::Value& value) const;
  /// Those of these values of a key that the system can express.
  std::vector<config::Value> sayable(std::string_view key, std::span<const config::Value> values) const;

 private:
  bool fits(Fate fate) const { return fate != Fate::lost && (fit_ == Fit::near || fate != Fate::roughly); }

  const Dialect& dialect_;
  config::RunConfig in_force_;
  Fit fit_;
  std::set<std::string, std::less<>> unsaid_;  ///< keys of in_force_ that it has no word for that fits
};

}  // namespace fsdpbench::dialects
