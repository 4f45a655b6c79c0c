// Digests that files hold: the same everywhere and for ever, and another one for any other value.

#include "base/digest.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace fsdpbench {
namespace {

using nlohmann::json;

TEST(JsonDigest, IsOfValuesAndNotOfText) {
  const json j = json::parse(R"({"b": [1, 2.5, "x"], "a": {"c": null, "d": true}})");
  EXPECT_EQ(json_digest(j), json_digest(json::parse(j.dump(4))));
  EXPECT_EQ(json_digest(j), "c5e1b56153ea5716") << "files hold it";
  json with = j;
  with["digest"] = "whatever";
  EXPECT_EQ(json_digest(with), json_digest(j));
  with["a"]["digest"] = "it is the document's at the top only";
  EXPECT_NE(json_digest(with), json_digest(j));
}

TEST(JsonDigest, WhatIsWrittenAsNullIsNull) {
  json j{{"loss", std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_EQ(json_digest(j), json_digest(json::parse(j.dump())));
}

TEST(JsonDigest, DiffersForEveryOtherValue) {
  std::set<std::string> all;
  int count = 0;
  for (const char* text : {R"({})",
                           R"([])",
                           R"(null)",
                           R"({"a": 1})",
                           R"({"a": 1.0})",
                           R"({"a": -1})",
                           R"({"a": "1"})",
                           R"({"a": true})",
                           R"({"a": false})",
                           R"({"a": null})",
                           R"({"b": 1})",
                           R"({"a": [1]})",
                           R"({"a": [1, 2]})",
                           R"({"a": [12]})",
                           R"({"a": [[1], 2]})",
                           R"({"a": [[1, 2]]})",
                           R"({"a": ["1", "2"]})",
                           R"({"a": ["12"]})",
                           R"({"a": 1.0000000000000002})",
                           R"({"a": 1, "b": 1})",
                           R"({"a": {"b": 1}})",
                           R"({"ab": 1})",
                           R"({"a": 18446744073709551615})"}) {
    all.insert(json_digest(json::parse(text)));
    ++count;
  }
  EXPECT_EQ(all.size(), static_cast<std::size_t>(count));
}

TEST(StableHash, IsFnv1a) {
  EXPECT_EQ(stable_hash(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(stable_hash("a"), 0xaf63dc4c8601ec8cULL);  // the authors' own test vector
}

}  // namespace
}  // namespace fsdpbench
