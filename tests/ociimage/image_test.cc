#include "ociimage/image.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/process.h"
#include "base/text.h"

namespace gpuop::ociimage {
namespace {

struct Fixture : ::testing::Test {
  TempDir dir;
  fs::path root = dir.path() / "root", out = dir.path() / "image.tar";

  void put(const fs::path& inner, const std::string& text, mode_t mode = 0644) const {
    ASSERT_TRUE(make_dirs((root / inner).parent_path()));
    ASSERT_TRUE(write_file_atomic(root / inner, text, mode));
  }
  Image image() const {
    Image made;
    made.reference = "example.org/thing:v1";
    made.layers = {root};
    made.entrypoint = {"/bin/thing"};
    made.architecture = "amd64";
    return made;
  }
  // What GNU tar makes of the archive: an independent reader.
  std::string tar(std::vector<std::string> args) const {
    args.insert(args.begin(), "/bin/tar");
    auto state = run_command(Command{std::move(args), {"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}}, 20s);
    EXPECT_TRUE(state && state->ok()) << (state ? state->err : state.error().text());
    return state ? state->out : "";
  }
  Json blob(const std::string& digest) const {
    return parse_json(tar({"xOf", out.string(), "blobs/sha256/" + digest.substr(7)})).value_or(Json());
  }
  Json manifest() const {
    const Json index = parse_json(tar({"xOf", out.string(), "index.json"})).value_or(Json());
    return blob(std::string(get_string(get_array(index, {"manifests"})[0], {"digest"})));
  }
};

struct oci_image : Fixture {};

TEST_F(oci_image, same_folders_give_the_same_bytes) {
  put("bin/thing", "one", 0755);
  put("etc/a", "two");
  const auto first = write_image(image(), out);
  ASSERT_TRUE(first) << first.error().text();
  const std::string bytes = *read_file(out);
  // The same content again, made later and in another order, elsewhere.
  const fs::path copy = dir.path() / "copy";
  ASSERT_TRUE(make_dirs(copy / "etc"));
  ASSERT_TRUE(make_dirs(copy / "bin"));
  ASSERT_TRUE(write_file_atomic(copy / "etc/a", "two"));
  ASSERT_TRUE(write_file_atomic(copy / "bin/thing", "one", 0755));
  Image again = image();
  again.layers = {copy};
  const auto second = write_image(again, dir.path() / "again.tar");
  ASSERT_TRUE(second);
  EXPECT_EQ(first->digest, second->digest);
  EXPECT_EQ(*read_file(dir.path() / "again.tar"), bytes);
  EXPECT_EQ(first->size, bytes.size());
}

TEST_F(oci_image, digests_name_what_they_stand_for) {
  put("bin/thing", "one", 0755);
  const auto written = write_image(image(), out);
  ASSERT_TRUE(written);
  const Json index = *parse_json(tar({"xOf", out.string(), "index.json"}));
  const Json& entry = get_array(index, {"manifests"})[0];
  EXPECT_EQ(get_string(entry, {"digest"}), written->digest);
  EXPECT_EQ(get_string(entry, {"annotations", "io.containerd.image.name"}), "example.org/thing:v1");
  EXPECT_EQ(get_string(entry, {"annotations", "org.opencontainers.image.ref.name"}), "v1");
  for (const auto& name : split(trim(tar({"tf", out.string()})), '\n')) {
    if (!name.starts_with("blobs/")) continue;
    EXPECT_EQ(sha256_hex(tar({"xOf", out.string(), name})), name.substr(name.rfind('/') + 1));
  }
  const Json config = blob(std::string(get_string(manifest(), {"config", "digest"})));
  EXPECT_EQ(to_text(get_array(config, {"config", "Entrypoint"})), R"(["/bin/thing"])");
  EXPECT_EQ(get_string(config, {"created"}), "1970-01-01T00:00:00Z");
}

TEST_F(oci_image, layer_holds_files_modes_links_and_long_names) {
  put("bin/thing", "one", 0755);
  const std::string middle(120, 'm'), end(130, 'e'),
      split_name = "d/" + std::string(90, 'x') + "/" + std::string(60, 'y');
  put(fs::path(middle) / end, "long");
  put(split_name, "split");
  ASSERT_TRUE(make_symlink_atomic(std::string(150, 't'), root / "far"));
  ASSERT_TRUE(make_symlink_atomic("thing", root / "bin/link"));
  ::chmod((root / "bin").c_str(), 01777);
  ASSERT_TRUE(write_image(image(), out));
  const std::string digest(get_string(get_array(manifest(), {"layers"})[0], {"digest"}));
  ASSERT_TRUE(write_file_atomic(dir.path() / "layer.tgz",
                                tar({"xOf", out.string(), "blobs/sha256/" + digest.substr(7)})));
  const std::string listed = tar({"tzvf", (dir.path() / "layer.tgz").string(), "--numeric-owner"});
  for (const std::string& part :
       {std::string("drwxrwxrwt 0/0"), std::string("-rwxr-xr-x 0/0"), std::string("bin/link -> thing"),
        middle + "/" + end, split_name, "far -> " + std::string(150, 't'),
        std::string("1970-01-01 00:00 bin/thing")}) {
    EXPECT_NE(listed.find(part), std::string::npos) << part << "\n" << listed;
  }
  EXPECT_EQ(tar({"xOzf", (dir.path() / "layer.tgz").string(), middle + "/" + end}), "long");
}

TEST_F(oci_image, what_an_image_cannot_be_is_refused) {
  put("a", "one");
  Image bad = image();
  bad.reference = "example.org:5000/thing";
  EXPECT_EQ(write_image(bad, out).error().text(),
            "name image 'example.org:5000/thing': it needs a tag, as in NAME:TAG");
  bad = image();
  bad.layers.clear();
  EXPECT_EQ(write_image(bad, out).error().code(), Code::kInvalid);
  ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
  EXPECT_NE(write_image(image(), out).error().text().find("is neither a file nor a folder nor a link"),
            std::string::npos);
  EXPECT_FALSE(file_exists(out));
}

}  // namespace
}  // namespace gpuop::ociimage
