#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "dialects/dialect.h"
#include "dialects/words/words.h"

namespace fsdpbench::dialects {

/// How a traced program of this engine is set. Null: no system is known whose words it takes.
const Dialect* dialect_of_program(const Words* engine);

/// How a person of that system sets a key: what it writes, that its default does, or that it has no word for it.
std::string in_words(const Said& said);

/// A key that two configurations do not share.
struct KeyChange {
  std::string key, was, is;  ///< values as a profile has them
  Said said;                 ///< of the new value
};

/// What is to be changed in a system to come from one valid configuration to another: of exported_fields(), in order.
std::vector<KeyChange> changes_in_words(const Dialect& target, const config::RunConfig& was,
                                        const config::RunConfig& is);

/// Whether a system has words for all that `is` has otherwise than `was`; both are valid.
bool has_words_for(const Dialect& target, const config::RunConfig& was, const config::RunConfig& is);

}  // namespace fsdpbench::dialects
