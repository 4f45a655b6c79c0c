#include "runs/config_message.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/fields.h"
#include "config/load.h"

namespace fsdpbench::app {

std::string to_message(const config::RunConfig& config) {
  std::string text;
  for (const config::Field& field : config::fields()) {
    text += fmt::format("{}={}\n", field.name(), config::to_toml(field.write(config)));
  }
  return text;
}

config::RunConfig config_from_message(std::string_view text) {
  config::RunConfig config;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const config::Entry entry = config::read_override(line);
    const config::Field* field = config::find_field(entry.name);
    if (field == nullptr || !field->read(config, entry.value)) {
      throw BackendError(fmt::format("rank 0 sent a configuration that this process cannot read: '{}'", line));
    }
  }
  return config;
}

}  // namespace fsdpbench::app
