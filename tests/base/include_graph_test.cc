// Rooms include downwards only: what a room's files include must be among the DEPS of its CMakeLists.txt,
// its own folder, or what those rooms stand on.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "base/files.h"
#include "base/text.h"

namespace gpuop {
namespace {

struct Room {
  fs::path folder;         // below src/
  bool interface = false;  // headers only, of a folder whose sources are another room's
  std::set<std::string> deps;
};

// Room name to its folder and declared dependencies, from every gpuop_room(…) call.
std::map<std::string, Room> declared_rooms(const fs::path& src) {
  std::map<std::string, Room> rooms;
  for (const auto& entry : fs::recursive_directory_iterator(src)) {
    if (entry.path().filename() != "CMakeLists.txt") continue;
    const std::string text = *read_file(entry.path());
    static const std::regex call(R"((gpuop_room|add_library)\(([a-z_0-9]+)([^)]*)\))");
    static const std::regex link(R"(target_link_libraries\(([a-z_0-9]+)([^)]*)\))");
    for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at) {
      Room& room = rooms[(*at)[2]];
      room.folder = fs::relative(entry.path().parent_path(), src);
      room.interface = (*at)[3].str().find("INTERFACE") != std::string::npos;
      bool dep = false;
      for (const auto& word : split_fields((*at)[3].str())) {
        if (word == "DEPS")
          dep = true;
        else if (word == "LIBS" || word.starts_with("TEST_") || word == "EXCLUDE")
          dep = false;
        else if (dep)
          room.deps.insert(word);
      }
    }
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      for (const auto& word : split_fields((*at)[2].str())) rooms[(*at)[1]].deps.insert(word);
    }
  }
  return rooms;
}

TEST(base, include_graph_follows_the_declared_rooms) {
  const fs::path src = fs::path(SOURCE_ROOT) / "src";
  const auto rooms = declared_rooms(src);
  ASSERT_TRUE(rooms.contains("base"));
  ASSERT_TRUE(rooms.contains("kube"));
  static const std::regex include("#include \"([^\"]+)/[^\"/]+\"");
  for (const auto& [name, room] : rooms) {
    if (room.folder.empty() || room.interface) continue;
    std::set<std::string> reach{room.folder.string()};
    // A folder may be built more than once (the host's static programs): what one of its targets may see
    // counts.
    std::vector<std::string> todo;
    for (const auto& [other, twin] : rooms) {
      if (twin.folder == room.folder) todo.insert(todo.end(), twin.deps.begin(), twin.deps.end());
    }
    std::set<std::string> seen;
    while (!todo.empty()) {
      const std::string dep = todo.back();
      todo.pop_back();
      const auto found = rooms.find(dep);
      if (found == rooms.end() || !seen.insert(dep).second) continue;
      reach.insert(found->second.folder.string());
      todo.insert(todo.end(), found->second.deps.begin(), found->second.deps.end());
    }
    for (const auto& entry : fs::directory_iterator(src / room.folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      const std::string text = *read_file(entry.path());
      for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at) {
        const std::string folder = (*at)[1];
        if (!fs::is_directory(src / folder)) continue;  // a generated file, or one of sim/
        EXPECT_TRUE(reach.contains(folder)) << entry.path().string() << " includes " << folder
                                            << ", which room " << name << " does not name in DEPS";
      }
    }
  }
}

}  // namespace
}  // namespace gpuop
