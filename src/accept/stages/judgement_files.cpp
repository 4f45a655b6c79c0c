#include "accept/stages/judgement_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/clean_text.h"

namespace fsdpbench::app {
namespace {

using accept::Judgement;
using accept::Verdict;

/// Text between tags and in attributes; what XML 1.0 does not allow is left out.
std::string xml(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text, kMostOfAMessage)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
  }
  return out;
}

/// Markdown's markup for cells, code, HTML, links, emphasis, entities, mentions and issues: a backslash takes its meaning
/// away. Without `_`, which names of figures contain, and which has no meaning within a word.
constexpr std::string_view kMarkup = "\\|`<>[]*~&#@";

/// The first 19 characters of a date with its offset are XML's dateTime, as Ant writes it; anything else is none.
std::string timestamp(std::string_view date) {
  return date.size() < 19 ? "" : fmt::format(" timestamp=\"{}\"", xml(date.substr(0, 19)));
}

}  // namespace

std::string place_text(const accept::Place& place) {
  std::string text;
  for (const auto& [word, name] : {std::pair{"host ", &place.host}, {"device ", &place.device}, {"UUID ", &place.uuid}, {"NIC ", &place.nic},
                                   {"slow where it ", &place.direction}}) {
    const std::string_view said = std::string_view(*name).starts_with(word) ? std::string_view() : word;  // "NIC NIC 0"
    if (!name->empty()) text += fmt::format("{}{}{}", text.empty() ? "" : ", ", said, *name);
  }
  return text;
}

std::string junit_xml(const JunitSuite& suite, std::span<const Judgement> judgements) {
  const auto count = [&](Verdict v) { return std::ranges::count(judgements, v, &Judgement::verdict); };
  const std::string counts = fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\"", judgements.size(),
                                         count(Verdict::fail), count(Verdict::inconclusive));
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"fsdpbench\" {0} time=\"{1:.3f}\">\n  <testsuite "
      "name=\"{2}\" {0} skipped=\"{3}\" time=\"{1:.3f}\" hostname=\"{4}\"{5}>\n",
      counts, suite.seconds, xml(suite.suite), count(Verdict::unrated),
      suite.host.empty() ? "localhost" : xml(suite.host), timestamp(suite.date));
  if (!suite.headline.empty()) {
    text += fmt::format("    <properties><property name=\"headline\" value=\"{}\"/></properties>\n", xml(suite.headline));
  }
  for (const Judgement& j : judgements) {
    text += fmt::format("    <testcase classname=\"{}.{}\" name=\"{}\" time=\"0\">", xml(suite.suite), xml(j.rule),
                        xml(j.figure));
    const std::string why = xml(j.sentence);
    switch (j.verdict) {
      case Verdict::fail: text += fmt::format("<failure type=\"{}\" message=\"{}\"/>", xml(j.rule), why); break;
      case Verdict::inconclusive: text += fmt::format("<error type=\"{}\" message=\"{}\"/>", xml(j.rule), why); break;
      case Verdict::unrated: text += fmt::format("<skipped message=\"{}\"/>", why); break;
      case Verdict::pass: text += fmt::format("<system-out>{}</system-out>", why); break;
    }
    if (const std::string place = place_text(j.place); !place.empty()) {
      text += fmt::format("<system-out>{}</system-out>", xml(place));
    }
    text += "</testcase>\n";
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text, kMostOfAMessage)) {
    if (kMarkup.find(c) != kMarkup.npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace fsdpbench::app
