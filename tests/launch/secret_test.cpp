#include "launch/secret.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fsdpbench::launch {
namespace {

TEST(Secret, ProvesToWhoHasTheSame) {
  const Secret secret = Secret::random();
  const std::optional<Secret> same = Secret::from_text(secret.text());
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->proves(secret.prove({"a", "b"}), {"a", "b"}));
  EXPECT_FALSE(Secret::random().proves(secret.prove({"a", "b"}), {"a", "b"}));
  EXPECT_TRUE(Secret::of("a text of people").proves(Secret::of("a text of people").prove({"x"}), {"x"}));
}

TEST(Secret, AProofIsOfItsPartsAndOfWhereOneEnds) {
  const Secret secret = Secret::random();
  const std::string proof = secret.prove({"ab", "c"});
  EXPECT_FALSE(secret.proves(proof, {"a", "bc"}));
  EXPECT_FALSE(secret.proves(proof, {"ab", "c", ""}));
  std::string damaged = proof;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_FALSE(secret.proves(damaged, {"ab", "c"}));
  EXPECT_FALSE(secret.proves("", {"ab", "c"}));
}

TEST(Secret, TextsThatAreNoneAreRefused) {
  const std::string good = Secret::random().text();
  EXPECT_EQ(good.size(), 2 * Secret::kBytes);
  EXPECT_FALSE(Secret::from_text(""));
  EXPECT_FALSE(Secret::from_text(good.substr(1)));
  EXPECT_FALSE(Secret::from_text(good + "00"));
  EXPECT_FALSE(Secret::from_text("g" + good.substr(1)));
}

TEST(Secret, GuessableTextsAreRefusedAndNotRepeated) {
  try {
    (void)Secret::of("hunter2");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_EQ(std::string(e.what()).find("hunter2"), std::string::npos);
  }
}

TEST(Secret, NoncesDiffer) { EXPECT_NE(fresh_nonce(), fresh_nonce()); }

}  // namespace
}  // namespace fsdpbench::launch
