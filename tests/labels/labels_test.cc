#include <gtest/gtest.h>

#include "base/files.h"
#include "kube/transport.h"
#include "labels/decide.h"
#include "labels/publish.h"
#include "labels/sources.h"

namespace gpuop::labels {
namespace {

// A configuration space with the vendor capability at 0x40 and `records` in it.
std::string config_space(std::string_view records, char v = 'V', char f = 'F') {
  std::string config(256, '\0');
  config[0x06] = 0x10;
  config[0x34] = 0x40;
  config[0x40] = 0x09;
  config[0x42] = static_cast<char>(5 + records.size());
  config[0x43] = v;
  config[0x44] = f;
  config.replace(0x45, records.size(), records);
  return config;
}

std::string record(char id, std::string_view payload) {
  return std::string{id, static_cast<char>(payload.size() + 2)} + std::string(payload);
}

const std::string kHost("550.54.10\0r550_00\0\0\0", 20);

TEST(labels, vgpu_capability) {
  auto found = parse_vgpu(config_space(record(3, "xx") + record(0, kHost)));
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->driver_version, "550.54.10");
  EXPECT_EQ((*found)->driver_branch, "r550_00");
  EXPECT_EQ(*parse_vgpu(config_space(record(0, kHost), 'X')), std::nullopt);
  EXPECT_FALSE(parse_vgpu(config_space(record(3, "xx"))));
  EXPECT_FALSE(parse_vgpu(config_space(std::string(6, '\0'))));  // a record of length 0 ends the walk
  EXPECT_FALSE(parse_vgpu(std::string(64, '\0')));
  EXPECT_EQ(*parse_vgpu(std::string(256, '\0')), std::nullopt);
  std::string loop = config_space("");
  loop[0x40] = 1;
  loop[0x41] = 0x40;  // a capability that is its own successor
  EXPECT_EQ(*parse_vgpu(loop), std::nullopt);
}

TEST(labels, vfio_memory_and_names) {
  EXPECT_EQ(bar_memory("0x0000000092000000 0x0000000092ffffff 0x0000000000040200\n"
                       "0x0000021000000000 0x0000021fffffffff 0x000000000014220c\n"
                       "0x0000022000000000 0x0000022001ffffff 0x000000000014220c\n"
                       "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"),
            1ull << 37);
  EXPECT_EQ(bar_memory("rubbish\n"), 0u);
  const char* database =
      "# ids\n10dd  Other\n\t20b2  Wrong\n10de  NVIDIA Corporation\n\t20b0  GA100\n\t20b2  GA100 [A100 SXM4 "
      "80GB]\n"
      "\t\t10de 147f  Sub\n10df  Next\n\t2330  Wrong\n";
  EXPECT_EQ(pci_device_name(database, 0x10de, 0x20b2), "GA100 [A100 SXM4 80GB]");
  EXPECT_EQ(pci_device_name(database, 0x10de, 0x2330), "");
  EXPECT_EQ(pci_device_name("", 0x10de, 0x2330), "");
}

TEST(labels, families) {
  EXPECT_EQ(family_of({7, 0}), "volta");
  EXPECT_EQ(family_of({7, 5}), "turing");
  EXPECT_EQ(family_of({8, 6}), "ampere");
  EXPECT_EQ(family_of({8, 9}), "ada-lovelace");
  EXPECT_EQ(family_of({11, 0}), "blackwell");
  EXPECT_EQ(family_of({4, 0}), "undefined");
}

TEST(labels, features_file_is_replaced_and_removed) {
  TempDir dir;
  fs::path file = dir.path() / "features.d" / "gfd";
  ASSERT_TRUE(write_features(file, {{"nvidia.com/b", "2"}, {"nvidia.com/a", "1"}}));
  EXPECT_EQ(*read_file(file), "nvidia.com/a=1\nnvidia.com/b=2\n");
  ASSERT_TRUE(make_dirs(file.parent_path() / "gfd-tmp"));
  remove_features(file);
  EXPECT_TRUE(list_dir(file.parent_path())->empty());
}

// An API server of one NodeFeature, one pod, and faults on request.
struct Api {
  explicit Api(Loop& loop)
      : client(loop,
               kube::make_memory_transport(
                   loop, [this](HttpRequest r, std::shared_ptr<HttpResponder> to) { to->send(answer(r)); })) {
  }

  HttpResponse answer(const HttpRequest& request) {
    requests.push_back(request.method);
    if (request.path.ends_with("/pods/p1")) {
      return HttpResponse::json(
          200, R"({"kind":"Pod","apiVersion":"v1","metadata":{"name":"p1","namespace":"ns","uid":"u2",
        "ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"gfd","uid":"u1","controller":true}]}})");
    }
    if (conflicts > 0 && request.method == "PUT") {
      --conflicts;
      return status(409, "Conflict");
    }
    if (request.method == "GET" && object.is_null()) return status(404, "NotFound");
    if (request.method != "GET") object = *parse_json(request.body);
    return HttpResponse::json(request.method == "POST" ? 201 : 200, to_text(object));
  }
  static HttpResponse status(int code, const char* reason) {
    return HttpResponse::json(code, to_text(JsonObject{{"kind", "Status"},
                                                       {"apiVersion", "v1"},
                                                       {"status", "Failure"},
                                                       {"reason", reason},
                                                       {"message", reason},
                                                       {"code", code}}));
  }

  std::vector<std::string> requests;
  Json object;
  int conflicts = 0;
  kube::Client client;
};

struct Publishing {
  explicit Publishing(std::string pod = {}) : publisher(api.client, {"ns", "n1", std::move(pod)}) {}
  Result<> publish(const Labels& labels) {
    std::optional<Result<>> how;
    publisher.publish(labels, [&](Result<> done) { how = std::move(done); });
    loop->run_until([&] { return how.has_value(); }, 1h);
    return how ? *how : fail(Code::kTimeout, "no answer");
  }

  std::unique_ptr<Loop> loop = Loop::make_virtual(Time{});
  Api api{*loop};
  NodeFeaturePublisher publisher;
};

}  // namespace
}  // namespace gpuop::labels

using namespace gpuop::labels;  // NOLINT
using namespace gpuop;          // NOLINT

TEST(device_plugin, case42_node_feature) {
  Publishing p;
  ASSERT_TRUE(p.publish({{"nvidia.com/gpu.count", "4"}}));
  EXPECT_EQ(p.api.requests, (std::vector<std::string>{"GET", "POST"}));
  EXPECT_EQ(get_string(p.api.object, {"metadata", "name"}), "nvidia-features-for-n1");
  EXPECT_EQ(get_string(p.api.object, {"metadata", "labels", "nfd.node.kubernetes.io/node-name"}), "n1");
  EXPECT_EQ(get_string(p.api.object, {"spec", "labels", "nvidia.com/gpu.count"}), "4");
  EXPECT_EQ(to_text(*find(p.api.object, {"spec", "features"})),
            R"({"attributes":{},"flags":{},"instances":{}})");

  p.api.requests.clear();
  ASSERT_TRUE(p.publish({{"nvidia.com/gpu.count", "4"}}));
  EXPECT_EQ(p.api.requests, std::vector<std::string>{"GET"});

  p.api.requests.clear();
  ASSERT_TRUE(p.publish({{"nvidia.com/gpu.count", "3"}}));
  EXPECT_EQ(p.api.requests, (std::vector<std::string>{"GET", "PUT"}));
  EXPECT_EQ(get_string(p.api.object, {"spec", "labels", "nvidia.com/gpu.count"}), "3");
}

TEST(device_plugin, case42_owners_and_conflicts) {
  Publishing p("p1");
  ASSERT_TRUE(p.publish({{"nvidia.com/gpu.count", "4"}}));
  const auto& owners = get_array(p.api.object, {"metadata", "ownerReferences"});
  ASSERT_EQ(owners.size(), 2u);
  EXPECT_EQ(get_string(owners[0], {"kind"}), "DaemonSet");
  EXPECT_TRUE(get_bool(owners[0], {"controller"}));
  EXPECT_EQ(get_string(owners[1], {"uid"}), "u2");

  p.api.conflicts = 2;
  EXPECT_TRUE(p.publish({{"nvidia.com/gpu.count", "3"}}));
  p.api.conflicts = 99;
  auto refused = p.publish({{"nvidia.com/gpu.count", "2"}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("nvidia-features-for-n1"), std::string::npos)
      << refused.error().text();
}
