// A scenario: steps against an API server, as a text file that anyone can add (README.md here).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gpuop::conformance {

struct Step {
  enum class Kind {
    kRequest,  // METHOD PATH
    kWatch,    // WATCH ID PATH: left open
    kEvents,   // EVENTS ID COUNT|end
    kUntil,    // UNTIL PATH CONDITION…: waits for an object
    kFile,     // FILE NAME, SCRIPT NAME: written into the folder that kubectl runs in
    kProgram,  // [NAME=VALUE…] kubectl ARGUMENT…, or helm
  };
  Kind kind = Kind::kRequest;
  int line = 0;
  bool quiet = false;    // ">-": not recorded; must succeed
  bool cleanup = false;  // after CLEANUP: whatever it answers
  std::string title;     // the step's line
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  bool executable = false;  // of a file

  std::vector<std::string> picks;                         // @pick PATH: only these parts of the answer
  std::vector<std::string> drops;                         // @drop PATH: not these
  std::vector<std::string> sorts;                         // @sort PATH: a list whose order means nothing
  std::vector<std::pair<std::string, std::string>> sets;  // @set NAME PATH: $NAME from here on
};

struct Scenario {
  std::string area, name;  // folder and file
  std::string about;       // the comment at its head
  std::vector<Step> steps;
  std::filesystem::path file;

  std::string id() const { return area + "/" + name; }
  // Where the real API server's answers are kept.
  std::filesystem::path recording() const;
};

// Errors name the file and the line.
Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& file);
// Every AREA/NAME.txt below `folder`, sorted.
Result<std::vector<Scenario>> load_scenarios(const std::filesystem::path& folder);

// Words as a shell would part them: '…' and "…" keep blanks.
Result<std::vector<std::string>> shell_words(std::string_view line);

}  // namespace gpuop::conformance
