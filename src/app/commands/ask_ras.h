#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// TCP address at which NCCL's RAS answers.
struct Endpoint {
  std::string option;  ///< that named it: "--ras"
  std::string host;    ///< a name or numeric address
  int port = 0;
  std::string name() const;  ///< "host:port", with brackets around IPv6 addresses
};

/// Reads HOST, HOST:PORT or [IPV6]:PORT. Throws ConfigError.
Endpoint read_endpoint(const std::string& option, const std::string& text, int default_port);

inline constexpr int kRasPort = 28028;        ///< NCCL's default
inline constexpr double kRasPatience_s = 15;  ///< RAS itself gives up after 10 s

/// Report of RAS on a job that has stopped, for people: which ranks have not come or are gone, in which
/// communicator; where it accuses nobody, why. Waits `patience_s` seconds at most. Never throws: that it was not heard
/// is a sentence, too.
std::vector<std::string> ras_of_stopped_job(const Endpoint& endpoint, double patience_s);

/// Report from one answer in JSON (src/ras/client_support.cc of NCCL), without its source; empty: it accuses nobody.
/// Throws ConfigError if it is none.
std::vector<std::string> judge_ras_answer(const std::string& answer);

}  // namespace fsdpbench::app
