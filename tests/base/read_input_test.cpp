#include "base/read_input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace fsdpbench {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class ReadInput : public testing::Test {
 protected:
  static std::string refused(const std::filesystem::path& path, std::int64_t most = 100) {
    try {
      (void)read_input(path, most, "expected a poem");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "it was read";
  }
  std::filesystem::path at(const char* name) const { return folder_.path() / name; }

  TemporaryFolder folder_;
};

TEST_F(ReadInput, AllOfAFile) {
  const std::string text = "Röslein rot\0", longer(3'000'000, 'x');
  folder_.write("poem", text);
  folder_.write("longer", longer);
  EXPECT_EQ(read_input(at("poem"), 100, ""), text);
  EXPECT_EQ(read_input(at("longer"), 3'000'000, ""), longer);
  EXPECT_EQ(Input(at("longer"), "").beginning(5), "xxxxx");
}

/// Without one who writes, to open a pipe for reading would last for ever.
TEST_F(ReadInput, NothingElseIsOpened) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  at("socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(refused(at("pipe")), AllOf(HasSubstr("pipe: is a pipe, as <(...) is; write what comes out of it to a "
                                                   "regular file first; expected a poem."),
                                         EndsWith("expected a poem.")));
  EXPECT_THAT(refused(at("socket")), HasSubstr("is a socket"));
  EXPECT_THAT(refused("/dev/zero"), HasSubstr("/dev/zero: is a device, and no regular file; expected a poem."));
  EXPECT_THAT(refused(folder_.path()), HasSubstr("is a folder; expected a poem."));
  EXPECT_THAT(refused(at("nowhere")), HasSubstr("there is no such file"));
  EXPECT_THAT(refused("/dev/null/x"), HasSubstr("there is no such file"));
  EXPECT_THAT(refused(std::string(5000, 'x')), HasSubstr("cannot be read: File name too long"));
  ::close(socket);
}

TEST_F(ReadInput, TooLargeIsRefusedBeforeItIsRead) {
  folder_.write("large", "x");
  std::filesystem::resize_file(at("large"), std::uintmax_t{1} << 40);  // a hole: a terabyte of nothing
  EXPECT_THAT(refused(at("large")),
              HasSubstr("has 1.00 TiB, and of such a file at most 100 B are read; expected a poem."));
  folder_.write("just", std::string(100, 'x'));
  EXPECT_EQ(refused(at("just")), "it was read");
  EXPECT_THAT(refused(at("just"), 99), HasSubstr("has 100 B, and of such a file at most 99 B"));
}

/// Files of /proc say that they have no bytes, and some cannot be read at all.
TEST_F(ReadInput, SizeIsWhatComes) {
  EXPECT_THAT(refused("/proc/self/maps", 10), HasSubstr("at most 10 B are read"));
  EXPECT_THAT(refused("/proc/self/mem"), HasSubstr("cannot be read: Input/output error"));
}

}  // namespace
}  // namespace fsdpbench
