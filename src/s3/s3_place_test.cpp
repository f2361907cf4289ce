#include "s3/s3_place.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/unique_id.h"

namespace varve {
namespace {

TEST(S3Place, IsABucketAndAPrefix) {
  const S3Place place = S3Place::parse("s3://my-bucket.org/runs/2026").value();
  EXPECT_EQ(place.bucket, "my-bucket.org");
  EXPECT_EQ(place.prefix, "runs/2026/");
  EXPECT_EQ(place.key("catalog/a").value(), "runs/2026/catalog/a");
  EXPECT_EQ(place.to_string(), "s3://my-bucket.org/runs/2026");
  for (const char* whole : {"s3://abc", "s3://abc/"}) {
    EXPECT_EQ(S3Place::parse(whole).value().prefix, "");
    EXPECT_EQ(S3Place::parse(whole).value().key("k").value(), "k");
  }
  EXPECT_EQ(S3Place::parse("s3://abc/d/").value().prefix, "d/");
}

TEST(S3Place, RefusesWhatIsNoBucketOrNoPrefix) {
  for (const char* bad : {"",
                          "abc",
                          "S3://abc",
                          "s3:/abc",
                          "s3://",
                          "s3:///a",
                          "s3://ab",
                          "s3://Abc",
                          "s3://a_c",
                          "s3://-bc",
                          "s3://bc-",
                          "s3://a..c",
                          "s3://192.168.0.1",
                          "s3://user:secret@abc",
                          "s3://abc//d",
                          "s3://abc/d//",
                          "s3://abc/a b",
                          "s3://abc/a+b",
                          "s3://abc/a=b",
                          "s3://abc/a%20",
                          "s3://abc/../d",
                          "s3://abc/.",
                          "s3://abc/d?e",
                          "s3://abc/\xc3\xa9"}) {
    EXPECT_EQ(S3Place::parse(bad).status().code(), StatusCode::invalid_argument) << bad;
  }
  EXPECT_EQ(S3Place::parse("s3://" + std::string(64, 'a')).status().code(), StatusCode::invalid_argument);
  EXPECT_TRUE(S3Place::parse("s3://" + std::string(63, 'a')).ok());
  EXPECT_TRUE(check_s3_key(std::string(1024, 'k')).ok());
  EXPECT_FALSE(check_s3_key(std::string(1025, 'k')).ok());
}

class S3SettingsTest : public testing::Test {
 protected:
  S3SettingsTest() : home_(std::filesystem::temp_directory_path() / ("varve-test-" + UniqueId::random()->hex())) {
    std::filesystem::create_directories(home_ / ".aws");
    variables_["HOME"] = home_;
  }
  ~S3SettingsTest() override { std::filesystem::remove_all(home_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(home_ / name) << text; }
  Result<S3Settings> find(const S3Options& options = {}, const std::string& place = "s3://bucket") const {
    return find_s3_settings(S3Place::parse(place).value(), options, [this](const std::string& name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::nullopt : std::optional(found->second);
    });
  }
  void set_keys() {
    variables_["AWS_ACCESS_KEY_ID"] = "id";
    variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  }

  const std::filesystem::path home_;
  std::map<std::string, std::string> variables_;
};

TEST_F(S3SettingsTest, AreAwsOwnWhereNothingElseIsSaid) {
  set_keys();
  const S3Settings settings = find().value();
  EXPECT_EQ(settings.origin, "https://s3.us-east-1.amazonaws.com");
  EXPECT_EQ(settings.region, "us-east-1");
  EXPECT_FALSE(settings.path_style);
  EXPECT_EQ(settings.credentials.access_key_id, "id");
  EXPECT_EQ(settings.credentials.secret_access_key, "secret");
  EXPECT_EQ(find({.endpoint = {}, .region = "cn-north-1", .profile = {}, .path_style = {}}).value().origin,
            "https://s3.cn-north-1.amazonaws.com.cn");
  EXPECT_TRUE(find({}, "s3://with.dots").value().path_style);
}

TEST_F(S3SettingsTest, TakeOptionsBeforeVariablesAndVariablesBeforeFiles) {
  write(".aws/credentials", "[default]\naws_access_key_id = file-id\naws_secret_access_key=file-secret\n");
  write(".aws/config",
        "# a comment\n[default]\nregion = eu-1 # here\nendpoint_url = http://file:9000\nca_bundle = /file.pem\n"
        "s3 =\n  region = nested\n[profile other]\nregion = eu-2\naws_access_key_id=config-id\n"
        "aws_secret_access_key=config-secret\naws_session_token=config-token\n");
  S3Settings settings = find().value();
  EXPECT_EQ(settings.credentials.access_key_id, "file-id");
  EXPECT_EQ(settings.region, "eu-1");
  EXPECT_EQ(settings.origin, "http://file:9000");
  EXPECT_EQ(settings.ca_file, "/file.pem");
  EXPECT_TRUE(settings.path_style);

  set_keys();
  variables_["AWS_DEFAULT_REGION"] = "eu-3";
  variables_["AWS_ENDPOINT_URL"] = "http://all:1";
  variables_["AWS_CA_BUNDLE"] = "/variable.pem";
  settings = find().value();
  EXPECT_EQ(settings.credentials.access_key_id, "id");
  EXPECT_EQ(settings.region, "eu-3");
  EXPECT_EQ(settings.origin, "http://all:1");
  EXPECT_EQ(settings.ca_file, "/variable.pem");
  variables_["AWS_REGION"] = "eu-4";
  variables_["AWS_ENDPOINT_URL_S3"] = "http://s3:2";
  settings = find().value();
  EXPECT_EQ(settings.region, "eu-4");
  EXPECT_EQ(settings.origin, "http://s3:2");

  settings = find({.endpoint = "http://option:3", .region = "eu-5", .profile = "other", .path_style = false}).value();
  EXPECT_EQ(settings.credentials.access_key_id, "config-id");
  EXPECT_EQ(settings.credentials.session_token, "config-token");
  EXPECT_EQ(settings.region, "eu-5");
  EXPECT_EQ(settings.origin, "http://option:3");
  EXPECT_FALSE(settings.path_style);
}

TEST_F(S3SettingsTest, TakeFilesThatVariablesName) {
  write("keys", "[work]\naws_access_key_id = w\naws_secret_access_key = ws\n");
  variables_["AWS_SHARED_CREDENTIALS_FILE"] = "~/keys";
  variables_["AWS_PROFILE"] = "work";
  EXPECT_EQ(find().value().credentials.secret_access_key, "ws");
}

TEST_F(S3SettingsTest, SayWhatIsMissing) {
  EXPECT_EQ(find().status().code(), StatusCode::invalid_argument);
  variables_["AWS_ACCESS_KEY_ID"] = "half";
  EXPECT_EQ(find().status().code(), StatusCode::invalid_argument);
  variables_.erase("AWS_ACCESS_KEY_ID");
  variables_["AWS_PROFILE"] = "nowhere";
  EXPECT_EQ(find().status().code(), StatusCode::not_found);
  write(".aws/config", "[profile nowhere]\nrole_arn = arn:aws:iam::1:role/x\n");
  EXPECT_EQ(find().status().code(), StatusCode::unsupported);
}

TEST_F(S3SettingsTest, KeepSecretsOutOfMessages) {
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  variables_["AWS_SECRET_ACCESS_KEY"] = "very\nsecret";
  const Status status = find().status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(status.to_string().find("secret\n"), std::string::npos);
  EXPECT_EQ(status.to_string().find("very"), std::string::npos);
  set_keys();
  const Status endpoint =
      find({.endpoint = "https://user:password@host", .region = {}, .profile = {}, .path_style = {}}).status();
  EXPECT_EQ(endpoint.code(), StatusCode::invalid_argument);
  EXPECT_EQ(endpoint.to_string().find("password"), std::string::npos);
}

TEST_F(S3SettingsTest, TakeEndpointsThatAreAHostAndPerhapsAPort) {
  set_keys();
  const auto origin = [&](const char* endpoint) {
    const auto settings = find({.endpoint = endpoint, .region = {}, .profile = {}, .path_style = {}});
    return settings.ok() ? settings->origin : "";
  };
  EXPECT_EQ(origin("https://Host.ORG:443/"), "https://host.org");
  EXPECT_EQ(origin("http://host:80"), "http://host");
  EXPECT_EQ(origin("http://host:443"), "http://host:443");
  EXPECT_EQ(origin("http://[::1]:9000"), "http://[::1]:9000");
  EXPECT_EQ(origin("http://[::1]"), "http://[::1]");
  for (const char* bad : {"host", "ftp://host", "http://", "http://host:0", "http://host:70000", "http://host/path",
                          "http://host:9000?x", "http://ho st", "http://:80"}) {
    EXPECT_EQ(origin(bad), "") << bad;
  }
}

TEST_F(S3SettingsTest, RefuseARegionThatIsNone) {
  set_keys();
  variables_["AWS_REGION"] = "eu/1\r\nx: y";
  EXPECT_EQ(find().status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace varve
