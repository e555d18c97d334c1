#include "kube/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "base/text.h"
#include "fake_server.h"
#include "kube/credentials.h"

namespace gpuop::kube {
namespace {

using test::FakeServer;
using test::status_answer;

constexpr std::string_view kBasic = R"(
apiVersion: v1
kind: Config
current-context: main
clusters:
- name: c1
  cluster: {server: "https://10.0.0.1:6443", certificate-authority: pki/ca.crt, tls-server-name: api.internal, proxy-url: "http://p:1"}
- name: c2
  cluster: {server: "https://10.0.0.2:6443", certificate-authority-data: Y2E=}
users:
- name: u1
  user: {token: secret, as: somebody, as-uid: "7", as-groups: [g1, g2]}
- name: u2
  user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}
- name: old
  user: {auth-provider: {name: gcp}}
- name: half
  user: {client-certificate: /x.crt}
contexts:
- name: main
  context: {cluster: c1, user: u1, namespace: work}
- name: second
  context: {cluster: c2, user: u2}
- name: old
  context: {cluster: c2, user: old}
- name: half
  context: {cluster: c2, user: half}
- name: lost
  context: {cluster: c9, user: u1}
- name: nobody
  context: {cluster: c2}
)";

std::string fault(std::string_view context, std::string_view text = kBasic) {
  const auto config = parse_kubeconfig(text, "/etc/k/config", context);
  return config ? "" : config.error().text();
}

TEST(kube, kubeconfig_contexts) {
  const auto main = parse_kubeconfig(kBasic, "/etc/k/config");
  ASSERT_TRUE(main) << main.error().text();
  EXPECT_EQ(main->server, "https://10.0.0.1:6443");
  EXPECT_EQ(main->ca_file, "/etc/k/pki/ca.crt");  // relative to the file
  EXPECT_EQ(main->tls_server_name, "api.internal");
  EXPECT_EQ(main->proxy_url, "http://p:1");
  EXPECT_EQ(main->token, "secret");
  EXPECT_EQ(main->default_namespace, "work");
  EXPECT_EQ(main->impersonate_user, "somebody");
  EXPECT_EQ(main->impersonate_groups, (std::vector<std::string>{"g1", "g2"}));
  const auto second = parse_kubeconfig(kBasic, "/etc/k/config", "second");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->ca_pem, "ca");
  EXPECT_EQ(second->client_cert_pem, "cert");
  EXPECT_EQ(second->client_key_pem, "key");
  EXPECT_EQ(second->default_namespace, "default");
  EXPECT_TRUE(parse_kubeconfig(kBasic, "/etc/k/config", "nobody"));

  EXPECT_EQ(fault("secnd"),
            "load kubeconfig '/etc/k/config': context 'secnd': there is none of that name (did you mean "
            "'second'?)");
  EXPECT_NE(fault("lost").find("cluster 'c9'"), std::string::npos) << fault("lost");
  EXPECT_NE(fault("old").find("auth-provider"), std::string::npos);
  EXPECT_NE(fault("half").find("client-key: required"), std::string::npos);
  EXPECT_NE(fault("", "a: b").find("current-context"), std::string::npos);
  EXPECT_NE(fault("", "clusters: 5").find("clusters: must be a list"), std::string::npos);
  EXPECT_NE(fault("", "[1]").find("must be a map"), std::string::npos);
  EXPECT_NE(fault("", "{").find("line"), std::string::npos);
  const std::string bad_data = replace_all(std::string(kBasic), "Y2E=", "\"?!\"");
  EXPECT_NE(fault("second", bad_data).find("certificate-authority-data: is not base64"), std::string::npos);
  const std::string both = replace_all(std::string(kBasic), "Y2E=", "Y2E=, insecure-skip-tls-verify: true");
  EXPECT_NE(fault("second", both).find("insecure-skip-tls-verify"), std::string::npos);
}

TEST(kube, kubeconfig_files_merge_and_the_first_wins) {
  TempDir dir;
  const std::string a = dir.path() / "a", b = dir.path() / "sub/b", missing = dir.path() / "missing";
  ASSERT_TRUE(make_dirs(dir.path() / "sub"));
  ASSERT_TRUE(write_file_atomic(
      a,
      R"({current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}], users: [{name: u, user: {token: first}}]})"));
  ASSERT_TRUE(write_file_atomic(
      b,
      R"({current-context: y, clusters: [{name: c, cluster: {server: "http://h", certificate-authority: ca}}], users: [{name: u, user: {token: second}}]})"));
  const auto config = load_kubeconfig({missing, a, "", b});
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->token, "first");
  EXPECT_EQ(config->server, "http://h");
  EXPECT_EQ(config->ca_file, dir.path() / "sub/ca");
  const auto none = load_kubeconfig({missing});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_NE(none.error().text().find(missing), std::string::npos);
  EXPECT_FALSE(load_kubeconfig({missing, missing + "2"}));
}

struct Environment {
  explicit Environment(std::vector<std::pair<const char*, std::string>> values) {
    for (const char* name : {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG", "HOME"}) {
      const char* old = std::getenv(name);
      saved.emplace_back(name,
                         old == nullptr ? std::optional<std::string>() : std::optional<std::string>(old));
      ::unsetenv(name);
    }
    for (const auto& [name, value] : values) ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : saved) value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }
  std::vector<std::pair<const char*, std::optional<std::string>>> saved;
};

TEST(kube, in_cluster_configuration) {
  TempDir dir;
  {
    const Environment none({});
    EXPECT_EQ(in_cluster_config(dir.path()).error().code(), Code::kNotFound);
    EXPECT_EQ(find_config().error().code(), Code::kNotFound);
  }
  const Environment pod({{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}});
  EXPECT_FALSE(in_cluster_config(dir.path()));  // no token
  ASSERT_TRUE(write_file_atomic(dir.path() / "token", "t1\n"));
  ASSERT_TRUE(write_file_atomic(dir.path() / "namespace", "gpu\n"));
  auto config = in_cluster_config(dir.path());
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->server, "https://[fd00::1]:443");
  EXPECT_EQ(config->default_namespace, "gpu");
  EXPECT_EQ(config->ca_file, "");
  ASSERT_TRUE(write_file_atomic(dir.path() / "ca.crt", "x"));
  config = in_cluster_config(dir.path());
  EXPECT_EQ(config->ca_file, dir.path() / "ca.crt");
}

TEST(kube, find_config_prefers_what_was_said) {
  TempDir dir;
  const std::string file = dir.path() / "f";
  ASSERT_TRUE(write_file_atomic(
      file,
      R"({current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://f"}}]})"));
  ASSERT_TRUE(make_dirs(dir.path() / ".kube"));
  ASSERT_TRUE(write_file_atomic(
      dir.path() / ".kube/config",
      R"({current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://home"}}]})"));
  const Environment environment({{"HOME", dir.path()}});
  EXPECT_EQ(find_config()->server, "http://home");
  ::setenv("KUBECONFIG", file.c_str(), 1);
  EXPECT_EQ(find_config()->server, "http://f");
  EXPECT_FALSE(find_config("/nonexistent"));
}

struct TokenServer : FakeServer {
  std::string valid;
  std::vector<std::string> tokens;
  TokenServer() {
    answer = [this](const Seen& one) {
      tokens.push_back(std::string(one.request.header("Authorization")));
      if (tokens.back() == "Bearer " + valid) return one.responder->send(HttpResponse::json(200, "{}"));
      one.responder->send(status_answer(401, "Unauthorized"));
    };
  }
};

TEST(kube, case45_token_file_is_read_again) {
  TempDir dir;
  TokenServer t;
  Config config;
  config.token_file = dir.path() / "token";
  ASSERT_TRUE(write_file_atomic(config.token_file, "one\n"));
  const auto credentials = make_credentials(*t.loop, config, nullptr).value();
  Client client(*t.loop, t.transport, {}, credentials);
  const auto get = [&] {
    return await(*t.loop, [&](auto done) { return client.get(kPods, "x", "p", done); });
  };
  t.valid = "one";
  EXPECT_TRUE(get());
  // Replaced while the old one is still good: within a minute the new one is used.
  ASSERT_TRUE(write_file_atomic(config.token_file, "two\n"));
  EXPECT_TRUE(get());
  EXPECT_EQ(t.tokens.back(), "Bearer one");  // not read on every request
  t.valid = "two";
  t.loop->run_for(60s);
  t.tokens.clear();
  EXPECT_TRUE(get());
  EXPECT_EQ(t.tokens, std::vector<std::string>{"Bearer two"});
  // The old one ends sooner: a 401, an immediate read, one retry.
  ASSERT_TRUE(write_file_atomic(config.token_file, "three\n"));
  t.valid = "three";
  t.tokens.clear();
  EXPECT_TRUE(get());
  EXPECT_EQ(t.tokens, (std::vector<std::string>{"Bearer two", "Bearer three"}));
  // Nothing new in the file: the 401 is the answer.
  t.valid = "four";
  t.tokens.clear();
  const auto refused = get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 401);
  EXPECT_EQ(t.tokens.size(), 1u);
  // The file goes away: the last token stays in use.
  fs::remove(config.token_file);
  t.valid = "three";
  t.loop->run_for(2min);
  EXPECT_TRUE(get());
}

TEST(kube, credentials_in_headers) {
  FakeServer t;
  t.answer = [](const FakeServer::Seen& one) { one.responder->send(HttpResponse::json(200, "{}")); };
  Config config;
  config.username = "u";
  config.password = "p";
  config.impersonate_user = "other";
  config.impersonate_groups = {"a", "b"};
  Client client(*t.loop, t.transport, {}, make_credentials(*t.loop, config, nullptr).value());
  ASSERT_TRUE(await(*t.loop, [&](auto done) { return client.get(kPods, "x", "p", done); }));
  EXPECT_EQ(t.seen[0].request.header("authorization"), "Basic dTpw");
  EXPECT_EQ(t.seen[0].request.header("impersonate-user"), "other");
  EXPECT_EQ(t.seen[0].request.header("impersonate-group"), "a\nb");
}

struct PluginTest {
  TempDir dir;
  std::string file = dir.path() / "config";
  Result<Config> config(const std::string& script, const std::string& more = "") {
    EXPECT_TRUE(write_file_atomic(dir.path() / "plugin", "#!/bin/sh\n" + script, 0755));
    return parse_kubeconfig(R"({current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
      clusters: [{name: c, cluster: {server: "https://h:1", certificate-authority-data: Y2E=,
        extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: me}}]}}],
      users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [a1],
        env: [{name: MINE, value: v}])" +
                                more + "}}}]}",
                            file);
  }
};

TEST(kube, exec_plugin_gives_credentials) {
  PluginTest t;
  const auto config = t.config(
      R"(echo "$MINE $1 $KUBERNETES_EXEC_INFO" > "${0%/*}/seen"
n=$(cat "${0%/*}/n" 2>/dev/null); n=$((n+1)); echo $n > "${0%/*}/n"
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t'$n'","expirationTimestamp":"2026-01-02T04:04:05Z"}}'
)",
      ", provideClusterInfo: true");
  ASSERT_TRUE(config) << config.error().text();
  TokenServer s;
  auto credentials = make_credentials(*s.loop, *config, nullptr);
  ASSERT_TRUE(credentials) << credentials.error().text();
  const std::string seen = read_file(t.dir.path() / "seen").value();
  ASSERT_TRUE(seen.starts_with("v a1 {")) << seen;
  const Json info = test::json(trim(std::string_view(seen).substr(5)));
  EXPECT_EQ(get_string(info, {"kind"}), "ExecCredential");
  EXPECT_FALSE(get_bool(info, {"spec", "interactive"}, true));
  EXPECT_EQ(get_string(info, {"spec", "cluster", "server"}), "https://h:1");
  EXPECT_EQ(get_string(info, {"spec", "cluster", "certificate-authority-data"}), "Y2E=");
  EXPECT_EQ(get_string(info, {"spec", "cluster", "config", "audience"}), "me");

  Client client(*s.loop, s.transport, {}, *credentials);
  const auto get = [&] {
    return await(*s.loop, [&](auto done) { return client.get(kPods, "x", "p", done); });
  };
  s.valid = "t1";
  EXPECT_TRUE(get());
  EXPECT_TRUE(get());
  EXPECT_EQ(read_file(t.dir.path() / "n").value(), "1\n");  // kept until it ends
  s.valid = "t2";
  EXPECT_TRUE(get());  // 401: run once more
  s.valid = "t3";
  s.loop->run_for(2h);
  s.tokens.clear();
  EXPECT_TRUE(get());  // ended by the clock
  EXPECT_EQ(s.tokens, std::vector<std::string>{"Bearer t3"});
}

TEST(kube, exec_plugin_faults) {
  PluginTest t;
  const auto why = [&](const std::string& script, const std::string& more = "") {
    const auto config = t.config(script, more);
    if (!config) return config.error().text();
    const auto loop = Loop::make_virtual(test::kStart);
    const auto made = make_credentials(*loop, *config, nullptr);
    return made ? std::string() : made.error().text();
  };
  EXPECT_NE(why("echo no access >&2; exit 3").find("exit status 3: no access"), std::string::npos);
  EXPECT_NE(why("echo nonsense").find("read the plugin's answer"), std::string::npos);
  EXPECT_NE(
      why(R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"t"}}')")
          .find("apiVersion: must be"),
      std::string::npos);
  EXPECT_NE(
      why(R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":"x"}}')")
          .find("come together"),
      std::string::npos);
  EXPECT_NE(why("", ", interactiveMode: Always").find("interactiveMode"), std::string::npos);
  const auto bad_version =
      parse_kubeconfig(R"({current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
      clusters: [{name: c, cluster: {server: "https://h:1"}}],
      users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: gke}}}]})",
                       "f");
  ASSERT_FALSE(bad_version);
  EXPECT_NE(bad_version.error().text().find("exec.apiVersion"), std::string::npos);
  const auto missing =
      parse_kubeconfig(R"({current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
      clusters: [{name: c, cluster: {server: "https://h:1"}}],
      users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin-here, installHint: get it}}}]})",
                       "f");
  const auto loop = Loop::make_virtual(test::kStart);
  EXPECT_NE(make_credentials(*loop, *missing, nullptr).error().text().find("not found in PATH; get it"),
            std::string::npos);
}

}  // namespace
}  // namespace gpuop::kube
