// Steps before the first communicator: versions, the id.

#include <cstdlib>
#include <map>

#include "backend/cuda/nccl/nccl_communicator.h"
#include "backend/cuda/nccl/nccl_version.h"
#include "backend/cuda/nccl_support.h"

namespace fsdpbench::backend::cuda {
namespace {

class NcclStartTest : public NcclTest {
 protected:
  static std::string refusal(const NcclOptions& options) {
    try {
      require_nccl(options);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(NcclStartTest, EveryWishIsGrantedByTheHeadersVersion) {
  for (const auto registration :
       {NcclOptions::Register::none, NcclOptions::Register::local, NcclOptions::Register::window}) {
    for (const auto policy :
         {NcclOptions::CtaPolicy::library, NcclOptions::CtaPolicy::efficiency, NcclOptions::CtaPolicy::zero}) {
      EXPECT_EQ(refusal({.registration = registration, .cta_policy = policy}), "");
    }
  }
}

TEST_F(NcclStartTest, AnOlderLibraryIsRefusedWhatItLacks) {
  fake::nccl::set_version(22605);
  EXPECT_EQ(nccl_version(), "2.26.5 (built with 2.28.9)");
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.registration = NcclOptions::Register::local, .max_ctas = 2}), "");
  EXPECT_EQ(refusal({.registration = NcclOptions::Register::window}),
            "nccl.register_buffers = \"window\" needs NCCL 2.27 or newer; this process runs with 2.26.5 and was built "
            "with 2.28.9.");
  EXPECT_EQ(refusal({.cta_policy = NcclOptions::CtaPolicy::efficiency}),
            "nccl.cta_policy = \"efficiency\" needs NCCL 2.27 or newer; this process runs with 2.26.5 and was built "
            "with 2.28.9.");
  fake::nccl::set_version(22703);
  EXPECT_EQ(refusal({.cta_policy = NcclOptions::CtaPolicy::efficiency}), "");
  EXPECT_EQ(refusal({.cta_policy = NcclOptions::CtaPolicy::zero}),
            "nccl.cta_policy = \"zero\" needs NCCL 2.28 or newer; this process runs with 2.27.3 and was built with "
            "2.28.9.");
}

TEST_F(NcclStartTest, ALibraryThatIsTooOldIsRefusedAltogether) {
  fake::nccl::set_version(21805);
  EXPECT_EQ(refusal({}),
            "fsdpbench needs NCCL 2.19 or newer; this process runs with 2.18.5 and was built with 2.28.9.");
  EXPECT_THAT(NcclRun{.ranks = 2}.failure([](NcclRankContext&) {}), testing::HasSubstr("needs NCCL 2.19"));
}

/// An exchange of one rank that says what was asked of it.
class RecordedExchange : public IdExchange {
 public:
  explicit RecordedExchange(std::string answer) : answer_(std::move(answer)) {}
  std::string from_root(int rank, std::string bytes) override {
    asked[rank] = bytes;
    return answer_;
  }
  void barrier(int /*rank*/) override {}
  std::map<int, std::string> asked;

 private:
  std::string answer_;
};

TEST_F(NcclStartTest, RankZeroMakesTheIdAndTheOthersTakeIt) {
  const std::string id(NCCL_UNIQUE_ID_BYTES, 'x');
  RecordedExchange ids(id);
  EXPECT_EQ(std::string(exchange_nccl_id(ids, 0).internal, id.size()), id);
  EXPECT_EQ(std::string(exchange_nccl_id(ids, 1).internal, id.size()), id);
  EXPECT_EQ(ids.asked[0].substr(0, 6), "fake 1");
  EXPECT_EQ(ids.asked[0].size(), id.size());
  EXPECT_EQ(ids.asked[1], "");
}

TEST_F(NcclStartTest, AnIdOfTheWrongLengthIsAnError) {
  RecordedExchange ids("short");
  try {
    exchange_nccl_id(ids, 1);
    FAIL() << "nothing was thrown";
  } catch (const BackendError& e) {
    EXPECT_STREQ(e.what(), "rank 1: NCCL's id has 128 bytes, and 5 arrived from rank 0");
  }
}

TEST_F(NcclStartTest, WithACommIdInTheEnvironmentNothingTravels) {
  setenv("NCCL_COMM_ID", "10.0.0.1:4000", 1);
  RecordedExchange ids("not asked");
  EXPECT_STREQ(exchange_nccl_id(ids, 0).internal, "10.0.0.1:4000");
  EXPECT_STREQ(exchange_nccl_id(ids, 1).internal, "10.0.0.1:4000");
  EXPECT_TRUE(ids.asked.empty());
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) { EXPECT_EQ(rank.world.size(), 2); });
  unsetenv("NCCL_COMM_ID");
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
