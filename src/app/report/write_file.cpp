#include "app/report/write_file.h"

#include "trace/whole_file.h"

namespace fsdpbench::app {

void write_file(const std::filesystem::path& path, const std::string& text) {
  trace::WholeFile file(path.string());
  file.write(text);
  file.commit();
}

}  // namespace fsdpbench::app
