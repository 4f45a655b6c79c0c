#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace fsdpbench::config {

using fsdpbench::TemporaryFolder;

/// The message of the ConfigError that `action` throws; fails the test if it throws none.
template <class Action>
std::string config_error(Action&& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError was thrown";
  return {};
}

}  // namespace fsdpbench::config
