#include "scenario.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::conformance {

namespace {

const std::set<std::string, std::less<>> kMethods = {
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "MERGE", "JSONPATCH", "APPLY", "STRATEGIC"};

bool is_assignment(const std::string& word) {
  std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
}

class Parser {
 public:
  Parser(std::string_view text, const fs::path& file) : text_(text), file_(file) {}

  Result<Scenario> parse() {
    scenario_.file = file_;
    scenario_.name = file_.stem().string();
    scenario_.area = file_.parent_path().filename().string();
    for (const std::string& line : split(text_, '\n')) {
      ++line_;
      TRY(take(line));
    }
    if (scenario_.steps.empty()) return wrong("no steps");
    for (Step& step : scenario_.steps) {
      while (step.body.ends_with("\n\n")) step.body.pop_back();
      if (trim(step.body).empty()) step.body.clear();
    }
    return std::move(scenario_);
  }

 private:
  std::unexpected<Error> wrong(const std::string& why) const {
    return fail(Code::kInvalid,
                "read scenario '" + file_.string() + "': line " + std::to_string(line_) + ": " + why);
  }

  Result<> take(const std::string& line) {
    if (line.starts_with(">> @")) return option(line.substr(4));
    if (line.starts_with(">> ")) return header(line.substr(3));
    if (line == "> CLEANUP") {
      cleanup_ = true;
      return {};
    }
    if (line.starts_with("> ") || line.starts_with(">- ")) return step(line);
    if (scenario_.steps.empty()) {
      if (line.starts_with("#")) scenario_.about += std::string(trim(line.substr(1))) + "\n";
      if (!line.empty() && !line.starts_with("#")) return wrong("text before the first step");
      return {};
    }
    scenario_.steps.back().body += line + "\n";
    return {};
  }

  Result<> step(const std::string& line) {
    Step made;
    made.line = line_;
    made.quiet = line.starts_with(">-");
    made.cleanup = cleanup_;
    made.title = std::string(trim(line.substr(2)));
    made.words = TRY(shell_words(made.title));
    if (made.words.empty()) return wrong("an empty step");
    const std::string& word = made.words[0];
    std::size_t least = 2;
    if (kMethods.contains(word)) {
      made.kind = Step::Kind::kRequest;
    } else if (word == "WATCH") {
      made.kind = Step::Kind::kWatch;
      least = 3;
    } else if (word == "EVENTS") {
      made.kind = Step::Kind::kEvents;
      least = 3;
    } else if (word == "UNTIL") {
      made.kind = Step::Kind::kUntil;
      least = 3;
    } else if (word == "FILE" || word == "SCRIPT") {
      made.kind = Step::Kind::kFile;
      made.quiet = true;
      made.executable = word == "SCRIPT";
    } else if (word == "kubectl" || word == "helm" || is_assignment(word)) {
      made.kind = Step::Kind::kProgram;
    } else {
      return wrong("no step '" + word + "'");
    }
    if (made.words.size() < least) return wrong("'" + word + "' wants more words");
    scenario_.steps.push_back(std::move(made));
    return {};
  }

  Result<> header(const std::string& text) {
    std::size_t colon = text.find(':');
    if (scenario_.steps.empty() || colon == std::string::npos) return wrong("a header is 'Name: value'");
    scenario_.steps.back().headers.emplace_back(text.substr(0, colon),
                                                std::string(trim(text.substr(colon + 1))));
    return {};
  }

  Result<> option(const std::string& text) {
    if (scenario_.steps.empty()) return wrong("an option before the first step");
    Step& step = scenario_.steps.back();
    std::size_t space = text.find(' ');
    std::string word = text.substr(0, space);
    std::string rest = space == std::string::npos ? "" : std::string(trim(text.substr(space + 1)));
    if (word == "pick") {
      step.picks.push_back(rest);
    } else if (word == "drop") {
      step.drops.push_back(rest);
    } else if (word == "sort") {
      step.sorts.push_back(rest);
    } else if (word == "set") {
      std::size_t gap = rest.find(' ');
      if (gap == std::string::npos) return wrong("@set wants a name and a path");
      step.sets.emplace_back(rest.substr(0, gap), std::string(trim(rest.substr(gap + 1))));
    } else {
      return wrong("no option '@" + word + "'; there are pick, drop, sort, set");
    }
    return {};
  }

  std::string_view text_;
  fs::path file_;
  Scenario scenario_;
  int line_ = 0;
  bool cleanup_ = false;
};

}  // namespace

fs::path Scenario::recording() const {
  fs::path path = file;
  return path.replace_extension(".real.json");
}

Result<std::vector<std::string>> shell_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;
  char quote = 0;
  for (char c : line) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word.push_back(c);
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      open = true;
    } else if (c == ' ') {
      if (open) words.push_back(std::exchange(word, {}));
      open = false;
    } else {
      word.push_back(c);
      open = true;
    }
  }
  if (quote != 0) return fail(Code::kInvalid, "part '" + std::string(line) + "': a quote is not closed");
  if (open) words.push_back(word);
  return words;
}

Result<Scenario> parse_scenario(std::string_view text, const fs::path& file) {
  return Parser(text, file).parse();
}

Result<std::vector<Scenario>> load_scenarios(const fs::path& folder) {
  std::vector<Scenario> all;
  auto areas = TRY(list_dir(folder));
  for (const std::string& area : areas) {
    auto names = TRY(list_dir(folder / area));
    for (const std::string& name : names) {
      if (!name.ends_with(".txt")) continue;
      fs::path file = folder / area / name;
      std::string text = TRY(read_file(file));
      all.push_back(TRY(parse_scenario(text, file)));
    }
  }
  return all;
}

}  // namespace gpuop::conformance
