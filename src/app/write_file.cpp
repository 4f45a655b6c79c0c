#include "app/write_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace fsdpbench::app {

void write_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path part = path.string() + ".part";
  {
    std::ofstream file(part, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw OutputError(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  }
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) throw OutputError(fmt::format("cannot write {}: {}", path.string(), error.message()));
}

}  // namespace fsdpbench::app
