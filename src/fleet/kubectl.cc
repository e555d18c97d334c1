#include "fleet/kubectl.h"

#include "kube/object.h"

namespace gpuop::fleet {

std::string kubectl(std::string_view ns, std::string_view what, std::string_view name) {
  return "kubectl " + (ns.empty() ? "" : "-n " + std::string(ns) + " ") + std::string(what) + " " +
         std::string(name);
}

std::string kubectl(const Json& object, std::string_view what) {
  return kubectl(kube::namespace_of(object), what, kube::name_of(object));
}

}  // namespace gpuop::fleet
