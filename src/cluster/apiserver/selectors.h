// Field selectors (kubernetes-api.md §7.1) and the pair of selectors that a list or watch carries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cluster/apiserver/status.h"
#include "cluster/apiserver/store.h"
#include "cluster/apiserver/types.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

class FieldSelector {
 public:
  // 400 for bad syntax and for fields that `type` does not offer. Selectors may span both faces of an event.
  static Answer<FieldSelector> parse(std::string_view text, const ResourceType& type);
  bool matches(const Json& object) const;
  bool empty() const { return terms_.empty(); }
  // The value that `field` must equal, or null.
  const std::string* required(std::string_view field) const;

 private:
  struct Term {
    std::string field;
    std::vector<std::string> path;
    bool negated = false;
    std::string value;
  };
  std::vector<Term> terms_;
};

struct Selection {
  std::string ns;  // empty: every namespace
  kube::LabelSelector labels;
  FieldSelector fields;
  bool narrowed = false;  // any selector given

  static Answer<Selection> parse(std::string_view ns, std::string_view labels, std::string_view fields,
                                 const ResourceType& type);
  bool matches(const Json& object) const;
  // The same, without making the object's value where that is not needed. `keep`: it will be asked for again
  // soon.
  bool matches(const Object& object, bool keep) const;
  // The narrowest route of Collection::listen that carries every match.
  std::string route(const ResourceType& type) const;
};

}  // namespace gpuop::cluster::api
