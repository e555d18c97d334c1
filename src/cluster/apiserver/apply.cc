// Server-side apply (kubernetes-api.md §9).
#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

Answer<ObjectPtr> Server::apply_request(Call&) {
  return refuse(415, "UnsupportedMediaType",
                "server-side apply is not supported by this server; use client-side apply");
}

void Server::track_fields(const Call&, const Json*, Json&) {}

}  // namespace gpuop::cluster::api
