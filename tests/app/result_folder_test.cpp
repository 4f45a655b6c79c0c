#include "app/report/result_folder.h"

#include <unistd.h>

#include "base/error.h"
#include "config/support.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

ExitCode code_of(const std::string& out) {
  try {
    make_result_folder("p.toml", out);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(out));
    return error.code();
  }
  return ExitCode::ok;
}

TEST(ResultFolder, MakesTheFolderWithItsParentsAndLeavesItEmpty) {
  const config::TemporaryFolder temporary;
  const fs::path folder = make_result_folder("p.toml", (temporary.path() / "a/b").string());
  EXPECT_TRUE(fs::is_directory(folder));
  EXPECT_TRUE(fs::is_empty(folder));
  EXPECT_EQ(make_result_folder("p.toml", folder.string()), folder);
}

TEST(ResultFolder, ADefaultNameIsNewEachTime) {
  const config::TemporaryFolder temporary;
  const fs::path before = fs::current_path();
  fs::current_path(temporary.path());
  const fs::path first = make_result_folder("profiles/runs/quick.toml", "");
  const fs::path second = make_result_folder("profiles/runs/quick.toml", "");
  fs::current_path(before);
  EXPECT_EQ(first.parent_path(), "runs");
  EXPECT_THAT(first.filename().string(), testing::StartsWith("quick-20"));
  EXPECT_NE(first, second);
}

TEST(ResultFolder, AFileInTheWay) {
  const config::TemporaryFolder temporary;
  const std::string file = temporary.write("file", "x");
  EXPECT_EQ(code_of(file), ExitCode::cannot_write);
  EXPECT_EQ(code_of(file + "/below"), ExitCode::cannot_write);
}

TEST(ResultFolder, NoPermission) {
  // The kernel's own tree refuses new files even to root.
  EXPECT_EQ(code_of("/proc/fsdpbench"), ExitCode::cannot_write);
}

}  // namespace
}  // namespace fsdpbench::app
