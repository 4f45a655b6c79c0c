#pragma once

#include <string>
#include <vector>

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

/// What an exporter of metrics answers to GET /metrics, in HTTP without TLS: the text, without the headers. Waits
/// `patience_s` seconds at most for all of it, and takes 64 MiB at most. Throws ConfigError with a sentence.
std::string ask_metrics(const Endpoint& endpoint, double patience_s);

/// What several exporters answer, each asked by a thread of its own, 32 at a time.
struct MetricsAnswer {
  std::string text;
  std::string why;  ///< why there is no text; empty: there is
};
std::vector<MetricsAnswer> ask_metrics(const std::vector<Endpoint>& endpoints, double patience_s);

inline constexpr int kDcgmPort = 9400;  ///< dcgm-exporter's default
inline constexpr double kMetricsPatience_s = 3;
inline constexpr int kRasPort = 28028;        ///< NCCL's default
inline constexpr double kRasPatience_s = 15;  ///< RAS itself gives up after 10 s

/// What RAS says of a job that goes on no more, for people: which ranks have not come or are gone, in which
/// communicator; where it accuses nobody, why. Never throws: that it was not heard is a sentence, too.
std::vector<std::string> ras_of_stopped_job(const Endpoint& endpoint, double patience_s);

}  // namespace fsdpbench::app
