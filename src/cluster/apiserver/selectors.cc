#include "cluster/apiserver/selectors.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

namespace {

// The fields that each built-in type offers beside metadata.name and metadata.namespace.
const std::map<std::string_view, std::vector<std::string_view>>& offered() {
  static const std::map<std::string_view, std::vector<std::string_view>> fields = {
      {"/pods",
       {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"}},
      {"/nodes", {"spec.unschedulable"}},
      {"/events",
       {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type"}},
      {"/secrets", {"type"}},
      {"/services", {"spec.clusterIP", "spec.type"}},
      {"/namespaces", {"status.phase"}},
      {"batch/jobs", {"status.successful"}}};
  return fields;
}

bool is_offered(const ResourceType& type, std::string_view field) {
  if (field == "metadata.name" || field == "metadata.namespace") return true;
  if (type.custom) return type.custom->selectable(field);
  auto found = offered().find(type.store);
  if (found == offered().end()) return false;
  return std::find(found->second.begin(), found->second.end(), field) != found->second.end();
}

// What the object says under a selector's field: text, number or boolean as text.
std::string field_text(const Json& object, const std::vector<std::string>& path) {
  const Json* at = &object;
  for (const std::string& key : path) {
    const JsonObject* map = at->if_object();
    at = map == nullptr ? nullptr : map->if_contains(key);
    if (at == nullptr) return {};
  }
  if (at->is_string()) return str(as_text(*at));
  if (at->is_null() || at->is_object() || at->is_array()) return {};
  return to_text(*at);
}

// The newer events name some fields differently; the stored shape is the older one.
std::string stored_field(const ResourceType& type, std::string field) {
  if (type.group == "events.k8s.io" && field.starts_with("regarding."))
    return "involvedObject" + field.substr(9);
  if (type.group == "events.k8s.io" && field == "reportingController") return "reportingComponent";
  return field;
}

std::vector<std::string> path_of(const std::string& field) {
  if (field == "source") return {"source", "component"};
  if (field == "status.successful") return {"status", "succeeded"};
  return split(field, '.');
}

Refusal not_offered(const ResourceType& type, const std::string& field) {
  if (type.custom || offered().contains(type.store))
    return bad_request("field label not supported: " + field);
  return bad_request("\"" + field +
                     "\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
}

// What the parser of label selectors found, in the real server's words.
std::string label_fault(std::string_view text, std::string why) {
  std::string head = "parse label selector '" + std::string(text) + "': ";
  if (why.starts_with(head)) why = why.substr(head.size());
  if (why.ends_with("or 'end of string'")) return why;
  auto quoted = [&] { return why.substr(1, why.rfind('\'') - 1); };
  std::string_view key = "' is not a label key";
  std::string_view value = "' is not a label value";
  if (why.ends_with(key)) {
    std::string name = quoted();
    std::vector<std::string> faults = qualified_name_faults(name);
    why = "<nil>: Invalid value: " + to_text(Json(name)) + ": " + (faults.empty() ? "" : faults[0]);
  } else if (why.ends_with(value)) {
    std::string given = quoted();
    std::size_t at = text.find_first_of("=! (");
    why = "values[0][" + std::string(text.substr(0, at)) + "]: Invalid value: " + to_text(Json(given)) +
          ": " + label_value_fault(given);
  }
  return "unable to parse requirement: " + why;
}

}  // namespace

Answer<FieldSelector> FieldSelector::parse(std::string_view text, const ResourceType& type) {
  FieldSelector selector;
  if (trim(text).empty()) return selector;
  for (const std::string& part : split(text, ',')) {
    std::string_view word = trim(part);
    if (word.empty()) continue;
    std::size_t at = word.find('=');
    if (at == std::string_view::npos || at == 0)
      return bad_request("invalid selector: '" + std::string(text) + "'; can't understand '" +
                         std::string(word) + "'");
    Term term;
    term.negated = word[at - 1] == '!';
    std::string field(trim(word.substr(0, term.negated ? at - 1 : at)));
    std::string_view value = word.substr(at + 1);
    if (!term.negated && value.starts_with("=")) value.remove_prefix(1);
    term.value = std::string(value);
    const bool older = field.starts_with("involvedObject.") || field == "reportingComponent";
    if (older && type.group == "events.k8s.io") return not_offered(type, field);
    field = stored_field(type, std::move(field));
    if (!is_offered(type, field)) return not_offered(type, field);
    term.path = path_of(field);
    term.field = std::move(field);
    selector.terms_.push_back(std::move(term));
  }
  return selector;
}

bool FieldSelector::matches(const Json& object) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    std::string seen = field_text(object, term.path);
    // Absent booleans and counts read as their zero.
    if (seen.empty() && (term.field == "spec.unschedulable" || term.field == "spec.hostNetwork"))
      seen = "false";
    if (seen.empty() && (term.field == "status.replicas" || term.field == "status.successful")) seen = "0";
    return (seen == term.value) != term.negated;
  });
}

const std::string* FieldSelector::required(std::string_view field) const {
  for (const Term& term : terms_)
    if (!term.negated && term.field == field) return &term.value;
  return nullptr;
}

Answer<Selection> Selection::parse(std::string_view ns, std::string_view labels, std::string_view fields,
                                   const ResourceType& type) {
  Selection selection;
  selection.ns = std::string(ns);
  Result<kube::LabelSelector> parsed = kube::LabelSelector::parse(labels);
  if (!parsed) return bad_request(label_fault(labels, parsed.error().text()));
  selection.labels = *parsed;
  selection.fields = TRY(FieldSelector::parse(fields, type));
  selection.narrowed = !trim(labels).empty() || !selection.fields.empty();
  return selection;
}

bool Selection::matches(const Json& object) const {
  if (!ns.empty() && kube::namespace_of(object) != ns) return false;
  if (!narrowed) return true;
  return labels.matches(get_object(object, {"metadata", "labels"})) && fields.matches(object);
}

bool Selection::matches(const Object& object, bool keep) const {
  if (ns.empty() && !narrowed) return true;
  if (keep) return matches(object.value());
  Object::Look look;
  object.look(look);
  return matches(*look);
}

std::string Selection::route(const ResourceType& type) const {
  if (const std::string* name = fields.required("metadata.name")) return "name=" + *name;
  if (type.store == "/pods")
    if (const std::string* node = fields.required("spec.nodeName")) return "node=" + *node;
  return {};
}

}  // namespace gpuop::cluster::api
