#include "base/http.h"

#include <strings.h>

#include <algorithm>

#include "base/text.h"

namespace gpuop {

bool HeaderLess::operator()(std::string_view a, std::string_view b) const {
  const int order = ::strncasecmp(a.data(), b.data(), std::min(a.size(), b.size()));
  return order != 0 ? order < 0 : a.size() < b.size();
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const auto part = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (part.empty()) continue;
    const auto equals = part.find('=');
    if (equals == std::string_view::npos) {
      pairs.emplace_back(url_decode(part), "");
    } else {
      pairs.emplace_back(url_decode(part.substr(0, equals)), url_decode(part.substr(equals + 1)));
    }
  }
  return pairs;
}

std::string build_query(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string out;
  for (const auto& [key, value] : pairs) {
    if (!out.empty()) out += '&';
    out += url_encode(key);
    out += '=';
    out += url_encode(value);
  }
  return out;
}

HttpResponse HttpResponse::text(int status, std::string body, std::string content_type) {
  HttpResponse response;
  response.status = status;
  response.headers["Content-Type"] = std::move(content_type);
  response.body = std::move(body);
  return response;
}

HttpResponse HttpResponse::json(int status, std::string body) {
  return text(status, std::move(body), "application/json");
}

}  // namespace gpuop
