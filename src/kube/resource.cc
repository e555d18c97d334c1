#include "kube/resource.h"

namespace gpuop::kube {

std::string Resource::api_version() const {
  if (group.empty()) return std::string(version);
  return std::string(group) + "/" + std::string(version);
}

std::string Resource::path(std::string_view ns) const {
  std::string out = group.empty() ? "/api/" : "/apis/" + std::string(group) + "/";
  out += version;
  if (namespaced && !ns.empty()) {
    out += "/namespaces/";
    out += ns;
  }
  out += "/";
  out += plural;
  return out;
}

std::string Resource::path(std::string_view ns, std::string_view name, std::string_view sub) const {
  std::string out = path(ns);
  out += "/";
  out += name;
  if (!sub.empty()) {
    out += "/";
    out += sub;
  }
  return out;
}

}  // namespace gpuop::kube
