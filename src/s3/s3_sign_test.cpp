#include "s3/s3_sign.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

const S3Credentials kExample{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", {}};
constexpr int64_t kExampleSeconds = 1369353600;  // 2013-05-24T00:00:00Z
constexpr std::string_view kNothingHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

HttpRequest example(HttpMethod method, std::string path, std::string query, std::vector<HttpHeader> headers) {
  HttpRequest request;
  request.method = method;
  request.origin = "https://examplebucket.s3.amazonaws.com";
  request.path = std::move(path);
  request.query = std::move(query);
  request.headers = std::move(headers);
  return request;
}

std::string signature(HttpRequest request, std::string_view hash = kNothingHash) {
  sign_request(request, kExample, "us-east-1", hash, kExampleSeconds);
  const std::string& authorization = request.headers.back().value;
  return authorization.substr(authorization.find("Signature=") + 10);
}

// docs.aws.amazon.com, "Authenticating Requests: Using the Authorization Header", its four examples.
TEST(S3Sign, SignsAsTheExamplesOfItsSpecification) {
  EXPECT_EQ(signature(example(HttpMethod::get, "/test.txt", "", {{"Range", "bytes=0-9"}})),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(
      signature(example(HttpMethod::put, "/test%24file.text", "",
                        {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}),
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(signature(example(HttpMethod::get, "/", "lifecycle", {})),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(signature(example(HttpMethod::get, "/", "prefix=J&max-keys=2", {})),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(S3Sign, SendsTheTokenOfTemporaryCredentialsAndSignsIt) {
  HttpRequest request = example(HttpMethod::get, "/", "", {});
  S3Credentials temporary = kExample;
  temporary.session_token = "token";
  sign_request(request, temporary, "us-east-1", kNothingHash, kExampleSeconds);
  EXPECT_NE(
      request.headers.back().value.find("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token"),
      std::string::npos);
}

TEST(S3Sign, SortsAQueryByNamesAndNotByWholeFields) {
  HttpRequest request = example(HttpMethod::get, "/", "prefix-of=1&uploads&prefix=2", {});
  sign_request(request, kExample, "us-east-1", kNothingHash, kExampleSeconds);
  EXPECT_EQ(request.query, "prefix=2&prefix-of=1&uploads=");
}

TEST(S3Sign, HashesAndEncodesAsOthersDo) {
  EXPECT_EQ(sha256_hex({}), kNothingHash);
  EXPECT_EQ(to_hex(md5_of(as_bytes("abc")).value()), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(to_base64(as_bytes("any carnal pleas")), "YW55IGNhcm5hbCBwbGVhcw==");
  EXPECT_EQ(percent_encode("a/b+c=d e~\xc3\xa9"), "a%2Fb%2Bc%3Dd%20e~%C3%A9");
  EXPECT_EQ(percent_decode("a%2Fb%2bc+d", true).value(), "a/b+c d");
  EXPECT_EQ(percent_decode("a+b", false).value(), "a+b");
  for (const char* bad : {"%", "a%2", "%zz", "%%41"})
    EXPECT_EQ(percent_decode(bad, true).status().code(), StatusCode::corrupt) << bad;
}

}  // namespace
}  // namespace varve
