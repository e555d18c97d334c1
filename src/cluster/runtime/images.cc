#include "cluster/runtime/images.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace gpuop::cluster {
namespace {

bool name_part_ok(std::string_view part) {
  if (part.empty()) return false;
  auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (!alnum(part.front()) || !alnum(part.back())) return false;
  return std::all_of(part.begin(), part.end(),
                     [&](char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
}

bool tag_ok(std::string_view tag) {
  if (tag.empty() || tag.size() > 128 || tag.front() == '.' || tag.front() == '-') return false;
  return std::all_of(tag.begin(), tag.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; });
}

bool is_registry(std::string_view part) {
  return part == "localhost" || part.find_first_of(".:") != std::string_view::npos;
}

// "a/b:tag" or "a/b@sha256:…" into name, tag and digest.
struct Parts {
  std::string name, tag, digest;
};
Parts take_apart(const std::string& reference) {
  Parts parts;
  std::string rest = reference;
  if (std::size_t at = rest.find('@'); at != std::string::npos) {
    parts.digest = rest.substr(at + 1);
    rest.resize(at);
  }
  std::size_t slash = rest.rfind('/');
  std::size_t colon = rest.rfind(':');
  if (colon != std::string::npos && (slash == std::string::npos || colon > slash)) {
    parts.tag = rest.substr(colon + 1);
    rest.resize(colon);
  }
  parts.name = rest;
  return parts;
}

std::unexpected<Error> not_found(const std::string& reference, const std::string& why) {
  return fail(Code::kNotFound, "failed to pull and unpack image \"" + reference +
                                   "\": failed to resolve reference \"" + reference + "\": " + reference +
                                   ": not found" + (why.empty() ? "" : " (" + why + ")"));
}

bool is_version(std::string_view text) {
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text.front()))) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) || c == '.'; });
}

// The driver's version in a tag that fits this node.
Result<std::string> driver_version(const ImageTable& table, const std::string& reference,
                                   const std::string& tag) {
  std::size_t first = tag.find('-'), last = tag.rfind('-');
  if (first == std::string::npos || !is_version(std::string_view(tag).substr(0, first))) {
    return not_found(reference, "driver tags are VERSION-OS");
  }
  std::string version = tag.substr(0, first), os = tag.substr(last + 1);
  if (os != table.os_tag) {
    return not_found(reference, "this node runs " + table.os_tag + ", the tag is for " + os);
  }
  if (first != last) {
    std::string kernel = tag.substr(first + 1, last - first - 1);
    if (kernel != table.kernel) {
      return not_found(reference, "this node's kernel is " + table.kernel + ", the tag is for " + kernel);
    }
  }
  return version;
}

bool row_matches(const ImageRow& row, const Parts& parts, const std::string& reference) {
  if (!row.reference.starts_with("*/")) return normal_reference(row.reference).value_or("") == reference;
  std::string_view wanted = std::string_view(row.reference).substr(2);
  return parts.name.size() > wanted.size() && parts.name.ends_with(wanted) &&
         parts.name[parts.name.size() - wanted.size() - 1] == '/';
}

}  // namespace

Result<std::string> normal_reference(const std::string& reference) {
  auto bad = [&] {
    return fail(Code::kInvalid, "Failed to apply default image tag \"" + reference +
                                    "\": couldn't parse image name \"" + reference +
                                    "\": invalid reference format");
  };
  Parts parts = take_apart(reference);
  std::vector<std::string> names = split(parts.name, '/');
  bool registry = names.size() > 1 && is_registry(names[0]);
  for (std::size_t i = registry ? 1 : 0; i < names.size(); ++i) {
    if (!name_part_ok(names[i])) return bad();
  }
  if (!parts.digest.empty() && (!parts.digest.starts_with("sha256:") || parts.digest.size() != 71))
    return bad();
  if (!parts.tag.empty() && !tag_ok(parts.tag)) return bad();
  if (parts.tag.empty() && reference.ends_with(":")) return bad();
  std::string name =
      registry ? parts.name : "docker.io/" + std::string(names.size() == 1 ? "library/" : "") + parts.name;
  if (parts.tag.empty() && parts.digest.empty()) parts.tag = "latest";
  return name + (parts.tag.empty() ? "" : ":" + parts.tag) + (parts.digest.empty() ? "" : "@" + parts.digest);
}

Result<Image> ImageTable::resolve(const std::string& reference) const {
  std::string full = TRY(normal_reference(reference));
  Parts parts = take_apart(full);
  for (const ImageRow& row : rows) {
    if (!row_matches(row, parts, full)) continue;
    Image image{"", row.layers, row.entrypoint, row.env};
    if (row.driver) image.env.push_back("DRIVER_VERSION=" + TRY(driver_version(*this, full, parts.tag)));
    image.id = "sha256:" + sha256_hex(full + "\n" + join(image.layers, "\n"));
    return image;
  }
  return not_found(full, "a simulated node has the operator's own image and the NVIDIA driver's");
}

Json to_json(const ImageTable& table) {
  auto list = [](const std::vector<std::string>& texts) {
    JsonArray out;
    for (const std::string& text : texts) out.emplace_back(text);
    return out;
  };
  JsonArray rows;
  for (const ImageRow& row : table.rows) {
    rows.push_back(JsonObject{{"reference", row.reference},
                              {"layers", list(row.layers)},
                              {"entrypoint", list(row.entrypoint)},
                              {"env", list(row.env)},
                              {"driver", row.driver}});
  }
  return JsonObject{{"osTag", table.os_tag}, {"kernel", table.kernel}, {"images", std::move(rows)}};
}

Result<ImageTable> image_table_from_json(const Json& json) {
  ImageTable table;
  table.os_tag = str(get_string(json, {"osTag"}));
  table.kernel = str(get_string(json, {"kernel"}));
  auto list = [](const Json& row, std::string_view key) {
    std::vector<std::string> out;
    for (const Json& item : get_array(row, {key})) out.push_back(str(as_text(item)));
    return out;
  };
  std::size_t index = 0;
  for (const Json& item : get_array(json, {"images"})) {
    ImageRow row{str(get_string(item, {"reference"})), list(item, "layers"), list(item, "entrypoint"),
                 list(item, "env"), get_bool(item, {"driver"})};
    std::string path = "images[" + std::to_string(index++) + "]";
    if (row.reference.empty()) return fail(Code::kInvalid, path + ".reference: must be given");
    if (row.layers.empty()) return fail(Code::kInvalid, path + ".layers: must name at least one folder");
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace gpuop::cluster
