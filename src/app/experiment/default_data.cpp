#include "app/experiment/default_data.h"

#include "config/default_folders.h"

namespace fsdpbench::app {

std::filesystem::path default_data_path() { return config::kSourceFolder; }

}  // namespace fsdpbench::app
