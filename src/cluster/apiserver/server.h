// The server behind ApiServer: state, and the steps of a request. Each .cc file named in a comment holds its
// part.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/http.h"
#include "base/loop.h"
#include "base/yaml.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/gate.h"
#include "cluster/apiserver/selectors.h"
#include "cluster/apiserver/status.h"
#include "cluster/apiserver/store.h"
#include "cluster/apiserver/tokens.h"
#include "cluster/apiserver/types.h"

namespace gpuop::cluster::api {

enum class FieldValidation { kIgnore, kWarn, kStrict };

// One request on its way.
struct Call {
  HttpRequest http;
  std::shared_ptr<HttpResponder> out;
  std::vector<std::pair<std::string, std::string>> query;
  ApiUser user;
  TypePtr type;
  std::string verb;  // get list watch create update patch delete deletecollection
  std::string ns, name, sub;
  std::string manager;
  bool dry_run = false;
  FieldValidation validation = FieldValidation::kWarn;
  Json managed;  // the managedFields that an apply has worked out; null otherwise
  std::vector<std::string> warnings;
  std::vector<std::string> body_faults;  // duplicate keys of the body: faults like unknown fields

  std::string_view param(std::string_view key) const;
  bool has_param(std::string_view key) const;
  bool flag(std::string_view key) const;  // "true" or "1"
};
using CallPtr = std::shared_ptr<Call>;

// How the caller wants objects shown.
struct View {
  enum class As { kObject, kTable, kMetadata } as = As::kObject;
  enum class Include { kMetadata, kObject, kNone } include = Include::kMetadata;
};

struct DeleteOptions {
  std::optional<std::int64_t> grace;
  std::string propagation;
  std::string uid, version;  // preconditions
  bool dry_run = false;
};

// Randomness that replays from a seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::string uuid();
  std::string suffix(int length);  // of the letters that generated names use

 private:
  std::uint64_t state_;
};

class WatchStream;
class Tunnel;

class Server : public std::enable_shared_from_this<Server> {
 public:
  Server(Loop& loop, ApiServerOptions options);
  void start();  // bootstrap objects
  void stop();   // ends every stream

  // keep.cc: the store on disk, where there is one.
  Result<> open_store();
  void commit_store();
  void close_store();
  // 500 for a write while the disk takes none.
  Answer<> can_store(const Call& call);
  void cool_soon();

  // server.cc
  void handle(HttpRequest request, std::shared_ptr<HttpResponder> out);
  void respond(const CallPtr& call, HttpResponse response);
  void respond_status(const CallPtr& call, const Status& status);
  void respond_json(const CallPtr& call, int code, const Json& body);
  // The object as the caller asked for it (plain, table row, metadata).
  void respond_object(const CallPtr& call, int code, const ObjectPtr& object);
  // Nothing of `answer` is stored: a dry run, a scale, a review.
  void respond_value(const CallPtr& call, int code, const Json& value);
  Answer<View> view_of(const Call& call) const;
  Time now() const { return loop.now(); }
  std::string now_text() const;

  // discovery.cc, openapi.cc
  void discover(const CallPtr& call);
  void openapi(const CallPtr& call);
  void types_changed() { ++types_version; }
  TypePtr find_type(std::string_view group, std::string_view version, std::string_view plural) const;
  TypePtr find_kind(std::string_view group, std::string_view kind) const;
  std::vector<TypePtr> all_types() const;

  // read.cc
  void get(const CallPtr& call);
  void list(const CallPtr& call);
  // watch.cc
  void watch(const CallPtr& call);

  // body.cc: the request's body as an object of `type`, read and checked for unknown fields.
  Answer<Json> body_value(Call& call, const ResourceType& type);
  Answer<Json> read_object(Call& call, const ResourceType& type, const Json& raw);
  Answer<DeleteOptions> delete_options(Call& call);

  // write.cc
  Answer<ObjectPtr> create(Call& call, Json object);
  using Edit = std::function<Answer<Json>(const Json& current)>;
  // Reads, edits, checks and stores. `call.sub` "status": only the status is taken from the edit.
  Answer<ObjectPtr> modify(Call& call, const Edit& edit);
  struct Removed {
    ObjectPtr object;
    bool gone = false;
  };
  Answer<Removed> remove(Call& call, const DeleteOptions& options);
  void create_request(const CallPtr& call);
  void update_request(const CallPtr& call);
  void patch_request(const CallPtr& call);
  void delete_request(const CallPtr& call);
  void delete_collection_request(const CallPtr& call);
  // A write by the server itself, past authorization.
  Call internal_call(const TypePtr& type, std::string_view ns, std::string_view name) const;
  ObjectPtr stored(const ResourceType& type, std::string_view ns, std::string_view name);

  // patch.cc
  Answer<Json> patched(Call& call, const Json& current);
  // apply.cc
  Answer<ObjectPtr> apply_request(Call& call);
  void track_fields(const Call& call, const Json* before, Json& after);

  // admission.cc: what admission plugins and allocators of a real server do.
  Answer<> admit_create(Call& call, Json& object);
  Answer<> admit_update(Call& call, const Json& old, Json& object);
  void created(const ResourceType& type, const Json& object);
  void erased(const ResourceType& type, const Json& object);
  void allocate_service(Json& service, FieldErrors& errors);

  // subresources.cc
  void subresource(const CallPtr& call);
  void evict(const CallPtr& call);
  void bind(const CallPtr& call);
  void finalize_namespace(const CallPtr& call);
  void scale(const CallPtr& call);
  void issue_token(const CallPtr& call);
  // logs.cc
  void logs(const CallPtr& call);
  // exec.cc: hands the connection on to the node's kubelet.
  void exec(const CallPtr& call);

  // auth.cc
  Answer<ApiUser> authenticate(const Call& call);
  bool allowed(const ApiUser& user, std::string_view verb, const ResourceType* type, std::string_view group,
               std::string_view plural, std::string_view sub, std::string_view ns,
               std::string_view name) const;
  bool allowed_path(const ApiUser& user, std::string_view verb, std::string_view path) const;
  Answer<> authorize(const Call& call) const;
  void review(const CallPtr& call);
  // Rules that apply to `user` in `ns` ("" for cluster-wide ones only).
  std::vector<Json> rules_for(const ApiUser& user, std::string_view ns) const;
  struct Grant {
    Json rule;
    std::string why;  // which binding gives it
  };
  std::vector<Grant> grants_for(const ApiUser& user, std::string_view ns) const;
  // What allows what an access review asks; "" where no rule has to.
  std::string reason_for(const ApiUser& user, const Json& review) const;

  // Removes events that nobody has written to for an hour.
  void expire_events();

  // crds.cc
  Answer<> crd_written(Call& call, Json& crd);
  void load_crd(const Json& crd);
  void unload_crd(const Json& crd);
  // Deletes the objects of a terminating definition, then the definition itself.
  void finish_crd(const std::string& name);

  void bootstrap();

  Loop& loop;
  ApiServerOptions options;
  Store store;
  std::shared_ptr<Gate> gate;  // null: nothing is kept, so nothing waits
  Random random;
  TokenSigner signer;
  std::map<TypeKey, TypePtr> types;
  std::vector<TypePtr> builtins;
  std::uint64_t types_version = 1;
  std::set<WatchStream*> streams;
  std::set<std::shared_ptr<Tunnel>> tunnels;  // to kubelets
  std::uint64_t requests = 0;
  std::uint64_t audit = 0;
  std::map<std::string, std::string> openapi_cache;  // "apis/apps/v1" → document
  std::map<std::string, std::string> openapi_hashes;
  std::uint64_t openapi_version = 0;
  bool stopped = false;
  std::deque<std::pair<Time, std::string>>
      event_ages;  // when each event was made or last looked at, oldest first

 private:
  void route(const CallPtr& call);
  bool parse_path(Call& call, std::string_view path) const;
  void dispatch(const CallPtr& call);
  void serve_fixed(const CallPtr& call, bool& served);
  void derive();  // what is worked out from stored objects
  void snapshot_soon();
  void writes_lost(const Error& why);
  bool cooling_ = false;
  bool snapshot_due_ = false;
  void serve_metrics(const CallPtr& call);
  void serve_version(const CallPtr& call);
};

bool wants_yaml(const Call& call);

// body.cc: keys that a YAML text has twice, as its strict reader names them.
std::vector<std::string> yaml_faults(const YamlDocument& document, std::string_view body);

// discovery.cc: "v1" before "v1beta1" before "v1alpha1"; higher numbers first.
int version_rank(std::string_view version);

// defaults.cc
void default_object(const ResourceType& type, Json& object);
void default_pod_spec(Json& spec, bool is_pod);

// validate.cc
FieldErrors validate_object(const ResourceType& type, const Json& object);
FieldErrors validate_update(const ResourceType& type, const Json& old, const Json& object);

// metadata.cc
FieldErrors validate_metadata(const ResourceType& type, const Json& object);
FieldErrors validate_metadata_update(const Json& old, const Json& object);
bool is_dns_label(std::string_view text);
bool is_dns_subdomain(std::string_view text);
bool is_qualified_name(std::string_view text);
// What is wrong with "prefix/name", one sentence each; and with a label's value, "" for a good one.
std::vector<std::string> qualified_name_faults(std::string_view text);
std::string label_value_fault(std::string_view text);
std::string user_agent_manager(std::string_view user_agent);

// events.cc: the two faces of events.
Json event_to_stored(const Json& object);
Json event_from_stored(const Json& object);

// The object as `type`'s version shows it; the stored one where nothing differs.
Json present(const ResourceType& type, const Json& stored);
bool presented_as_stored(const ResourceType& type, const Json& stored);
bool presented_as_stored(const ResourceType& type, const Object& stored);

// strategic.cc
struct MergeFault {
  int code = 400;
  std::string text;
};
std::expected<Json, MergeFault> strategic_merge(const Json& target, const Json& patch,
                                                const Message& message);

// table.cc
Json table_columns(const ResourceType& type);
JsonArray table_cells(const ResourceType& type, const Json& object, Time now);
Json table_row(const ResourceType& type, const Json& object, View::Include include, Time now);
Json partial_metadata(const Json& object);
// An object within a list: built-in types leave out what the list says already.
Json list_item(const ResourceType& type, Json object);
// A resourceVersion parameter; 0 for none.
Answer<std::uint64_t> read_version(std::string_view text);

std::string qos_class(const Json& pod_spec);

// logs.cc: where a node's kubelet serves; nullopt: nowhere.
struct KubeletAddress {
  std::string address;
  std::uint16_t port = 0;
};
std::optional<KubeletAddress> kubelet_address(const Json& node);
// The container that is asked for, or a pod's only one.
Answer<std::string> choose_container(const Json& pod, std::string_view asked);

// patch.cc: a value as Go prints it: "map[a:1 b:[x]]".
std::string go_value(const Json& value);

}  // namespace gpuop::cluster::api
