// What the real server refuses in single fields of a pod's spec: names, labels, tolerations, profiles.
#pragma once

#include <string>

#include "base/json.h"
#include "cluster/apiserver/status.h"

namespace gpuop::cluster::api {

void check_tolerations(const Json& spec, const std::string& path, FieldErrors& errors);
// Labels by which a pod selects its node.
void check_node_selector(const Json& spec, const std::string& path, FieldErrors& errors);
// The pod's own security context, or a container's.
void check_security_context(const Json& owner, const std::string& path, FieldErrors& errors);
void check_priority_class_name(const Json& spec, const std::string& path, FieldErrors& errors);
void check_host_path(const Json& volume, const std::string& path, FieldErrors& errors);
void check_env_names(const Json& container, const std::string& path, FieldErrors& errors);
void check_resource_name(std::string_view name, const std::string& field, FieldErrors& errors);
// Labels and annotations of a workload's template.
void check_template_metadata(const Json& object, FieldErrors& errors);

}  // namespace gpuop::cluster::api
