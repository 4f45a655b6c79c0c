#pragma once

#include <string>
#include <string_view>

namespace fsdpbench::app {

/// Where another program answers over TCP.
struct Endpoint {
  std::string option;  ///< that named it: "--ras"
  std::string host;    ///< a name or numeric address
  int port = 0;
  std::string name() const;  ///< "host:port", with brackets around IPv6 addresses
};

/// Reads HOST, HOST:PORT or [IPV6]:PORT. Throws ConfigError.
Endpoint read_endpoint(const std::string& option, const std::string& text, int default_port);

/// The status of a job in JSON from NCCL's RAS (its client protocol 2; src/ras/client.cc of NCCL). Waits `patience_s`
/// seconds at most for all of it, and takes 64 MiB at most. Throws ConfigError with a sentence where nobody answers, or
/// something else does.
std::string ask_ras(const Endpoint& endpoint, double patience_s);

}  // namespace fsdpbench::app
