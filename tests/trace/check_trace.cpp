// Says what is wrong with traces that this program wrote, by the rules of src/trace/FORMAT.md: for tests of the whole
// program.
//   check_trace FILE...        .json or .json.gz. Exit code 0: none is wrong
#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "trace/validate.h"

int main(int argc, char** argv) {
  bool ok = argc > 1;
  for (int i = 1; i < argc; ++i) {
    try {
      const fsdpbench::trace::Validation validation = fsdpbench::trace::validate_file(argv[i]);
      for (const fsdpbench::trace::Finding& finding : validation.findings.list()) {
        fmt::print("{}: event {}: {}: {}\n", argv[i], finding.event.value_or(-1), to_string(finding.rule),
                   finding.message);
      }
      if (validation.ok()) fmt::print("{}: ok, {} events\n", argv[i], validation.events);
      ok = ok && validation.ok();
    } catch (const fsdpbench::Error& error) {
      fmt::print("{}: {}\n", argv[i], error.what());
      ok = false;
    }
  }
  return ok ? 0 : 1;
}
