#include "runs/job.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/fields.h"
#include "config/load.h"
#include "launch/interrupt.h"
#include "launch/join.h"
#include "runs/build_info.h"

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

Job::Job(const launch::Placement& placement)
    : session_(launch::join(placement, {.version = version_line()})), watch_(session_->control()) {
  obey_launcher();
}

Job::~Job() {
  // The watch goes last: leaving may wait for others.
  watch_.leave();
  session_.reset();
}

std::string Job::headline() const {
  return fmt::format(
      "{} ranks: one process each, as {} says; messages go by {}; rank 0 took them in at {}, each "
      "with the job's secret",
      ranks(), session_->placement().source, session_->transport(), session_->door());
}

}  // namespace fsdpbench::app
