#include "app/experiment/default_data.h"

#include "config/find_file.h"

namespace fsdpbench::app {

std::filesystem::path default_data_path() { return config::source_folder(); }

}  // namespace fsdpbench::app
