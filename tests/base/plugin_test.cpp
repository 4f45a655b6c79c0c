#include "base/plugin.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "support/temporary_folder.h"

namespace fsdpbench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// As pip installs a package beside NVIDIA's wheels: `first` needs `second`, which is in another wheel, and neither is
/// where the loader looks.
struct Installed {
  TemporaryFolder folder;
  fs::path root = folder.path();
  fs::path program = root / "fsdpbench/bin";

  Installed() {
    fs::create_directories(program);
    for (const auto& [wheel, file] : {std::pair{"cu13", STAND_IN_FIRST}, {"nccl", STAND_IN_SECOND}}) {
      fs::create_directories(root / "nvidia" / wheel / "lib");
      fs::copy(file, root / "nvidia" / wheel / "lib");
    }
  }
};

TEST(PluginTest, LibrariesOfNvidiasWheelsAreFoundThoughTheLoaderDoesNotKnowThem) {
  const Installed installed;
  const std::string first = fs::path(STAND_IN_FIRST).filename(), second = fs::path(STAND_IN_SECOND).filename();
  ASSERT_EQ(dlopen(first.c_str(), RTLD_NOW), nullptr);
  std::string why_not;
  EXPECT_EQ(open_library(first, {}, why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr(first + ": cannot open"));
  EXPECT_EQ(open_library(first, {installed.root / "nvidia/cu13/lib"}, why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr(second + ": cannot open")) << "which one is missing";
  void* const library = open_library(first, library_folders(installed.program), why_not);
  ASSERT_NE(library, nullptr) << why_not;
  const auto answer = reinterpret_cast<int (*)()>(dlsym(library, "stand_in_first"));
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer(), 42);
}

TEST(PluginTest, AFileThatIsNoLibraryIsSaidToBeNone) {
  const Installed installed;
  installed.folder.write("nvidia/cu13/lib/libwrong.so.1", "text");
  std::string why_not;
  EXPECT_EQ(open_library("libwrong.so.1", library_folders(installed.program), why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("libwrong.so.1"));
}

TEST(PluginTest, WheelsComeBeforeTheToolkit) {
  const Installed installed;
  ASSERT_EQ(setenv("CUDA_HOME", "/opt/cuda-13", 1), 0);
  EXPECT_THAT(library_folders(installed.program),
              ElementsAre(installed.root / "nvidia/cu13/lib", installed.root / "nvidia/nccl/lib",
                          fs::path("/opt/cuda-13/lib64"), fs::path("/usr/local/cuda/lib64")));
  unsetenv("CUDA_HOME");
}

}  // namespace
}  // namespace fsdpbench
