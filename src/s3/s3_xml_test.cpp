#include "s3/s3_xml.h"

#include <gtest/gtest.h>

#include <random>

namespace varve {
namespace {

const std::string kList =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    "<Name>b</Name><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
    "<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>"
    "<Contents><Key>a%2Fb+c</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>"
    "<ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size>"
    "<Owner><ID>x</ID></Owner></Contents>"
    "<CommonPrefixes><Prefix>a/d/</Prefix></CommonPrefixes></ListBucketResult>";

TEST(S3Xml, ReadsAListOfObjects) {
  const S3ListPage page = parse_s3_list(as_bytes(kList)).value();
  ASSERT_EQ(page.objects.size(), 1u);
  EXPECT_EQ(page.objects[0].key, "a/b c");
  EXPECT_EQ(page.objects[0].bytes, 434234u);
  EXPECT_EQ(page.objects[0].modified_seconds, 1255369830);
  EXPECT_EQ(page.objects[0].etag, "fba9dede5f27731c9771645a39863328");
  EXPECT_EQ(page.prefixes, std::vector<std::string>{"a/d/"});
  EXPECT_EQ(page.next_token, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
}

TEST(S3Xml, RefusesWhatIsNoListOrAHostileOne) {
  const std::string begin = "<ListBucketResult>", end = "</ListBucketResult>";
  std::string deep, many;
  for (int i = 0; i < 20; ++i) deep = "<a>" + deep + "</a>";
  for (int i = 0; i < 200'001; ++i) many += "<a/>";
  const std::vector<std::string> bad{
      "",
      "no xml",
      "<Other></Other>",
      kList.substr(0, kList.size() - 3),
      kList + "<x/>",
      begin + deep + end,
      begin + many + end,
      begin + "<Contents><Key>" + std::string(5000, 'k') + "</Key></Contents>" + end,
      "<" + std::string(600, 'L') + "/>",
      begin + "<Contents><Size>-1</Size></Contents>" + end,
      begin + "<Contents><Size>99999999999999999999</Size></Contents>" + end,
      begin + "<Contents><LastModified>yesterday</LastModified></Contents>" + end,
      begin + "<IsTruncated>true</IsTruncated>" + end,
      begin + "<IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>" + end,
      begin + "<EncodingType>base64</EncodingType>" + end,
      begin + "<EncodingType>url</EncodingType><Contents><Key>%4</Key></Contents>" + end,
      "<!DOCTYPE l [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>" + begin + "<Name>&b;</Name>" + end,
      "<!DOCTYPE l SYSTEM \"file:///etc/passwd\">" + begin + end,
  };
  for (const std::string& xml : bad)
    EXPECT_EQ(parse_s3_list(as_bytes(xml)).status().code(), StatusCode::corrupt) << xml.substr(0, 100);
}

TEST(S3Xml, SurvivesAnyChangeOfAList) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::string xml = kList;
    for (uint32_t i = random() % 4 + 1; i > 0; --i) xml[random() % xml.size()] = static_cast<char>(random());
    if (round % 3 == 0) xml.resize(random() % xml.size());
    const Result<S3ListPage> page = parse_s3_list(as_bytes(xml));
    if (page.ok()) {
      EXPECT_LE(page->objects.size(), 1u);
    } else {
      EXPECT_EQ(page.status().code(), StatusCode::corrupt);
    }
    parse_s3_uploads(as_bytes(xml)).status().ignore("it only must not crash");
    (void)parse_s3_error(as_bytes(xml));
  }
}

TEST(S3Xml, ReadsUploads) {
  const S3UploadPage page =
      parse_s3_uploads(
          as_bytes("<ListMultipartUploadsResult><NextKeyMarker>k</NextKeyMarker>"
                   "<NextUploadIdMarker>i</NextUploadIdMarker><IsTruncated>true</IsTruncated>"
                   "<Upload><Key>k</Key><UploadId>i</UploadId>"
                   "<Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload></ListMultipartUploadsResult>"))
          .value();
  ASSERT_EQ(page.uploads.size(), 1u);
  EXPECT_EQ(page.uploads[0].id, "i");
  EXPECT_EQ(page.uploads[0].begun_seconds, 1289422113);
  EXPECT_EQ(page.next_key, "k");
  EXPECT_EQ(page.next_id, "i");
  EXPECT_EQ(parse_s3_upload_id(as_bytes("<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                                        "</InitiateMultipartUploadResult>"))
                .value(),
            "u");
  EXPECT_FALSE(parse_s3_upload_id(as_bytes("<InitiateMultipartUploadResult/>")).ok());
  EXPECT_FALSE(
      parse_s3_upload_id(as_bytes("<InitiateMultipartUploadResult><UploadId/></InitiateMultipartUploadResult>")).ok());
  EXPECT_EQ(
      parse_s3_completed(as_bytes("<CompleteMultipartUploadResult><ETag/></CompleteMultipartUploadResult>")).value(),
      "");
  EXPECT_FALSE(parse_s3_completed(as_bytes("<CompleteMultipartUploadResult/>")).ok());
  EXPECT_EQ(parse_s3_completed(as_bytes("<CompleteMultipartUploadResult><ETag>&quot;e-2&quot;</ETag>"
                                        "</CompleteMultipartUploadResult>"))
                .value(),
            "e-2");
}

TEST(S3Xml, MakesErrorsFitToBeShown) {
  const S3Error error = parse_s3_error(as_bytes("<Error><Code>NoSuchKey</Code><Message>gone\n\x1b[2J&#233;" +
                                                std::string(300, 'x') + "</Message></Error>"));
  EXPECT_EQ(error.code, "");  // an escape character is none of XML's
  const S3Error other = parse_s3_error(
      as_bytes("<Error><Code>NoSuchKey</Code><Message>gone\n&#233;" + std::string(300, 'x') + "</Message></Error>"));
  EXPECT_EQ(other.code, "NoSuchKey");
  EXPECT_EQ(other.message.substr(0, 8), "gone   x");
  EXPECT_EQ(other.message.size(), 200u);
  EXPECT_EQ(parse_s3_error(as_bytes("<html><body>Bad gateway</body></html>")).code, "");
}

TEST(S3Xml, TellsWhatWasNotRemoved) {
  EXPECT_TRUE(parse_s3_not_removed(as_bytes("<DeleteResult/>"))->empty());
  const auto left = parse_s3_not_removed(
      as_bytes("<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error><Error><Key>b</Key>"
               "<Code>NoSuchKey</Code></Error></DeleteResult>"));
  EXPECT_EQ(left.value(), std::vector<std::string>{"a: AccessDenied"});
}

TEST(S3Xml, ReadsTimes) {
  EXPECT_EQ(parse_iso_time("1970-01-01T00:00:00Z").value(), 0);
  EXPECT_EQ(parse_iso_time("2024-02-29T23:59:60.123456Z").value(), 1709251200);
  for (const char* bad :
       {"", "2023-02-29T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00", "1969-12-31T23:59:59Z",
        "2024-01-01T00:00:00Z ", "2024-01-01 00:00:00Z", "2024--1-01T00:00:00Z"}) {
    EXPECT_FALSE(parse_iso_time(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace varve
