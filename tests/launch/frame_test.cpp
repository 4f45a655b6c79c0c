#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "launch/handshake.h"

namespace fsdpbench::launch {
namespace {

TEST(Frame, IsReadHoweverItsBytesArrive) {
  const std::string bytes = encode(FrameKind::message, "topic", std::string(1000, 'x')) +
                            encode(FrameKind::heartbeat, "", "") + encode(FrameKind::goodbye, "t", "p");
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      reader.append(std::string_view(bytes).substr(at, step));
      while (auto frame = reader.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(frames[0].kind, FrameKind::message);
    EXPECT_EQ(frames[0].topic, "topic");
    EXPECT_EQ(frames[0].payload, std::string(1000, 'x'));
    EXPECT_EQ(frames[1].kind, FrameKind::heartbeat);
    EXPECT_EQ(frames[2].kind, FrameKind::goodbye);
    EXPECT_EQ(frames[2].payload, "p");
  }
}

TEST(Frame, ManyFramesInOneBuffer) {
  std::string bytes;
  for (int i = 0; i < 10'000; ++i) bytes += encode(FrameKind::message, "t", std::to_string(i));
  FrameReader reader;
  reader.append(bytes);
  for (int i = 0; i < 10'000; ++i) {
    const auto frame = reader.next();
    ASSERT_TRUE(frame);
    ASSERT_EQ(frame->payload, std::to_string(i));
  }
  EXPECT_FALSE(reader.next());
}

TEST(Frame, GarbageIsAnErrorAtOnce) {
  const std::string good = encode(FrameKind::message, "topic", "payload");
  // Magic, kind, length of topic, length of payload: each is checked before any of it is waited for.
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{9}, std::size_t{21}}) {
    std::string bad = good;
    bad[at] = static_cast<char>(0x7f);
    FrameReader reader;
    reader.append(bad);
    EXPECT_THROW(reader.next(), BackendError) << at;
  }
}

TEST(Frame, WhatIsTooLongIsNotSent) {
  EXPECT_THROW(encode(FrameKind::message, std::string(kMostTopicBytes + 1, 't'), ""), BackendError);
  EXPECT_NO_THROW(encode(FrameKind::message, std::string(kMostTopicBytes, 't'), ""));
}

TEST(Pack, RoundTrips) {
  for (const std::vector<std::string>& texts :
       std::vector<std::vector<std::string>>{{}, {""}, {"a", "", std::string("\0b", 2)}, {std::string(100'000, 'c')}}) {
    EXPECT_EQ(unpack(pack(texts)), texts);
  }
}

TEST(Pack, CutBytesAreAnError) {
  const std::string bytes = pack({"some", "texts"});
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    if (size == sizeof(std::uint64_t) + 4) continue;  // "some" alone
    EXPECT_THROW(unpack(bytes.substr(0, size)), BackendError) << size;
  }
}

}  // namespace
}  // namespace fsdpbench::launch
