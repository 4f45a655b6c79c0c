#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/placement.h"

namespace fsdpbench::launch {
namespace {

TEST(SlurmLists, FirstHost) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("node7,node8"), "node7");
  EXPECT_EQ(first_host("node[003-007,9],x"), "node003");
  EXPECT_EQ(first_host("login1,node[003-007]"), "login1");
  EXPECT_EQ(first_host("rack[2-3]node[05,07]-ib,x"), "rack2node05-ib");
  EXPECT_EQ(first_host("n[12]"), "n12");
  for (const char* wrong : {"", ",", "n[", "n[]", "n[-3]", "n]3"}) EXPECT_FALSE(first_host(wrong)) << wrong;
}

TEST(SlurmLists, TasksOnNode) {
  EXPECT_EQ(tasks_on_node("8", 0), 8);
  EXPECT_EQ(tasks_on_node("8(x2),4", 0), 8);
  EXPECT_EQ(tasks_on_node("8(x2),4", 1), 8);
  EXPECT_EQ(tasks_on_node("8(x2),4", 2), 4);
  EXPECT_EQ(tasks_on_node("1,2,3(x3)", 4), 3);
  EXPECT_FALSE(tasks_on_node("8(x2),4", 3));
  for (const char* wrong : {"", "x", "8(2)", "8(x)", "8(x2", "-1", "8;4"})
    EXPECT_FALSE(tasks_on_node(wrong, 1)) << wrong;
}

}  // namespace
}  // namespace fsdpbench::launch
