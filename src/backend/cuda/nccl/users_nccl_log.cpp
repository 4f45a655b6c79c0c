#include "backend/cuda/nccl/users_nccl_log.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "launch/host_identity.h"

namespace fsdpbench::backend::cuda {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

std::string expand_log_name(std::string_view name) {
  std::string expanded;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%' || i + 1 == name.size()) {
      expanded += name[i];
      continue;
    }
    switch (name[++i]) {
      case '%': expanded += '%'; break;
      case 'h': expanded += launch::host_name().substr(0, launch::host_name().find('.')); break;
      case 'p': expanded += std::to_string(getpid()); break;
      default: (expanded += '%') += name[i];
    }
  }
  return expanded;
}

UsersNcclLog::UsersNcclLog() : level_(upper(variable("NCCL_DEBUG"))), subsystems_(variable("NCCL_DEBUG_SUBSYS")) {
  // NCCL opens the file from level WARN on; what it cannot open is standard output.
  const std::string name = expand_log_name(variable("NCCL_DEBUG_FILE"));
  if (!name.empty() && !level_.empty() && level_ != "VERSION") file_ = std::fopen(name.c_str(), "we");
}

UsersNcclLog::~UsersNcclLog() {
  if (file_ != nullptr) std::fclose(file_);
}

bool UsersNcclLog::wants(std::string_view line) const {
  if (level_ == "INFO" || level_ == "ABORT" || level_ == "TRACE") {
    return !subsystems_.empty() || !has(line, " Bytes -> ");  // which NCCL leaves out if it is not asked for them
  }
  if (has(line, "NCCL version")) return level_ == "VERSION" || level_ == "WARN";
  return level_ == "WARN" && has(line, " NCCL WARN ");
}

void UsersNcclLog::show(std::string_view line) {
  if (!wants(line)) return;
  std::FILE* const target = file_ != nullptr ? file_ : stdout;
  std::fprintf(target, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(target);
}

std::string UsersNcclLog::level() const { return level_ == "ABORT" || level_ == "TRACE" ? level_ : "INFO"; }

std::string UsersNcclLog::subsystems() const {
  if (subsystems_.empty()) return "INIT,BOOTSTRAP,ENV,TUNING";  // the first three are NCCL's choice
  if (subsystems_.front() == '^' || has(upper(subsystems_), "ALL")) return subsystems_;
  return subsystems_ + ",INIT,TUNING";
}

}  // namespace fsdpbench::backend::cuda
